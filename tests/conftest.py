"""Set-up for all tests: caches inside the checkout, and repeatable random examples."""

import os
from collections import Counter

import pytest
from hypothesis import settings

from systola.environment import keep_inside_checkout, let_threads_sleep

keep_inside_checkout()
let_threads_sleep()
# There is one worker per core: a second thread per worker would compete for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print the reasons of skipped tests, such as missing tools, on the last line."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if reporter is None or not skipped or hasattr(config, "workerinput"):
        return
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    words = "; ".join(f"{count} tests: {reason}" for reason, count in reasons.items())
    reporter.write_line(f"not checked: {words}")
