"""Product sequencer: its commands against lists from the layout, and a replay of registers."""

import random
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator

from hdl.catalog import entry_named
from hdl.p3llm.control.product_sequencer import ProductSequencer
from hdl.p3llm.instructions import memory_instruction
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_channel import ColumnOperation as Op

PRESETS = entry_named("p3llm").presets

TINY = PRESETS["tiny"]
BASE, LAYER = 77, 2048
COMPLETE = 6
"""Cycles from the column that completes sums until a unit has them."""
TOTALS_COMPLETE = 16
"""Cycles from the column that completes totals until a unit has them: 2 + 4 + 2 * 4 + 2."""
LONG = replace(TINY, intermediate_size=288, layers=1)
"""Parameters whose longest input has 18 groups."""
FILLS = (Op.FILL_METADATA, Op.FILL_SCALES, Op.MULTIPLY)


class Trace:
    """The sequencer's commands, grouped by position."""

    def __init__(self) -> None:
        self.commands: list[tuple[int, dict[str, Any]]] = []

    def of(self, *operations: Op) -> list[dict[str, Any]]:
        return [one for _cycle, one in self.commands if one["operation"] in operations]


def run(
    p: P3llmParameters,
    instruction: dict[str, Any],
    token: int,
    seed: int,
) -> Trace:
    """Run a product; the scheduler accepts at random, but in the phase of a product."""
    unit, trace = ProductSequencer(parameters=p), Trace()
    rng = random.Random(seed)
    names = ("bank", "column", "word", "step", "group", "upper", "advance")
    names += ("begins", "ends", "total", "high", "pump", "half")

    async def bench(ctx) -> None:
        ctx.set(unit.layer, LAYER)
        ctx.set(unit.position, token)
        ctx.set(unit.instructions.payload, instruction)
        ctx.set(unit.instructions.valid, 1)
        cycle = 0
        while True:
            asked = ctx.get(unit.column.valid)
            phase = cycle % 2 or not ctx.get(unit.column.multiply)
            ctx.set(unit.taken, bool(asked and phase and (not seed or rng.random() < 0.8)))
            ready = ctx.get(unit.instructions.ready) and ctx.get(unit.instructions.valid)
            if ctx.get(unit.command.valid):
                issued = {name: ctx.get(Value.cast(getattr(unit.command, name))) for name in names}
                issued["operation"] = Op(ctx.get(Value.cast(unit.command.operation)))
                issued["bounds"] = (ctx.get(unit.command.first), ctx.get(unit.command["last"]))
                issued["position"] = ctx.get(unit.column.position)
                issued["address"] = ctx.get(unit.word_address)
                for name, _field in unit.reads.shape():
                    issued[name] = ctx.get(unit.reads[name])
                for name in ("place", "final", "upper", "wide", "high", "part", "added", "pump"):
                    issued[f"tag_{name}"] = ctx.get(getattr(unit.tag, name))
                assert bool(ctx.get(unit.tag.valid)) is (issued["operation"] is Op.READ_RESULT)
                trace.commands.append((cycle, issued))
            await ctx.tick()
            cycle += 1
            if ready:
                ctx.set(unit.instructions.valid, 0)
            elif not ctx.get(unit.instructions.valid) and ctx.get(unit.idle):
                return
            assert cycle < 20_000

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return trace


def given(**fields: Any) -> dict[str, Any]:
    """Return an instruction's fields."""
    zeros = {name: 0 for name, _field in memory_instruction(TINY)}
    pairs = {name: [0, 0] for name in ("inputs", "sums", "columns")}
    return {**zeros, **pairs, "base": BASE, **fields}


def check_sums(
    p: P3llmParameters,
    trace: Trace,
    expected: list[list[int]],
    *,
    both: bool,
    units: int,
    last: int | None = None,
) -> None:
    """Require that sums are read when complete and before the next ones, each to its place.

    Those of the last round are read from `last` units only.
    """
    ends = [
        cycle
        for cycle, one in trace.commands
        if one["operation"] is Op.MULTIPLY and one["bounds"][1]
    ]
    reads = [(c, one) for c, one in trace.commands if one["operation"] is Op.READ_RESULT]
    of_round = [units] * (len(expected) - 1) + [last or units]
    firsts = np.cumsum([0, *(2 * one * (1 + both) for one in of_round)])
    assert len(ends) == len(expected) and len(reads) == firsts[-1]
    for number, (end, places) in enumerate(zip(ends, expected, strict=True)):
        mine = reads[firsts[number] : firsts[number + 1]]
        assert mine[0][0] >= end + COMPLETE
        following = ends[number + 1] if number + 1 < len(ends) else None
        assert following is None or mine[-1][0] < following
        order = [
            (u, pump, half)
            for u in range(of_round[number])
            for pump in range(1 + both)
            for half in (0, 1)
        ]
        for (_cycle, one), (u, pump, half) in zip(mine, order, strict=True):
            assert (one["bank"] >> 1, one["upper"]) == (u, half)
            assert one["tag_place"] == places[pump] + 2 * u + half
            assert not one["total"]
            assert not one["tag_wide"]
            # The second input's sums are output after the first one's.
            assert one["advance"] == (both and pump == 0 and half == 1)


@pytest.mark.parametrize(("seed", "token"), [(0, 9), (1, 63), (2, 64), (3, 100)])
def test_keys_are_multiplied_by_one_or_two_queries(seed: int, token: int) -> None:
    """Sets of four rounds of tokens; scales of keys and of values are separate, once per head."""
    p = replace(TINY, slots=128)
    both, scaled = seed % 2, seed == 2
    instruction = given(mode=Mode.QK.value, both=both, scales_held=scaled, groups=1)
    instruction |= {"inputs": [3, 8], "sums": [10, 50], "columns": [0, 64]}
    trace = run(p, instruction, token, seed)
    rounds, columns = token // p.block + 1, p.head_size // 4
    words = -(-p.head_size // p.word)
    halves = p.channel.unit.steps * 4 // p.word
    inputs = [(3 + i, i) for i in range(words)]
    inputs += [(8 + i, halves + i) for i in range(words)] * both
    assert [(one["address"], one["word"]) for one in trace.of(Op.WRITE_INPUT)] == inputs
    position, products, filled = LAYER + BASE, [], []
    for start in range(0, rounds, 4):
        filled.append(position)
        position += 9
        for round_ in range(start, min(start + 4, rounds)):
            for step in range(columns):
                products.append((position, step, round_ % 4, step == 0, step == columns - 1))
                position += 1
    assert [one["position"] for one in trace.of(Op.FILL_METADATA)] == filled
    got = [
        (one["position"], one["step"], one["group"], *map(bool, one["bounds"]))
        for one in trace.of(Op.MULTIPLY)
    ]
    assert got == products
    wanted = [
        (start + 1 + first + round_, place + p.units * (4 * number + round_) + unit)
        for number, start in enumerate(filled)
        for first, place in ((0, 0), (4, 64))
        for round_ in range(min(4, rounds - 4 * number))
        for unit in range(p.units)
    ]
    got = [(one["position"], one["place"]) for one in trace.of(Op.READ)]
    assert sorted(got) == ([] if scaled else sorted(wanted))
    sums = [[10 + 2 * p.units * i, 50 + 2 * p.units * i] for i in range(rounds)]
    last = token % p.block // p.elements + 1
    check_sums(p, trace, sums, both=bool(both), units=p.units, last=last)


@pytest.mark.parametrize(("seed", "token"), [(0, 9), (1, 63), (2, 64), (3, 100)])
def test_keys_are_read_for_the_npu_with_pre_rope(seed: int, token: int) -> None:
    """Position by position, each of all units: zero points, scales, and keys of existing tokens."""
    p = replace(TINY, slots=128, pre_rope=True)
    instruction = given(mode=Mode.QK.value, groups=1, inputs=[16, 8], columns=[0, 64])
    trace = run(p, instruction, token, seed)
    rounds, position, keys, expected = token // p.block + 1, LAYER + BASE, 16, []
    for number, start in enumerate(range(0, rounds, 4)):
        left = min(4, rounds - start)
        expected.append((position, "zeros", 8 + p.units * number))
        expected += [
            (position + 1 + first + round_, "factors", place + p.units * (start + round_))
            for first, place in ((0, 0), (4, 64))
            for round_ in range(left)
        ]
        position += 9
        for _column in range(left * p.head_size // 4):
            expected.append((position, "keys", keys))
            position, keys = position + 1, keys + p.units
    reads = trace.of(Op.READ)
    assert len(reads) == len(trace.commands)
    for number, (where, kind, place) in enumerate(expected):
        mine = reads[number * p.units : (number + 1) * p.units]
        assert {one["position"] for one in mine} == {where}
        assert all(
            one[name] == (name == kind) for one in mine for name in ("zeros", "factors", "keys")
        )
        assert sorted(one["place"] for one in mine) == list(range(place, place + p.units))
        # Each unit's column has the place of its index.
        assert all(one["bank"] >> 1 == one["place"] - place for one in mine)
    assert len(reads) == len(expected) * p.units


@pytest.mark.parametrize(("seed", "token"), [(0, 2), (1, 31), (2, 32), (3, 101)])
def test_values_are_multiplied_by_refills_of_probabilities(seed: int, token: int) -> None:
    """Registers hold 32 probabilities; a set of zero points has 16 tokens; one sum over all."""
    p = replace(TINY, slots=128)
    both = seed % 2
    instruction = given(
        mode=Mode.PV.value, both=both, groups=1, rounds=1, inputs=[3, 90], sums=[10, 50]
    )
    trace = run(p, instruction, token, seed)
    columns = token // 4 + 1
    position, products, filled = LAYER + BASE, [], []
    for column in range(columns):
        if column % 4 == 0:
            filled.append(position)
            position += 1
        ends = (column == 0, column == columns - 1)
        products.append((position, column % 8, column % 4, *ends))
        position += 1
    if columns % 4 == 0:
        # The set ends with the product.
        filled = filled[: columns // 4]
    assert [one["position"] for one in trace.of(Op.FILL_METADATA)][: len(filled)] == filled
    got = [
        (one["position"], one["step"], one["group"], *map(bool, one["bounds"]))
        for one in trace.of(Op.MULTIPLY)
    ]
    assert got == products
    units = p.head_size // p.elements
    check_sums(p, trace, [[10, 50]], both=bool(both), units=units)


def linear_columns(instruction: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Rounds of groups: special values for eight, scales for two, columns.

    Two units share the groups of each tile in the last round of a `shared` product.
    """
    expected, position = [], LAYER + BASE
    for round_ in range(instruction["rounds"]):
        shared = instruction["shared"] and round_ == instruction["rounds"] - 1
        groups = -(-instruction["groups"] // 2) if shared else instruction["groups"]
        for group in range(groups):
            fills = [Op.FILL_METADATA] * (group % 8 == 0) + [Op.FILL_SCALES] * (group % 2 == 0)
            for fill in fills:
                expected.append((fill, position))
                position += 1
            for step in range(instruction["steps"]):
                flags = (step == 0, step == instruction["steps"] - 1)
                ends = (group == 0, group == groups - 1)
                expected.append((Op.MULTIPLY, position, group % 8, *flags, *ends))
                position += 1
    return expected


def check_inputs(p: P3llmParameters, trace: Trace, instruction: dict[str, Any]) -> None:
    """Replay the registers of the lower and the upper units: each column has its inputs."""
    a_word = p.channel.unit.steps_a_word
    ring = p.channel.unit.steps // a_word
    registers: tuple[dict[int, int], dict[int, int]] = {}, {}
    # A round has one or two passes over the inputs.
    passes, pumps = 1 + instruction["twice"], 1 + instruction["both"]
    a_pass, column = instruction["groups"] * instruction["steps"] // passes, 0
    shared = -(-instruction["groups"] // 2) * instruction["steps"]
    whole = (instruction["rounds"] - instruction["shared"]) * passes * a_pass
    for one in trace.of(Op.WRITE_INPUT, Op.MULTIPLY):
        if one["operation"] is Op.WRITE_INPUT:
            for number, of_half in enumerate(registers):
                if not one["half"] or number == one["upper"]:
                    of_half[one["word"]] = one["address"]
            continue
        for pump, of_half in product(range(pumps), range(2)):
            own = column % a_pass
            if column >= whole:
                own = column - whole + of_half * shared
            # The upper units may have an empty group, whose inputs are any that are defined.
            if own >= a_pass:
                own -= shared
            wanted = instruction["inputs"][pump] + own // a_word
            assert registers[of_half][pump * ring + one["step"] // a_word] == wanted
        assert one["pump"] == instruction["both"]
        column += 1
    words = (whole + 2 * shared * instruction["shared"]) // a_word * pumps
    assert len(trace.of(Op.WRITE_INPUT)) == words


@pytest.mark.parametrize(
    ("seed", "groups", "rounds", "both", "shared"),
    [
        (0, 9, 3, 1, 0),
        (1, 1, 5, 1, 0),
        (2, 17, 2, 0, 0),
        (3, 4, 4, 1, 0),
        (4, 9, 3, 1, 1),
        (5, 4, 1, 0, 1),
        (6, 17, 2, 0, 1),
        (7, 1, 2, 1, 1),
    ],
)
def test_a_linear_layer_is_processed_round_by_round(
    seed: int, groups: int, rounds: int, both: int, shared: int
) -> None:
    instruction = given(groups=groups, rounds=rounds, steps=4, both=both, shared=shared)
    instruction |= {"inputs": [5, 90], "sums": [30, 400]}
    p = replace(LONG, batch=1 + both)
    trace = run(p, instruction, 9, seed)
    got = [
        (one["operation"], one["position"])
        + (one["operation"] is Op.MULTIPLY)
        * (one["group"], *map(bool, one["bounds"]), bool(one["begins"]), bool(one["ends"]))
        for one in trace.of(*FILLS)
    ]
    assert got == linear_columns(instruction)
    check_inputs(p, trace, instruction)
    check_totals(p, trace, instruction)


@pytest.mark.parametrize(
    ("seed", "groups", "rounds", "both"), [(0, 8, 3, 1), (1, 2, 5, 1), (2, 18, 2, 0)]
)
def test_both_weights_of_a_sum_have_the_same_inputs(
    seed: int, groups: int, rounds: int, both: int
) -> None:
    """Half of a round's groups, then the other half, with all inputs in each; one total."""
    p = replace(LONG, vocabulary_bits=8, batch=1 + both)
    instruction = given(groups=groups, rounds=rounds, steps=4, both=both, twice=1)
    instruction |= {"inputs": [5, 90], "sums": [30, 400]}
    trace = run(p, instruction, 9, seed)
    got = [
        (one["operation"], one["position"])
        + (one["operation"] is Op.MULTIPLY)
        * (one["group"], *map(bool, one["bounds"]), bool(one["begins"]), bool(one["ends"]))
        for one in trace.of(*FILLS)
    ]
    assert got == linear_columns(instruction)
    check_inputs(p, trace, instruction)
    check_totals(p, trace, instruction)


def check_totals(p: P3llmParameters, trace: Trace, instruction: dict[str, Any]) -> None:
    """Require that a round's totals are read when complete and before the next ones."""
    ends = [
        cycle
        for cycle, one in trace.commands
        if one["operation"] is Op.MULTIPLY and one["bounds"][1] and one["ends"]
    ]
    reads = [(c, one) for c, one in trace.commands if one["operation"] is Op.READ_RESULT]
    pumps = 1 + instruction["both"]
    parts = ((1, 0), (0, 0), (0, 1))
    order = [(*one, *part) for one in product(range(p.units), range(pumps)) for part in parts]
    assert len(ends) == instruction["rounds"]
    assert len(reads) == len(ends) * len(order)
    for number, end in enumerate(ends):
        mine = reads[number * len(order) : (number + 1) * len(order)]
        assert mine[0][0] >= end + TOTALS_COMPLETE
        assert number + 1 == len(ends) or mine[-1][0] < ends[number + 1]
        shared = instruction["shared"] and number == len(ends) - 1
        for (_cycle, one), (index, pump, high, upper) in zip(mine, order, strict=True):
            # Both units of a tile are read one after the other.
            unit = index // 2 + index % 2 * (p.units // 2) if shared else index
            tile, added = (index // 2, index % 2) if shared else (index, 0)
            assert (one["bank"] >> 1, one["pump"], one["high"], one["upper"]) == (
                unit,
                pump,
                high,
                upper,
            )
            assert one["total"]
            assert (one["tag_wide"], one["tag_high"]) == (1, high)
            # The NPU tracks the first request's totals; the others are read between them.
            assert one["tag_final"] == (pump == 0 and added == shared)
            assert (one["tag_part"], one["tag_added"]) == (shared and not added, added)
            assert one["tag_pump"] == pump
            assert high or one["tag_upper"] == upper
            place = instruction["sums"][pump] + 2 * (number * p.units + tile) + upper
            assert high or one["tag_place"] == place
