"""Text of SmolLM2 through AXI alone, by each accelerator with the AXI shell."""

from pathlib import Path

import pytest

from golden.llm.language_model import open_language_model
from hdl.catalog import entry_named
from hdl.settings import with_values
from systola.generate import SHELLS, adapter_of
from systola.generation.system import Settings
from tests.generation.random_models import generated, running

QUICK = {"meadow_axi": {"meadow.lanes": 1}}
"""Changes to a preset without which a token takes long."""


@pytest.mark.full
@pytest.mark.parametrize(
    "top", [pytest.param(top, marks=pytest.mark.depends(top)) for top in SHELLS]
)
def test_smollm2_generates(tmp_path: Path, top: str) -> None:
    """The run compares its sums, caches and states with the golden model's."""
    model = open_language_model()
    preset = with_values(entry_named(top).parameters("smollm2"), QUICK.get(top, {}))
    adapter = adapter_of(top)
    parameters = adapter.fitted(model, preset)
    system = adapter(model, parameters, Settings(budget=128, reserved=32), tmp_path)
    prompt = model.tokens_of("The capital")
    assert len(generated(running(system, prompt, 1))) == 1
