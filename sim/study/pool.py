"""Many independent calls on many processes through joblib: this machine (loky), a Ray or a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from sim.errors import RidgelineError

BACKENDS = {"loky": "joblib", "ray": "ray", "dask": "distributed"}
MOST_JOBS = 1024
ATTEMPTS = 3
"""Times a pool may lose a worker before it gives up."""


def run_calls(
    function: Callable[..., Any], calls: Mapping[str, tuple[Any, ...]], *, backend: str, jobs: int
) -> Iterator[tuple[str, Any]]:
    """Yield (key, function(*arguments)) as calls finish. When a worker is killed, what had not finished runs again.

    Raises RidgelineError for an unknown or absent backend, and when workers are killed ``ATTEMPTS`` times.
    """
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    check_pool(backend, jobs)
    jobs = min(jobs, len(calls), MOST_JOBS) if jobs > 0 else jobs
    left = dict(calls)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            for key, result in _finished(function, dict(left), backend, jobs):
                del left[key]
                yield key, result
            return
        except TerminatedWorkerError as error:
            if attempt == ATTEMPTS:
                raise RidgelineError(
                    f"workers were killed {ATTEMPTS} times with {len(left)} runs left (out of memory?)\n"
                    "  cure: use fewer --jobs; with --out, --resume goes on from the finished points"
                ) from error


def check_pool(backend: str, jobs: int) -> None:
    """Raise RidgelineError for a backend that is unknown or not installed, and for a number of jobs that is none."""
    if jobs == 0 or jobs < -1:
        raise RidgelineError(
            f"--jobs {jobs}: is no number of processes\n  cure: give 1 or more, or -1 for one per core"
        )
    if backend not in BACKENDS:
        raise RidgelineError(f"--backend {backend}: unknown\n  cure: use one of {', '.join(BACKENDS)}")
    if find_spec(BACKENDS[backend]) is None:
        raise RidgelineError(
            f"--backend {backend}: {backend} is not installed\n  cure: pip install 'ridgeline-sim[{backend}]'"
        )


def _finished(
    function: Callable[..., Any], calls: Mapping[str, tuple[Any, ...]], backend: str, jobs: int
) -> Iterator[tuple[str, Any]]:
    from joblib import Parallel, delayed, parallel_config

    work = [delayed(_keyed)(key, function, arguments) for key, arguments in calls.items()]
    if backend == "loky":
        yield from Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", batch_size=1)(work)
        return
    width = _connect(backend, jobs)
    with parallel_config(backend=backend, n_jobs=width):
        for start in range(0, len(work), 2 * width):
            yield from Parallel()(work[start : start + 2 * width])


def _connect(backend: str, jobs: int) -> int:
    """Join the cluster the environment names (RAY_ADDRESS, DASK_SCHEDULER_ADDRESS) or start one here; its width."""
    if backend == "ray":
        import ray
        from ray.util.joblib import register_ray

        if not ray.is_initialized():
            ray.init(num_cpus=None if jobs < 1 else jobs, log_to_driver=False, include_dashboard=False)
        register_ray()
        return int(ray.cluster_resources().get("CPU", 1)) if jobs < 1 else jobs
    from distributed import Client, default_client

    try:
        client = default_client()  # type: ignore[no-untyped-call]
    except ValueError:
        client = Client(  # type: ignore[no-untyped-call]
            n_workers=None if jobs < 1 else jobs, threads_per_worker=1, dashboard_address=None
        )
    return max(1, len(client.scheduler_info()["workers"])) if jobs < 1 else jobs


def _keyed(key: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    return key, function(*arguments)
