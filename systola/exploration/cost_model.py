"""How long a sweep takes on `n` workers: measured job times, the longest job first.

Jobs share nothing but caches, so that a cluster is a list schedule: whoever is free takes the
longest job that is left. No schedule is shorter than the jobs' sum over the workers, nor than the
longest job.
"""

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass

WORKERS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A sweep on a number of workers, in seconds.

    Parameters
    ----------
    workers : int
        How many there are.
    wall : float
        Until the last job ends.
    ideal : float
        The jobs' sum over the workers, or the longest job if that is more.
    """

    workers: int
    wall: float
    ideal: float


def schedule(seconds: Sequence[float], workers: int, overhead: float = 0.0) -> Schedule:
    """Give each job, the longest first, to the worker that is free first.

    Parameters
    ----------
    seconds : Sequence[float]
        How long each job takes.
    overhead : float
        What the engine adds to each job.
    """
    free = [0.0] * workers
    for length in sorted(seconds, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + length + overhead)
    ideal = max(sum(seconds) / workers, max(seconds, default=0.0))
    return Schedule(workers=workers, wall=max(free), ideal=ideal)


def larger(seconds: Sequence[float], jobs: int, seed: int = 1) -> list[float]:
    """Draw the times of a larger sweep from those measured, each as likely as it was seen."""
    return random.Random(seed).choices(list(seconds), k=jobs)
