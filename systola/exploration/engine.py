"""Execution of jobs on Dask workers: of a local cluster, or of the user's own scheduler."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from hdl.errors import UserError
from hdl.paths import BUILD
from systola.exploration.checkout import Checkout, this_checkout

if TYPE_CHECKING:
    from distributed import Client
    from tornado.ioloop import IOLoop

ANSWER_SECONDS = 30
"""Timeout for an answer of a scheduler."""

DEATHS = 3
"""Number of workers that may end during one job before the job counts as failed."""


@cache
def event_loop() -> "IOLoop":
    """Return the process's event loop for Dask, which runs in a separate thread.

    Dask's own start of this thread fails if the thread does not run within 10 seconds, which a busy
    machine may exceed; this one has no time limit.
    """
    from tornado.ioloop import IOLoop

    started: Future[IOLoop] = Future()

    async def serve() -> None:
        started.set_result(IOLoop.current())
        await asyncio.Event().wait()

    threading.Thread(target=asyncio.run, args=(serve(),), name="Dask", daemon=True).start()
    return started.result()


def check_answers(scheduler: str) -> None:
    """Check that a scheduler accepts a connection at an address.

    A `Client` that finds no scheduler fails in its constructor and closes itself when Python
    collects it, which may happen in the loop's own thread. This check therefore precedes the first
    `Client`.

    Raises
    ------
    UserError
        If no scheduler answers within `ANSWER_SECONDS`.
    """
    from distributed.comm.core import connect
    from distributed.utils import sync

    async def call() -> None:
        await (await connect(scheduler, timeout=ANSWER_SECONDS)).close()

    try:
        sync(event_loop(), call)
    except (OSError, ValueError) as error:
        rule = "SCHEDULER must be the address of a Dask scheduler"
        raise UserError(f"{rule}, and none answers at {scheduler!r}") from error


@contextmanager
def cluster(scheduler: str | None, workers: int | None = None) -> Iterator["Client"]:
    """Connect to a scheduler, or start a local one with one worker per core.

    Every worker is a process with one thread, so that a core executes one job. The local cluster
    listens only on the loopback interface and ends with the context.

    Raises
    ------
    UserError
        If no scheduler answers, it has no workers, or one of them has another checkout.
    """
    from dask import config
    from distributed import Client

    config.set(
        {
            "distributed.comm.timeouts.connect": ANSWER_SECONDS,
            "distributed.scheduler.allowed-failures": DEATHS,
            # Jobs wait for programs that they start: the worker's own memory use is no measure.
            "distributed.worker.memory.target": False,
            "distributed.worker.memory.spill": False,
            "distributed.worker.memory.pause": False,
            "distributed.worker.memory.terminate": False,
        }
    )
    with ExitStack() as opened:
        where: Any = scheduler
        if scheduler:
            check_answers(scheduler)
        else:
            where = opened.enter_context(_local_cluster(workers or os.cpu_count() or 1))
        client = opened.enter_context(
            Client(where, timeout=ANSWER_SECONDS, set_as_default=False, loop=event_loop())
        )
        check_workers(client, this_checkout())
        yield client


def _local_cluster(workers: int) -> Any:
    """Return a Dask cluster on this machine, which is a context manager."""
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        host="127.0.0.1",
        # Dask always serves its status page; a free port allows concurrent sweeps.
        dashboard_address="127.0.0.1:0",
        local_directory=str(BUILD / "explore" / "dask"),
        silence_logs=logging.CRITICAL,
        loop=event_loop(),
    )


def check_workers(client: "Client", here: Checkout) -> None:
    """Compare the checkouts of all workers and of the scheduler with this process's.

    Raises
    ------
    UserError
        If there is no worker, or workers cannot import the project or differ; the message lists
        them.
    """
    try:
        client.wait_for_workers(1, timeout=ANSWER_SECONDS)
        found: Any = client.run(this_checkout, on_error="return")
        # The scheduler deserialises jobs, so it also needs the sources.
        found["the scheduler"] = _on_scheduler(client)
    except (OSError, TimeoutError, ValueError) as error:
        raise UserError(
            f"SCHEDULER must have a worker that answers; start one by `dask worker`: {error}"
        ) from error
    differing = {}
    for worker, checkout in found.items():
        if not isinstance(checkout, Checkout):
            differing[worker] = f"cannot import this checkout: {checkout}"
        elif difference := here.difference(checkout):
            differing[worker] = f"has {difference}"
    if differing:
        listed = "; ".join(f"{worker} {what}" for worker, what in sorted(differing.items()))
        raise UserError(f"scheduler and workers must have this checkout, but {listed}")


def _on_scheduler(client: "Client") -> Any:
    """Return the scheduler's checkout, or the exception if it cannot read the checkout."""
    try:
        return client.run_on_scheduler(this_checkout)
    except Exception as error:
        return error


class _Ended(NamedTuple):
    """The outcome of a completed job, in a class that no other answer of Dask has."""

    outcome: Any


def _checked(work: Callable[[Any], Any], here: Checkout, job: Any) -> _Ended:
    """Run a job on a worker, after a check that also covers workers that joined later."""
    if difference := here.difference(this_checkout()):
        raise UserError(f"scheduler and workers must have this checkout, but one has {difference}")
    return _Ended(work(job))


def run_jobs(
    client: "Client",
    work: Callable[[Any], Any],
    jobs: Sequence[Any],
    keys: Sequence[str],
    lengths: Sequence[float],
) -> Iterator[tuple[int, Any]]:
    """Run jobs, in order of decreasing expected duration, and yield results as they arrive.

    If a job's worker is lost, the job runs again on another one.

    Parameters
    ----------
    work : Callable[[Any], Any]
        Function that executes a job on a worker and returns its result; it must be picklable.
    jobs, keys, lengths : Sequence
        The jobs, a unique name for each, and the expected duration of each.

    Yields
    ------
    tuple[int, Any]
        A job's index, and its result or the exception that it raised.

    Raises
    ------
    UserError
        If the connection to the scheduler is lost.
    """
    from distributed import as_completed

    futures = {
        client.submit(
            _checked, work, this_checkout(), job, key=f"{key}-{os.getpid()}",
            priority=round(10 * length), pure=False,
        ): index
        for index, (job, key, length) in enumerate(zip(jobs, keys, lengths, strict=True))
    }  # fmt: skip
    try:
        left = len(futures)
        for future, result in as_completed(
            futures, loop=client.loop, with_results=True, raise_errors=False
        ):
            if isinstance(result, _Ended):
                yield futures[future], result.outcome
            elif isinstance(result, tuple) and not isinstance(result[1], CancelledError):
                # A job that failed returns the type, the exception and the traceback.
                yield futures[future], result[1]
            else:
                break
            future.release()
            left -= 1
        if left:
            raise UserError(
                f"the scheduler must remain available; {left} jobs remain, repeat the command"
            )
    finally:
        if client.status == "running":
            client.cancel([future for future in futures if not future.done()])
