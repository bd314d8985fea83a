"""Programs on the compiled model: at limited bandwidth, cycles are proportional to bytes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.meadow.packing.weight_packer import Level
from hdl.catalog import entry_named
from hdl.meadow.parameters import MeadowParameters
from testbenches.harness import Harness
from testbenches.harness_memory import Channel
from testbenches.meadow.bandwidth import decode_step
from testbenches.meadow.checked_program import LayerProgram
from testbenches.meadow.long_program import run_program
from testbenches.meadow.random_layers import random_layers
from testbenches.meadow.traffic import has_weights

ENTRY = entry_named("meadow")
P: MeadowParameters = ENTRY.parameters("tiny_opt")


@pytest.fixture(scope="module")
def random_layer() -> Any:
    return random_layers(P, np.random.default_rng(1), 1)


@pytest.fixture(scope="module")
def harness() -> Harness:
    return Harness.compiled(ENTRY, P)


@pytest.mark.parametrize("level", [Level.RAW, Level.REINDEXED])
def test_cycles_are_proportional_to_bytes_at_limited_bandwidth(
    harness: Harness, random_layer: Any, tmp_path: Path, level: Level
) -> None:
    (layer,), states = random_layer
    for bits in (2, 4, 8):
        program = decode_step(P, [layer], states, level)
        run = run_program(program, harness, tmp_path, bits=bits)
        bound = 8 * run.moved_bytes / bits
        # The channel stalls after a word, so that the last word may end before the bound. The first
        # and last requests of a layer overlap with no other transfer.
        assert bound - 1000 / bits <= run.cycles[0] <= 1.02 * bound + 400
    free = run_program(program, harness, tmp_path)
    assert free.moved_bytes == run.moved_bytes
    assert free.cycles[0] < run.cycles[0]


def test_prefill_and_decode_step_keep_the_bound(
    harness: Harness, random_layer: Any, tmp_path: Path
) -> None:
    layers, states = random_layer
    program = LayerProgram(P, layers)
    for block in (states[:10], states[10:11]):
        program.add_block(block, [0])
        program.end()
    run = run_program(program, harness, tmp_path, bits=20)
    assert len(run.cycles) == 2
    assert sum(run.cycles) >= 0.98 * 8 * run.moved_bytes / 20
    # Every byte belongs to the time of an instruction.
    assert sum(one.moved_bytes for one in run.instructions) == run.moved_bytes
    work = zip(run.instructions, program.code.issued, program.traffic.ideal, strict=True)
    # The first weights of a GEMM may arrive before it.
    assert all(one.cycles > ideal for one, which, ideal in work if not has_weights(which))
    # The last instruction, a prediction, ends with its output or one cycle later.
    assert 0 <= sum(one.cycles for one in run.instructions) - sum(run.cycles) <= 2


def test_rejects_channel_without_bits() -> None:
    with pytest.raises(ValueError, match="bits of a channel must be more than 0, not 0"):
        Channel(bits=0)
