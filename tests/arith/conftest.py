"""Settings for the arithmetic tests."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Let a constructor refuse its arguments: what it leaves behind is of course never used."""
    config.addinivalue_line("filterwarnings", "ignore::amaranth.hdl.UnusedElaboratable")
