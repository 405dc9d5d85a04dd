"""Progress bars: what is being done, how far, how fast, at what loss, and how long it will still take."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from card.train import Progress


class Bars:
    """A stack of progress bars on standard error; silent when not wanted.

    >>> with Bars(show=False) as bars:
    ...     bars.training("denoiser") is None
    True
    """

    def __init__(self, show: bool) -> None:
        self.rich = None
        if show:
            from rich.console import Console

            self.rich = RichProgress(
                TextColumn("{task.description:<14}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[detail]}"),
                TimeRemainingColumn(),
                console=Console(file=sys.stderr),
            )

    def __enter__(self) -> Bars:
        if self.rich is not None:
            self.rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.rich is not None:
            self.rich.stop()

    def training(self, label: str) -> Progress | None:
        """A bar for a training loop: steps done, steps a second, loss."""
        rich = self.rich
        if rich is None:
            return None
        bar = rich.add_task(label, total=None, detail="")

        def update(done: int, total: int, loss: float) -> None:
            rate = rich.tasks[rich.task_ids.index(bar)].speed
            speed = f"{rate:.0f} steps/s " if rate else ""
            rich.update(bar, completed=done, total=total, detail=f"{speed}loss {loss:.4f}")

        return update

    def shares(self) -> Callable[[str, float], None] | None:
        """Bars for named parts, told the share that is done."""
        rich = self.rich
        if rich is None:
            return None
        bars: dict[str, TaskID] = {}

        def update(name: str, share: float) -> None:
            if name not in bars:
                bars[name] = rich.add_task(f"mean: {name}"[:24], total=100, detail="")
            rich.update(bars[name], completed=round(100 * share))

        return update
