"""Announced positions of P3-LLM with the AXI shell: those at which a step begins its runs."""

from dataclasses import replace
from typing import Any

import pytest
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.p3llm.parameters import KEY_SET
from hdl.p3llm.pim.dot_product import PE_LANES
from hdl.shell.coming_positions import ComingPositions
from hdl.shell.p3llm_axi_parameters import P3llmAxiParameters

pytestmark = pytest.mark.depends("p3llm_axi")

TINY: P3llmAxiParameters = entry_named("p3llm_axi").parameters("tiny")
MORE_HEADS = replace(TINY, p3llm=replace(TINY.p3llm, heads=6, kv_heads=3))


@pytest.mark.parametrize("p", [TINY, MORE_HEADS], ids=["tiny", "more heads"])
@pytest.mark.parametrize("token", [0, 63, 64, 127])
def test_announces_each_run_when_the_one_before_begins(p: P3llmAxiParameters, token: int) -> None:
    own, unit = p.p3llm, ComingPositions(parameters=p)
    base = own.layer_positions
    keys = token // (KEY_SET * own.block) * own.key_set
    values = token // (PE_LANES * own.elements) * own.value_set
    heads = [
        (base + own.key_base(head) + keys, base + own.value_base(head) + values)
        for head in range(own.kv_heads)
    ]
    norm = base + own.norm_bases[1]

    async def announced(context: Any, position: int) -> None:
        """Check a position that is accepted after some cycles."""
        await context.tick().repeat(3)
        assert context.get(unit.positions.valid)
        assert context.get(unit.positions.payload) == position
        context.set(unit.positions.ready, 1)
        await context.tick()
        context.set(unit.positions.ready, 0)

    async def access(context: Any, position: int) -> None:
        """Access another position, then this one; nothing is announced before."""
        for place in (position + 1, position):
            assert not context.get(unit.positions.valid)
            context.set(unit.access.valid, 1)
            context.set(unit.access.position, place)
            await context.tick()
            context.set(unit.access.valid, 0)

    async def start(context: Any, layer: int) -> None:
        context.set(unit.step.layer, layer)
        context.set(unit.step.position[0], token)
        context.set(unit.starts, 1)
        await context.tick()
        context.set(unit.starts, 0)
        # The next instruction is that of the LM head.
        context.set(unit.step.layer, own.layers)
        context.set(unit.step.position[0], 5)

    async def bench(context: Any) -> None:
        await start(context, 1)
        for key, value in heads:
            await announced(context, key)
            await announced(context, value)
            await access(context, key)
        await announced(context, norm)
        await access(context, norm)
        context.set(unit.positions.ready, 1)
        await context.tick().repeat(5)
        assert not context.get(unit.positions.valid)
        context.set(unit.positions.ready, 0)
        context.set(unit.follows, 1)
        await announced(context, own.layers * own.layer_positions)
        await context.tick()
        assert not context.get(unit.positions.valid)
        # The LM head is one run; a step ends the announcements of the one before.
        await start(context, own.layers)
        context.set(unit.step.layer, 0)
        await announced(context, 0)
        await start(context, 1)
        await start(context, 1)
        await announced(context, heads[0][0])

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
