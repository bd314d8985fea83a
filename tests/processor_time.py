"""Processor time of each test, and a table of the tests that take most of it."""

import resource
from collections import defaultdict
from collections.abc import Callable, Generator
from typing import Any

import pytest

ROWS = 40
"""Length of the table."""


def used() -> float:
    """Return the processor seconds of this process and of the children that it has waited for."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class ProcessorTime:
    """Plugin that measures each phase of each test where it runs, and sums where it is reported.

    Parameters
    ----------
    rows : int
        Length of the table; 0 for none.
    clock : Callable[[], float]
        Processor seconds of the process so far.
    """

    def __init__(self, rows: int = ROWS, clock: Callable[[], float] = used) -> None:
        self.rows, self.clock, self.last = rows, clock, 0.0
        self.seconds: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Start with a test: collection and other tests do not count."""
        self.last = self.clock()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        """Add the time of a phase to its report, which a worker sends to the controller."""
        report = yield
        now = self.clock()
        report.processor_seconds, self.last = now - self.last, now
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Sum the phases; the report of a worker that crashed has no duration."""
        self.seconds[report.nodeid] += getattr(report, "processor_seconds", 0.0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table."""
        if not self.rows:
            return
        total = sum(self.seconds.values())
        terminalreporter.section(f"{self.rows} longest tests, in processor seconds")
        for name in sorted(self.seconds, key=lambda name: -self.seconds[name])[: self.rows]:
            terminalreporter.write_line(f"{self.seconds[name]:8.1f}  {name}")
        terminalreporter.write_line(f"{total:8.1f}  all {len(self.seconds)} tests")
