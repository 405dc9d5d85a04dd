"""Tasks carried to a cluster by joblib: its Dask backend, or its Ray backend.

Workers there may not see the folders of this machine, so they write nothing: their outcomes come back.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import joblib

from card.bench.errors import BenchError
from card.bench.execute import Outcome, execute
from card.bench.spec import Unit

Tasks = Sequence[Sequence[Unit]]


def run_away(backend: str, address: str | None, tasks: Tasks) -> Iterator[Outcome]:
    """The outcomes of tasks on the cluster at this address, as they come."""
    for outcomes in _found(backend, address).run(str(address), tasks):
        yield from outcomes


def n_workers(backend: str, address: str | None) -> int:
    """How many tasks the cluster at this address can work on at once."""
    return max(1, _found(backend, address).n_workers(str(address)))


def _found(backend: str, address: str | None) -> Cluster:
    if not address:
        raise BenchError(
            f"--backend {backend} needs --address HOST:PORT, the address of a {backend} scheduler"
        )
    return CLUSTERS[backend]


def _work(task: Sequence[Unit]) -> list[Outcome]:
    with TemporaryDirectory() as folder:  # on the worker, for what is told of a fit while it is under way
        return list(execute(task, Path(folder)))


def _needed(module: str, backend: str, remedy: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise BenchError(f"--backend {backend} needs the package {module}: pip install {remedy}") from None


def _dask_client(address: str) -> Any:
    distributed = _needed("distributed", "dask", "'card-diffusion[cluster]'")
    try:
        return distributed.Client(address, timeout="20s", set_as_default=True)
    except (OSError, TimeoutError, ValueError) as error:
        raise BenchError(f"no Dask scheduler answers at {address}: {error}") from None


def _dask_workers(address: str) -> int:
    with _dask_client(address) as client:
        return sum(client.nthreads().values())


def _on_dask(address: str, tasks: Tasks) -> Iterator[list[Outcome]]:
    with _dask_client(address), joblib.parallel_config("dask", wait_for_workers_timeout=60):
        parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="all")
        yield from parallel(joblib.delayed(_work)(task) for task in tasks)


@contextmanager
def _ray(address: str) -> Iterator[int]:
    """A connection to Ray, told by its number of processors."""
    ray = _needed("ray", "ray", "ray")
    try:
        ray.init(address=address, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise BenchError(f"no Ray cluster answers at {address}: {str(error).splitlines()[0]}") from None
    try:
        yield int(ray.cluster_resources()["CPU"])
    finally:
        ray.shutdown()


def _ray_workers(address: str) -> int:
    with _ray(address) as n_cpus:
        return n_cpus


def _on_ray(address: str, tasks: Tasks) -> Iterator[list[Outcome]]:
    """Ray gives nothing back before all it was given is done: it gets as many tasks as it has CPUs."""
    with _ray(address) as n_cpus:
        importlib.import_module("ray.util.joblib").register_ray()
        with joblib.parallel_config("ray", n_jobs=n_cpus):
            for wave in (tasks[i : i + n_cpus] for i in range(0, len(tasks), n_cpus)):
                yield from joblib.Parallel(batch_size=1)(joblib.delayed(_work)(task) for task in wave)


class Cluster(NamedTuple):
    """How tasks are run at an address, and how many at once."""

    run: Callable[[str, Tasks], Iterator[list[Outcome]]]
    n_workers: Callable[[str], int]


CLUSTERS = {"dask": Cluster(_on_dask, _dask_workers), "ray": Cluster(_on_ray, _ray_workers)}
