"""One layer with the dimensions of Llama-3.1-8B and random codes."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from golden.p3llm.dram_image import layer_image
from golden.p3llm.p3llm import Cache, decode
from hdl.catalog import entry_named
from hdl.p3llm.parameters import P3llmParameters
from testbenches.harness import Harness
from testbenches.harness_memory import Dram
from testbenches.p3llm.system_models import drawn_cache, drawn_codes
from testbenches.packing import pack, unpack

pytestmark = pytest.mark.depends("p3llm")


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """Results of a layer: bits of its state, all bytes, cycles, and columns by kind."""

    state: NDArray[np.uint32]
    image: NDArray[np.uint8]
    cycles: int
    columns: dict[str, int]


def run_layer(
    p: P3llmParameters,
    image: NDArray[np.uint8],
    state: NDArray[np.float32],
    position: int,
    folder: Path,
) -> Step:
    """Process a hidden state in the layer, with the C++ harness."""
    harness = Harness.compiled(entry_named("p3llm"), p)
    file, size = folder / "banks.memory", 2 * p.elements
    image.tofile(file)
    dram = Dram(file=file, units=p.units, column_bytes=size, layout=p.channel.bank_command_layout)
    slices = state.view(np.uint32).reshape(-1, p.lanes).astype(np.int64)
    last = (np.arange(len(slices)) == len(slices) - 1).astype(np.int64)
    given = {"layer": np.array([0]), "position": np.array([[position]])}
    with harness.session([dram]) as session:
        run = session.run(
            {
                "instructions": pack(p.instruction_layout, given),
                "states_in": pack(p.state_layout, {"values": slices, "last": last}),
            },
            {"states_out": len(slices)},
            record=["status"],
            # No stream has transfers while a layer is in progress.
            timeout=10 * p.layer_positions,
        )
    assert not run.outputs["status"].any()
    found = unpack(p.state_layout, run.outputs["states_out"])["values"]
    return Step(
        state=found.reshape(-1).astype(np.uint32),
        image=np.fromfile(file, np.uint8).reshape(image.shape),
        cycles=run.cycle,
        columns=dict(run.counts),
    )


def drawn(
    p: P3llmParameters, cached: int, seed: int, folder: Path
) -> tuple[Step, NDArray[np.uint32], NDArray[np.uint8]]:
    """Return the results of a random layer, and the expected state and bytes."""
    rng = np.random.default_rng(seed)
    weights, cache = drawn_codes(p, rng), drawn_cache(p, cached, rng)
    state = rng.normal(size=p.hidden_size).astype(np.float32)
    expected, after = decode(weights, cache, state, cached, p)
    assert np.isfinite(expected).all()

    def image(cache: Cache) -> NDArray[np.uint8]:
        return layer_image(p, weights, cache)

    found = run_layer(p, image(cache), state, cached, folder)
    return found, expected.view(np.uint32), image(after)


@pytest.mark.full
@pytest.mark.parametrize(("preset", "cached"), [("paper", 130)])
def test_a_layer_of_the_largest_dimensions(preset: str, cached: int, tmp_path: Path) -> None:
    """Random codes; compares the hidden state and every byte in the banks."""
    p = entry_named("p3llm").parameters(preset)
    found, expected, image = drawn(p, cached, 1, tmp_path)
    assert found.state.tolist() == expected.tolist()
    assert (found.image == image).all()
    # Columns of all units, two cycles each, and at most the refreshes in the same time.
    timing = p.channel.timing
    together = p.channel.unit.pumps * found.columns["together"] // p.units
    refresh = timing.ras + timing.rp + timing.rfc + timing.rcd + 2 * timing.rrd
    refreshed = together + found.cycles // timing.refi * refresh
    assert together < found.cycles < 1.1 * refreshed
