"""The memory side of a layer at SmolLM2's dimensions, without the NPU: account of its cycles."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from amaranth.hdl import Module, Value
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.p3llm.control.bank_scheduler import BankScheduler
from hdl.p3llm.control.product_sequencer import ProductSequencer
from hdl.p3llm.control.program import Program
from hdl.p3llm.instructions import (
    MemoryBits,
    MemoryInstruction,
    MemoryOperation,
    memory_instruction,
)
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.bank_timing import POSTPONED, RowOperation
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_channel import ColumnOperation

pytestmark = pytest.mark.depends("p3llm")

PRESETS = entry_named("p3llm").presets

POSITION = 600
COMPLETE = 6
"""Cycles from the column that completes sums until a unit has them."""


def memory_side(
    p: P3llmParameters, position: int, modes: Sequence[Mode] = tuple(Mode)
) -> list[tuple[MemoryInstruction, Counter[str]]]:
    """Return products of a layer with their cycles and commands; none waits for the NPU.

    No further refresh can be postponed: the first one is due after an interval.
    """
    m = Module()
    m.submodules.sequencer = sequencer = ProductSequencer(parameters=p)
    m.submodules.scheduler = scheduler = BankScheduler(
        parameters=p.channel, position_bits=MemoryBits(p).position
    )
    m.d.comb += [
        scheduler.column.eq(sequencer.column),
        sequencer.taken.eq(scheduler.taken),
    ]
    if p.channel.timing.ccd_s > 1:
        m.d.comb += sequencer.slot.eq(scheduler.slot)
    products = [
        one.instruction
        for one in Program(p).memory
        if one.instruction.operation is MemoryOperation.PRODUCT and one.instruction.mode in modes
    ]
    counted = []

    async def bench(ctx) -> None:
        ctx.set(sequencer.position, position)
        await ctx.tick().repeat((POSTPONED - 2) * p.channel.timing.refi)
        for product in products:
            word = memory_instruction(p).const({**vars(product)}).as_value().value
            ctx.set(Value.cast(sequencer.instructions.payload), word)
            ctx.set(sequencer.instructions.valid, 1)
            counts: Counter[str] = Counter()
            last = -p.channel.timing.ccd_s
            waiting = True
            while waiting or not ctx.get(sequencer.idle):
                waiting = waiting and not ctx.get(sequencer.instructions.ready)
                if ctx.get(sequencer.command.valid):
                    code = ctx.get(Value.cast(sequencer.command.operation))
                    counts[ColumnOperation(code).name] += 1
                    # Columns, inputs and sums occupy the pins of the memory for tCCD_S each.
                    assert counts["cycles"] - last >= p.channel.timing.ccd_s
                    last = counts["cycles"]
                if ctx.get(scheduler.row_command.valid):
                    counts[RowOperation(ctx.get(scheduler.row_command.operation)).name] += 1
                counts["cycles"] += 1
                await ctx.tick()
                ctx.set(sequencer.instructions.valid, waiting)
            counted.append((product, counts))

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return counted


def refresh_cycles(p: P3llmParameters) -> int:
    """Return the maximum cost of a refresh in cycles."""
    timing = p.channel.timing
    return timing.ras + timing.rp + timing.rfc + timing.rcd + 2 * timing.rrd


def test_a_command_occupies_the_pins_for_its_time() -> None:
    """At 1 GHz two cycles; with the same times in ns a layer takes at most twice the cycles."""
    slow, fast = (memory_side(PRESETS[preset], 100) for preset in ("tiny", "tiny_gigahertz"))
    for (product, counts), (_, twice) in zip(slow, fast, strict=True):
        issued = [{x: n[x] for x in n if x in ColumnOperation.__members__} for n in (counts, twice)]
        assert issued[0] == issued[1], product
    cycles = [sum(counts["cycles"] for _, counts in one) for one in (slow, fast)]
    assert cycles[1] <= 2 * cycles[0]


@pytest.mark.full
@pytest.mark.parametrize("batch", [1, 2])
def test_every_lost_cycle_has_its_reason(batch: int) -> None:
    """Columns, scales and inputs; refreshes; rounds that are too short for their sums."""
    p = replace(PRESETS["smollm2"], batch=batch)
    timing, refresh = p.channel.timing, refresh_cycles(p)
    for product, counts in memory_side(p, POSITION):
        values = product.mode is Mode.PV
        steps = p.head_size // 4 if product.mode is Mode.QK else product.steps
        reads = 2 * p.units * (1 + product.both)
        rounds = counts["READ_RESULT"] // reads if reads and not values else 0
        # Sums are read between columns, but not before they are complete, nor in an odd cycle.
        lacking = max(0, reads - (2 * steps - COMPLETE) // 2)
        known = 2 * counts["MULTIPLY"] + 2 * counts["FILL_METADATA"]
        known += counts["READ"] + counts["WRITE_INPUT"]
        known += counts["REFRESH"] * refresh + rounds * (lacking + lacking % 2)
        sets = counts["FILL_METADATA"]
        # The first row, phases between single columns and products, the last sums.
        rest = timing.rcd + timing.ras + timing.rp + 6 * sets + reads + 2 * COMPLETE
        assert counts["cycles"] <= known + rest, (product, counts)


@pytest.mark.full
@pytest.mark.parametrize("batch", [1, 2])
def test_scaling_in_units_costs_only_columns(batch: int) -> None:
    """Linear layers take the cycles of their columns and refreshes: sums and inputs are hidden."""
    p = replace(PRESETS["smollm2"], batch=batch)
    refresh, total = refresh_cycles(p), Counter[str]()
    for product, counts in memory_side(p, POSITION):
        if product.mode is Mode.LINEAR and product.groups:
            # Half of the groups of a shared round.
            groups = [product.groups] * (product.rounds - product.shared)
            groups += [-(-product.groups // 2)] * product.shared
            assert counts["FILL_SCALES"] == sum(-(-one // 2) for one in groups)
            assert counts["READ_RESULT"] == 3 * p.units * batch * product.rounds
            assert not counts["READ"]
            total += counts
    columns = total["MULTIPLY"] + total["FILL_METADATA"] + total["FILL_SCALES"]
    assert total["cycles"] <= 1.03 * (2 * columns + total["REFRESH"] * refresh), total


@pytest.mark.full
@pytest.mark.parametrize("tokens", [131, 601, 1024])
def test_reading_keys_takes_one_cycle_per_column(tokens: int) -> None:
    """Sixteen heads of LLaMA-2-7B's shape: one column per cycle, in all rounds that have tokens."""
    p = replace(
        PRESETS["smollm2"], hidden_size=2048, heads=16, kv_heads=16, head_size=128, pre_rope=True
    )
    rounds = -(-tokens // p.block)
    for product, counts in memory_side(p, tokens - 1, [Mode.QK]):
        sets = -(-rounds // 4)
        positions = sets + 2 * rounds + rounds * p.head_size // 4
        assert counts["READ"] == positions * p.units, product
        assert not counts["MULTIPLY"] + counts["READ_RESULT"] + counts["WRITE_INPUT"]
        known = counts["READ"] + counts["REFRESH"] * refresh_cycles(p)
        # Skipped scales may end a row; opening the next one is then not hidden.
        timing = p.channel.timing
        rows = timing.ras + timing.rp + timing.rcd
        assert counts["cycles"] <= known + (1 + sets) * rows + 2 * COMPLETE, counts
