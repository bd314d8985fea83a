"""What the systems' tests of whole models share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hdl.entry import Entry
from systola.generation.shell import MEMORY
from systola.host.verilated import Verilated
from testbenches.harness import Harness
from testbenches.waves import Samples


@pytest.fixture
def board(system: Any, tmp_path: Path) -> Iterator[Verilated]:
    """A simulated board with the prepared system of the module's fixture `system`."""
    with Verilated(system.harness, system.p, MEMORY, tmp_path) as transport:
        yield transport


@pytest.fixture(scope="module")
def compiled_once() -> Iterator[None]:
    """Emit and compile once for all tests of the same parameters."""
    own, kept = Harness.compiled, {}

    def compiled(entry: Entry, parameters: object, waves: Samples | None = None) -> Harness:
        if (parameters, waves) not in kept:
            kept[parameters, waves] = own(entry, parameters, waves=waves)
        return kept[parameters, waves]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Harness, "compiled", compiled)
        yield
