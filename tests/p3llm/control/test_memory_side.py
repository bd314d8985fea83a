"""The memory side of a layer at SmolLM2's dimensions, without the NPU: account of its cycles."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from amaranth.hdl import Module, Value
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.p3llm.control.bank_scheduler import BankScheduler, parity_of
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
from hdl.p3llm.pim.pim_channel import COLUMN_BITS, ColumnOperation

pytestmark = pytest.mark.depends("p3llm")

PRESETS = entry_named("p3llm").presets

POSITION = 600
COMPLETE = 6
"""Cycles from the column that completes sums until a unit has them."""
SCALED = 49
"""The same for totals of groups that the unit scales, with the start of a product."""


class Rows:
    """The rows of both parities of banks, from the commands.

    Parameters
    ----------
    delay : int
        Cycles from a row's activation to its first column, tRCD.
    """

    def __init__(self, delay: int) -> None:
        self.delay = delay
        self.rows: list[int | None] = [None, None]
        self.refreshed = [False, False]
        self.waits = [0, 0]

    def reason(self, side: int, row: int) -> str:
        """Return what a column of a row waits for, or ``open`` if not for the row."""
        if self.rows[side] == row and not self.waits[side]:
            return "open"
        return "refreshing" if self.refreshed[side] else "opening"

    def follow(self, operation: RowOperation | None, side: int, row: int) -> None:
        """Continue with a cycle and its command."""
        for other in range(2):
            if self.waits[other]:
                self.waits[other] -= 1
                if not self.waits[other]:
                    self.refreshed[other] = False
        if operation is RowOperation.ACTIVATE:
            self.rows[side], self.waits[side] = row, self.delay - 1
        elif operation is RowOperation.REFRESH:
            self.rows[:], self.refreshed[:] = (None, None), (True, True)
        elif operation is not None:
            self.rows[side] = None
            self.refreshed[side] |= operation is RowOperation.REFRESH_BANK


def memory_side(
    p: P3llmParameters, position: int, modes: Sequence[Mode] = tuple(Mode)
) -> list[tuple[MemoryInstruction, Counter[str]]]:
    """Return products of a layer with their cycles and commands; none waits for the NPU.

    No further refresh can be postponed: the first one is due after an interval. Cycles in which a
    column waits for its row, tRCD included, are counted: ``refreshing``, if the banks have been
    refreshed since their last row, otherwise ``opening``.
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
    rows = Rows(p.channel.timing.rcd)
    parity = parity_of(scheduler.column.position[COLUMN_BITS:])

    def follow(ctx: Any, counts: Counter[str]) -> None:
        """Count the row command of this cycle, and what the column of this cycle waits for."""
        if ctx.get(scheduler.column.valid) and not ctx.get(scheduler.taken):
            row = ctx.get(scheduler.column.position) >> COLUMN_BITS
            counts[rows.reason(ctx.get(parity), row >> 1)] += 1
        command, operation = scheduler.row_command, None
        if ctx.get(command.valid):
            operation = RowOperation(ctx.get(command.operation))
            counts[operation.name] += 1
        rows.follow(operation, ctx.get(command.bank) & 1, ctx.get(command.row))

    async def bench(ctx: Any) -> None:
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
                follow(ctx, counts)
                counts["cycles"] += 1
                await ctx.tick()
                ctx.set(sequencer.instructions.valid, waiting)
            counted.append((product, counts))

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return counted


def require_short_waits(p: P3llmParameters, counts: Counter[str]) -> None:
    """Limit the cycles that refreshes and changes of rows take from the columns of products."""
    timing, units = p.channel.timing, p.units
    closed = timing.ras + timing.rp + timing.rcd
    together = closed + timing.rfc + 2 * timing.rrd
    parity = closed + (units - 1) * timing.rrefd + timing.rfcsb
    # A product may wait for a refresh that began in the one before it.
    refreshes = counts["REFRESH"] * together + -(-counts["REFRESH_BANK"] // units) * parity
    assert counts["refreshing"] <= refreshes, counts
    # Rows that are opened while no other row is in use: the first one, one in 16, skipped ones.
    changes = 1 + counts["ACTIVATE"] // 16 + counts["skips"]
    assert counts["opening"] <= (counts["products"] + changes) * closed, counts


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
    """Columns, scales and inputs; rows and refreshes; rounds that are too short for their sums."""
    p, total = replace(PRESETS["smollm2"], batch=batch), Counter[str]()
    for product, counts in memory_side(p, POSITION):
        total += counts + Counter(products=1)
        values = product.mode is Mode.PV
        steps = p.head_size // 4 if product.mode is Mode.QK else product.steps
        reads = 2 * p.units * (1 + product.both)
        rounds = counts["READ_RESULT"] // reads if reads and not values else 0
        # Sums are read between columns, but not before they are complete, nor in an odd cycle.
        lacking = max(0, reads - (2 * steps - COMPLETE) // 2)
        known = 2 * counts["MULTIPLY"] + 2 * counts["FILL_METADATA"]
        known += counts["READ"] + counts["WRITE_INPUT"]
        known += counts["opening"] + counts["refreshing"] + rounds * (lacking + lacking % 2)
        sets = counts["FILL_METADATA"]
        # Phases between single columns and products, the last sums.
        rest = 6 * sets + reads + 2 * COMPLETE
        assert counts["cycles"] <= known + rest, (product, counts)
    require_short_waits(p, total)


@pytest.mark.full
@pytest.mark.parametrize("batch", [1, 2])
def test_scaling_in_units_costs_only_columns(batch: int) -> None:
    """Between columns, linear layers lose rows and refreshes only: sums and inputs are hidden."""
    p, total = replace(PRESETS["smollm2"], batch=batch), Counter[str]()
    for product, counts in memory_side(p, POSITION):
        if product.mode is Mode.LINEAR and product.groups:
            # Half of the groups of a shared round.
            groups = [product.groups] * (product.rounds - product.shared)
            groups += [-(-product.groups // 2)] * product.shared
            assert counts["FILL_SCALES"] == sum(-(-one // 2) for one in groups)
            assert counts["READ_RESULT"] == 3 * p.units * batch * product.rounds
            assert not counts["READ"]
            columns = counts["MULTIPLY"] + counts["FILL_METADATA"] + counts["FILL_SCALES"]
            known = 2 * columns + counts["opening"] + counts["refreshing"]
            # The scales of the last groups; the first inputs, and the totals of the last round.
            rest = SCALED + (2 + 3 * p.units) * batch
            assert counts["cycles"] <= known + rest, (product, counts)
            total += counts + Counter(products=1, columns=columns)
    require_short_waits(p, total)
    # Refreshes of all banks alone would take 8 %.
    assert total["opening"] + total["refreshing"] <= 0.05 * 2 * total["columns"], total


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
        # An open row waits only for a refresh that cannot be postponed.
        counts["refreshing"] += counts.pop("open", 0)
        known = counts["READ"] + counts["opening"] + counts["refreshing"]
        assert counts["cycles"] <= known + 2 * COMPLETE, counts
        # Skipped scales may end a row; opening the next one is then not hidden.
        require_short_waits(p, counts + Counter(products=1, skips=sets))
