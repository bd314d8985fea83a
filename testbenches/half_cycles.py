"""A trigger that spans many half cycles, which bypass cocotb's scheduler."""

from collections.abc import Iterator

from cocotb import _gpi_triggers, simulator
from cocotb.triggers import GPITrigger
from cocotb.utils import get_sim_steps


class HalfCycles(GPITrigger):
    """Fire when a generator ends that is resumed in every half cycle.

    The simulator calls the generator directly. A task that awaits a timer in every half cycle
    passes three queues each time, which takes longer than the simulation of most designs.

    Parameters
    ----------
    work : Iterator[None]
        Generator that yields at each half cycle.

    Members
    -------
    failure : Exception | None
        Exception of the generator, for the task that awaits the trigger.
    """

    def __init__(self, work: Iterator[None]) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self._work = work
        # A simulator with a coarser precision takes one step.
        self._steps = get_sim_steps(1, "ns", round_mode="ceil")

    def _prime(self) -> None:
        self._cbhdl = simulator.register_timed_callback(self._steps, self._resume)

    def _resume(self) -> None:
        # cocotb writes immediately or later, depending on the trigger that it considers current.
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
    """Resume a generator immediately, and again after each half cycle, until it ends.

    Parameters
    ----------
    work : Iterator[None]
        Generator that yields at each half cycle; its exceptions propagate.
    """
    for _ in work:
        passed = HalfCycles(work)
        await passed
        if passed.failure:
            raise passed.failure
