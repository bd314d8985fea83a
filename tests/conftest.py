"""Set-up for all tests: caches inside the checkout, and repeatable random examples."""

import os
from collections import Counter

import pytest
from hypothesis import settings

from systola.environment import keep_inside_checkout, let_threads_sleep
from tests.long_half import LongHalf
from tests.processor_time import ROWS, ProcessorTime

keep_inside_checkout()
let_threads_sleep()
# There is one worker per core: a second thread per worker would compete for the cores.
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
    """Print the reasons of skipped tests, such as missing tools, on the last line."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if reporter is None or not skipped or hasattr(config, "workerinput"):
        return
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    words = "; ".join(f"{count} tests: {reason}" for reason, count in reasons.items())
    reporter.write_line(f"not checked: {words}")
