"""What all tests share: caches inside the checkout, and repeatable random examples."""

import os
from collections import Counter

import pytest
from hypothesis import settings

from systola.environment import keep_inside_checkout, let_threads_sleep

keep_inside_checkout()
let_threads_sleep()
# A worker a core: a second thread in each would wait for the other worker's.
os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what takes longest first, so that no worker is left alone with it at the end."""
    items.sort(key=lambda item: 0 if "test_simulation" in item.nodeid else 1)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say in words, on the last line, what was not checked for want of a tool."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if reporter is None or not skipped or hasattr(config, "workerinput"):
        return
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    words = "; ".join(f"{count} tests: {reason}" for reason, count in reasons.items())
    reporter.write_line(f"not checked: {words}")
