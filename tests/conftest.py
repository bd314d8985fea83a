"""What all tests share: caches inside the checkout, and repeatable random examples."""

import os
from collections import Counter

import pytest
from hypothesis import settings

from systola.environment import keep_inside_checkout, let_threads_sleep
from tests.long_half import LongHalf
from tests.processor_time import ROWS, ProcessorTime

keep_inside_checkout()
let_threads_sleep()
# A worker a core: a second thread in each would wait for the other worker's.
os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options by which `make test` selects and records tests."""
    group = parser.getgroup("long half")
    group.addoption("--rotating", action="store_true", help="mark a shard of the long half")
    group.addoption("--resume", action="store_true", help="leave out what passed, by the record")
    group.addoption("--record", action="store_true", help="record passes of default tests")
    group.addoption("--record-long", action="store_true", help="record passes of the long half")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins; a worker writes no record."""
    options = config.option
    times = ProcessorTime(ROWS if options.record else 0)
    writes = (options.record_long, options.record)
    if hasattr(config, "workerinput"):
        writes = (False, False)
    selection = LongHalf(times, options.rotating, options.resume, writes)
    for plugin in (times, selection):
        config.pluginmanager.register(plugin)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say in words, on the last line, what was not checked for want of a tool."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if reporter is None or not skipped or hasattr(config, "workerinput"):
        return
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    words = "; ".join(f"{count} tests: {reason}" for reason, count in reasons.items())
    reporter.write_line(f"not checked: {words}")
