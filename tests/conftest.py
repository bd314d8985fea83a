"""What all tests share: caches inside the checkout, and repeatable random examples."""

import pytest
from hypothesis import settings

from systola.environment import keep_inside_checkout

keep_inside_checkout()
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what takes longest first, so that no worker is left alone with it at the end."""
    items.sort(key=lambda item: 0 if "test_simulation" in item.nodeid else 1)
