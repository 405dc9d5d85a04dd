"""Groups of commands on the command line that tell wrong arguments in one line."""

from typing import Any

import typer
from typer.core import TyperGroup

UsageError: type[Any] = typer.BadParameter.__bases__[0]  # Typer exports only this child of it


class OneLine(TyperGroup):
    """A command line that tells wrong arguments in one line, as it tells other problems."""

    def main(self, *args: Any, **options: Any) -> Any:
        if not options.get("standalone_mode", True):
            return super().main(*args, **options)
        name = options.get("prog_name") or self.name
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except typer.Abort:
            code = 1
        except UsageError as error:
            code = error.exit_code
            command = name if error.ctx is None else error.ctx.command_path
            if "Usage:" in error.format_message():  # nothing was asked: help is the answer
                error.show()
            else:
                said = " ".join(error.format_message().split()).rstrip(".")
                typer.echo(
                    f"{name}: {said}{'' if said.endswith('?') else ';'} see {command} --help", err=True
                )
        raise SystemExit(code if isinstance(code, int) else 0)
