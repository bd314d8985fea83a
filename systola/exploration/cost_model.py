"""Model of the wall time of a sweep on `n` workers, from measured job times.

Jobs share only caches, so a cluster executes a list schedule: a free worker takes the longest job
that has not started. Two lower bounds hold for every schedule: the jobs' total time divided by the
number of workers, and the longest job.
"""

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass

WORKERS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The duration of a sweep on a number of workers.

    Parameters
    ----------
    workers : int
        Number of workers.
    wall : float
        Seconds until the last job ends.
    ideal : float
        Lower bound in seconds: the jobs' total time divided by `workers`, or the longest job.
    """

    workers: int
    wall: float
    ideal: float


def schedule(seconds: Sequence[float], workers: int, overhead: float = 0.0) -> Schedule:
    """Assign each job, the longest first, to the worker that is free first.

    Parameters
    ----------
    seconds : Sequence[float]
        Duration of each job.
    overhead : float
        Seconds that the engine adds to each job.
    """
    free = [0.0] * workers
    for length in sorted(seconds, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + length + overhead)
    ideal = max(sum(seconds) / workers, max(seconds, default=0.0))
    return Schedule(workers=workers, wall=max(free), ideal=ideal)


def larger(seconds: Sequence[float], jobs: int, seed: int = 1) -> list[float]:
    """Sample the job times of a larger sweep from the measured ones, with equal probability."""
    return random.Random(seed).choices(list(seconds), k=jobs)
