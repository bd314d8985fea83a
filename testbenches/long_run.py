"""Progress and results of a long run."""

from dataclasses import dataclass, field

import numpy as np

from testbenches.packing import Bits


@dataclass(frozen=True, kw_only=True)
class Moved:
    """Progress of a round.

    Parameters
    ----------
    cycle : int
        Cycles since the start of the first round, including reset.
    seconds : float
        Wall-clock time since the start of this round.
    counts : dict[str, int]
        Items accepted by each input stream; since the start of the round, `beats` and `writes` of a
        memory, words of each port of a bank, or columns of DRAM.
    """

    cycle: int
    seconds: float
    counts: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class LongRun:
    """Results of a run, or of one of its rounds.

    Parameters
    ----------
    outputs : dict[str, numpy.ndarray]
        Bits [items, width] of every output stream, and of every recorded port with one item per
        cycle.
    cycles : dict[str, numpy.ndarray]
        Cycle of each item of every output stream, counted from the start of the first round.
    cycle : int
        Cycles from the end of reset, or the start of the round, to the last expected item.
    seconds : float
        Wall-clock time of all cycles of the round.
    cycles_per_second : float
        Simulation speed of the round.
    counts : dict[str, int]
        As in `Moved`, at the end of the round.
    writes : numpy.ndarray
        Address and cycle of each line written to the memories, shape (lines, 2).
    """

    outputs: dict[str, Bits]
    cycles: dict[str, np.ndarray] = field(default_factory=dict)
    cycle: int
    seconds: float
    cycles_per_second: float
    counts: dict[str, int] = field(default_factory=dict)
    writes: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64))
