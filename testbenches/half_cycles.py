"""A trigger behind many half cycles, which pass without cocotb's scheduler."""

from collections.abc import Iterator

from cocotb import _gpi_triggers, simulator
from cocotb.triggers import GPITrigger
from cocotb.utils import get_sim_steps


class HalfCycles(GPITrigger):
    """Fires when a generator ends that is resumed in every half cycle.

    The simulator calls the generator itself: a task that awaits a timer in every half cycle is
    taken through three queues each time, for longer than most designs compute.

    Parameters
    ----------
    work : Iterator[None]
        Yields where half a cycle passes.

    Members
    -------
    failure : Exception | None
        What the generator ended with, for the task that awaits this.
    """

    def __init__(self, work: Iterator[None]) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self._work = work
        self._steps = get_sim_steps(1, "ns")

    def _prime(self) -> None:
        self._cbhdl = simulator.register_timed_callback(self._steps, self._resume)

    def _resume(self) -> None:
        # cocotb writes at once, or later, by what it believes has called last.
        _gpi_triggers._current_gpi_trigger = self
        try:
            next(self._work)
        except StopIteration:
            self._react()
        except Exception as failure:
            self.failure = failure
            self._react()
        else:
            self._prime()


async def pass_half_cycles(work: Iterator[None]) -> None:
    """Resume a generator at once, and again after each half cycle, to its end.

    Parameters
    ----------
    work : Iterator[None]
        Yields where half a cycle passes; what it raises, this raises.
    """
    for _ in work:
        passed = HalfCycles(work)
        await passed
        if passed.failure:
            raise passed.failure
