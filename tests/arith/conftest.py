"""Settings for the arithmetic tests."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Ignore units that are never elaborated because their constructor raised an error."""
    config.addinivalue_line("filterwarnings", "ignore::amaranth.hdl.UnusedElaboratable")
