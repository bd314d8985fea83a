"""Jobs on Dask's workers: a local cluster, or the user's own by its scheduler's address."""

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
"""A scheduler that is silent for so long is gone."""

DEATHS = 3
"""Workers that one job may take with it before it counts as failed."""


@cache
def event_loop() -> "IOLoop":
    """Return the process's event loop for Dask, which runs in a thread of its own.

    Dask's own start of this thread asserts that it runs after 10 seconds, which a busy machine
    may exceed; this one waits for as long as it takes.
    """
    from tornado.ioloop import IOLoop

    started: Future[IOLoop] = Future()

    async def serve() -> None:
        started.set_result(IOLoop.current())
        await asyncio.Event().wait()

    threading.Thread(target=asyncio.run, args=(serve(),), name="Dask", daemon=True).start()
    return started.result()


def check_answers(scheduler: str) -> None:
    """Connect to a scheduler's address and hang up.

    A `Client` that finds no scheduler fails in its constructor and closes itself when Python
    collects it, which may happen in the loop's own thread; therefore none is made before.

    Raises
    ------
    UserError
        If nothing answers there within `ANSWER_SECONDS`.
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
    """Connect to a scheduler, or start one with a worker a core on this machine.

    Every worker is a process with one thread, so that a core has one job; the local cluster listens
    on the loopback interface alone and ends with the block.

    Raises
    ------
    UserError
        If no scheduler answers there, it has no workers, or one of them has another checkout.
    """
    from dask import config
    from distributed import Client

    config.set(
        {
            "distributed.comm.timeouts.connect": ANSWER_SECONDS,
            "distributed.scheduler.allowed-failures": DEATHS,
            # Jobs wait for programs that they started; a worker's own memory says nothing of them.
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
    """Return Dask's cluster of this machine, a context manager."""
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        host="127.0.0.1",
        # Dask serves its status page in any case; on a free port several sweeps can run at once.
        dashboard_address="127.0.0.1:0",
        local_directory=str(BUILD / "explore" / "dask"),
        silence_logs=logging.CRITICAL,
        loop=event_loop(),
    )


def check_workers(client: "Client", here: Checkout) -> None:
    """Hold the checkouts of all workers, and of the scheduler, beside this process's.

    Raises
    ------
    UserError
        If there is no worker, one of them cannot import the project, or one differs; all are named.
    """
    try:
        client.wait_for_workers(1, timeout=ANSWER_SECONDS)
        found: Any = client.run(this_checkout, on_error="return")
        # It reads what jobs consist of, so that it needs the sources too.
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
        said = "; ".join(f"{worker} {what}" for worker, what in sorted(differing.items()))
        raise UserError(f"scheduler and workers must have this checkout, but {said}")


def _on_scheduler(client: "Client") -> Any:
    """Return the scheduler's checkout, or why it cannot tell."""
    try:
        return client.run_on_scheduler(this_checkout)
    except Exception as error:
        return error


class _Ended(NamedTuple):
    """A job that came to its end; nothing else that Dask may answer is taken for one."""

    outcome: Any


def _checked(work: Callable[[Any], Any], here: Checkout, job: Any) -> _Ended:
    """Run a job where it is sent to; a worker that joined later is looked at too."""
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
    """Run jobs, those expected to be the longest first, and yield results as they come.

    A job whose worker is lost runs again on another one.

    Parameters
    ----------
    work : Callable[[Any], Any]
        What is done with a job; it can be sent to a worker, and returns its result.
    jobs, keys, lengths : Sequence
        The jobs, a name for each, and how long each is expected to take.

    Yields
    ------
    tuple[int, Any]
        A job's index, and its result, or the exception that it ended with.

    Raises
    ------
    UserError
        If the scheduler is gone.
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
                # A job that raised has the exception between its type and its place.
                yield futures[future], result[1]
            else:
                break
            future.release()
            left -= 1
        if left:
            raise UserError(f"the scheduler is gone, {left} jobs are left; the same call goes on")
    finally:
        if client.status == "running":
            client.cancel([future for future in futures if not future.done()])
