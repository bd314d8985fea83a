"""Work whose later inputs depend on outputs, in a form that a test can interrupt by a reset."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from testbenches.bench import Bench

Steps = Iterator[Callable[[], bool]]
"""A generator that offers inputs, and yields the conditions that its next inputs wait for."""


class Script:
    """Part of a bench that executes steps.

    The shared tests reset a design in the middle of offered work. Work that awaits its own outputs
    would have to end first; a script is one more driver, which a reset stops.

    Parameters
    ----------
    bench : Bench
        Bench without streams: they offer what a step sends in the same cycle.

    Members
    -------
    done : bool
        The last step is complete.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.clear()
        bench.add(self)

    def clear(self) -> None:
        """Discard all steps."""
        self._steps: Steps = iter(())
        self._condition: Callable[[], bool] = lambda: True
        self.done = True

    def drive(self) -> None:
        """Execute all steps whose condition holds."""
        while not self.done and self._condition():
            following = next(self._steps, None)
            if following is None:
                self.done = True
            else:
                self._condition = following

    def sample(self) -> None:
        """Record nothing."""

    def start(self, steps: Steps) -> None:
        """Execute steps from the next cycle on."""
        self._steps, self._condition, self.done = steps, lambda: True, False

    async def run(self, steps: Steps) -> None:
        """Execute steps until the last one is complete."""
        for condition in steps:
            await self.bench.run(until=condition)

    async def finish(self) -> int:
        """Simulate until the steps that were started are complete; return the cycles."""
        return await self.bench.run(until=lambda: self.done)


class ScriptBench(ABC):
    """A bench whose work is a script, in the form that the shared tests call.

    Members
    -------
    bench : Bench
        The bench of all streams.
    script : Script
        Its part that executes the work.
    """

    bench: Bench
    script: Script

    def offer(self, work: Steps) -> None:
        """Start work after a reset."""
        self.script.start(work)

    async def run(self, work: Steps) -> None:
        """Reset, run work to its end, and check its results."""
        await self.bench.reset()
        self.offer(work)
        await self.script.finish()
        await self.check()

    @abstractmethod
    async def check(self) -> None:
        """Compare the results of the work with the model's."""
