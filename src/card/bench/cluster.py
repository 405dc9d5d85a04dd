"""Tasks carried to a cluster by joblib: its Dask backend, or its Ray backend.

Workers there may not see the folders of this machine, so they write nothing: their outcomes come back.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import joblib

from card.bench.errors import BenchError
from card.bench.execute import Outcome, execute
from card.bench.spec import Unit

Tasks = Sequence[Sequence[Unit]]


def run_away(backend: str, address: str | None, tasks: Tasks) -> Iterator[Outcome]:
    """The outcomes of tasks on the cluster at this address, as they come."""
    if not address:
        raise BenchError(
            f"--backend {backend} needs --address HOST:PORT, the address of a {backend} scheduler"
        )
    for outcomes in CLUSTERS[backend](address, tasks):
        yield from outcomes


def _work(task: Sequence[Unit]) -> list[Outcome]:
    return list(execute(task))


def _needed(module: str, backend: str, remedy: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise BenchError(f"--backend {backend} needs the package {module}: pip install {remedy}") from None


def _on_dask(address: str, tasks: Tasks) -> Iterator[list[Outcome]]:
    distributed = _needed("distributed", "dask", "'card-diffusion[cluster]'")
    try:
        client = distributed.Client(address, timeout="20s", set_as_default=True)
    except (OSError, TimeoutError, ValueError) as error:
        raise BenchError(f"no Dask scheduler answers at {address}: {error}") from None
    with client, joblib.parallel_config("dask", wait_for_workers_timeout=60):
        parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="all")
        yield from parallel(joblib.delayed(_work)(task) for task in tasks)


def _on_ray(address: str, tasks: Tasks) -> Iterator[list[Outcome]]:
    """Ray gives nothing back before all it was given is done: it gets as many tasks as it has CPUs."""
    ray = _needed("ray", "ray", "ray")
    try:
        ray.init(address=address, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise BenchError(f"no Ray cluster answers at {address}: {str(error).splitlines()[0]}") from None
    try:
        importlib.import_module("ray.util.joblib").register_ray()
        n_jobs = int(ray.cluster_resources()["CPU"])
        with joblib.parallel_config("ray", n_jobs=n_jobs):
            for wave in (tasks[i : i + n_jobs] for i in range(0, len(tasks), n_jobs)):
                yield from joblib.Parallel(batch_size=1)(joblib.delayed(_work)(task) for task in wave)
    finally:
        ray.shutdown()


CLUSTERS: dict[str, Callable[[str, Tasks], Iterator[list[Outcome]]]] = {"dask": _on_dask, "ray": _on_ray}
