"""Common behaviour of `stages` and `enable` of all operators."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from hdl.arith.int4_asym import Int4AsymOperand
from hdl.arith.leading_zeros import LeadingZeros


def test_a_paused_pipeline_holds_everything() -> None:
    """While `enable` is 0 the result is constant, whatever the input."""
    unit = LeadingZeros(width=8, stages=2, enable=True)
    words = np.random.default_rng(2).integers(0, 256, 200)
    pauses = np.random.default_rng(3).integers(0, 2, 200)
    seen = []

    async def drive(context):
        for word, moving in zip(words, pauses, strict=True):
            context.set(unit.a, int(word))
            context.set(unit.enable, int(moving))
            seen.append(context.get(unit.result))
            await context.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    ranks = [None, None]
    for cycle, (word, moving) in enumerate(zip(words, pauses, strict=True)):
        if ranks[1] is not None:
            assert seen[cycle] == 8 - int(ranks[1]).bit_length()
        if moving:
            ranks = [word, ranks[0]]


def test_a_combinational_operator_has_no_enable() -> None:
    assert "enable" not in Int4AsymOperand().signature.members
    assert "enable" in Int4AsymOperand(stages=1, enable=True).signature.members


def test_illegal_parameters() -> None:
    with pytest.raises(ValueError, match="stages must be an integer from 0 to 64, not 65"):
        Int4AsymOperand(stages=65)
    with pytest.raises(ValueError, match="enable must be one of False, True, not 2"):
        Int4AsymOperand(enable=2)  # pyright: ignore[reportArgumentType]
