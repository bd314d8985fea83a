"""Product sequencer: its commands against a list derived from the layout of the banks."""

import random
from dataclasses import replace
from typing import Any

import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator

from hdl.p3llm.control.product_sequencer import ProductSequencer
from hdl.p3llm.instructions import memory_instruction
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_channel import ColumnOperation as Op
from hdl.p3llm.presets import PRESETS

TINY = PRESETS["tiny"]
BASE, LAYER = 77, 2048
COMPLETE = 6
"""Cycles from the column that completes sums until a unit has them."""


def linear(p: P3llmParameters, said: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Groups, then sets of eight rounds: special values, scales of two rounds, columns."""
    expected, position, side = [], LAYER + BASE, 0
    for outer in range(said["outers"]):
        words = -(-4 * said["steps"] // p.word)
        first = said["inputs"][0] + outer * words
        expected += [("input", first + i, i) for i in range(words)]
        for start in range(0, said["rounds"], 8):
            rounds = range(start, min(start + 8, said["rounds"]))
            expected.append(("metadata", position))
            position, side = position + 1, 1 - side
            for pair in range(-(-len(rounds) // 2)):
                places = [(side * 4 + pair) * p.units + unit for unit in range(p.units)]
                expected.append(("scales", position, places))
                position += 1
            for round_ in rounds:
                for step in range(said["steps"]):
                    ends = (step == 0, step == said["steps"] - 1)
                    expected.append(("multiply", position, step, round_ % 8, *ends))
                    position += 1
                scales = [(side * 4 + round_ % 8 // 2) * p.units + unit for unit in range(p.units)]
                expected.append(("sums", outer, round_, scales))
    for i in range(said["tail"]):
        expected.append(("numbers", position + i, said["columns"][0] + i * p.units))
    return expected


class Trace:
    """The sequencer's commands, grouped by position."""

    def __init__(self) -> None:
        self.commands: list[tuple[int, dict[str, Any]]] = []

    def of(self, *operations: Op) -> list[dict[str, Any]]:
        return [one for _cycle, one in self.commands if one["operation"] in operations]


def run(
    p: P3llmParameters,
    said: dict[str, Any],
    token: int,
    seed: int,
    sequencer: ProductSequencer | None = None,
    more: tuple[str, ...] = (),
) -> Trace:
    """Run a product; the scheduler accepts at random, but in the phase of a product."""
    unit, trace = sequencer or ProductSequencer(parameters=p), Trace()
    rng = random.Random(seed)
    names = ("bank", "column", "word", "step", "group", "upper", "advance", *more)

    async def bench(ctx) -> None:
        ctx.set(unit.layer, LAYER)
        ctx.set(unit.position, token)
        ctx.set(unit.instructions.payload, said)
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
                for name in ("scales", "scales_address", "numbers", "place"):
                    issued[name] = ctx.get(getattr(unit.reads, name))
                for name in ("place", "more", "final", "weighted", "scales", "part"):
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
    expected: list[tuple[list[int], bool]],
    *,
    both: bool,
    units: int,
) -> None:
    """Require that sums are read when complete and before the next ones, each to its place."""
    ends = [
        cycle
        for cycle, one in trace.commands
        if one["operation"] is Op.MULTIPLY and one["bounds"][1]
    ]
    reads = [(c, one) for c, one in trace.commands if one["operation"] is Op.READ_RESULT]
    size = 2 * units * (1 + both)
    assert len(reads) == size * len(ends) == size * len(expected)
    for number, (end, (places, more)) in enumerate(zip(ends, expected, strict=True)):
        mine = reads[number * size : (number + 1) * size]
        assert mine[0][0] >= end + COMPLETE
        following = ends[number + 1] if number + 1 < len(ends) else None
        assert following is None or mine[-1][0] < following
        order = [
            (u, pump, half) for u in range(units) for pump in range(1 + both) for half in (0, 1)
        ]
        for (_cycle, one), (u, pump, half) in zip(mine, order, strict=True):
            assert (one["bank"] >> 1, one["upper"]) == (u, half)
            assert one["tag_place"] == places[pump] + 2 * u + half
            assert one["tag_more"] == more
            # The second input's sums are output after the first one's.
            assert one["advance"] == (both and pump == 0 and half == 1)


@pytest.mark.parametrize("seed", range(3))
def test_a_linear_layer_is_processed_group_by_group(seed: int) -> None:
    """Two groups, 11 rounds: a set of eight and one of three."""
    p = TINY
    said = given(outers=2, rounds=11, steps=4, tail=2, inputs=[5, 0], sums=[30, 0], columns=[40, 0])
    trace = run(p, said, 9, seed)
    expected = linear(p, said)
    inputs = [(one["address"], one["word"]) for one in trace.of(Op.WRITE_INPUT)]
    assert inputs == [one[1:] for one in expected if one[0] == "input"]
    filled = [one["position"] for one in trace.of(Op.FILL_METADATA)]
    assert filled == [one[1] for one in expected if one[0] == "metadata"]
    products = [
        (one["position"], one["step"], one["group"], *map(bool, one["bounds"]))
        for one in trace.of(Op.MULTIPLY)
    ]
    assert products == [one[1:] for one in expected if one[0] == "multiply"]
    reads = trace.of(Op.READ)
    of_scales = [one for one in reads if one["scales"]]
    wanted = [one for one in expected if one[0] == "scales"]
    assert len(of_scales) == p.units * len(wanted)
    for number, (_kind, position, places) in enumerate(wanted):
        mine = of_scales[number * p.units : (number + 1) * p.units]
        assert {one["position"] for one in mine} == {position}
        assert sorted(one["scales_address"] for one in mine) == places
        assert all(one["scales_address"] % p.units == one["bank"] >> 1 for one in mine)
    numbers = [one for one in reads if one["numbers"]]
    assert len(numbers) == 2 * p.units
    assert sorted(one["place"] for one in numbers) == list(range(40, 40 + 2 * p.units))
    sums = [one for one in expected if one[0] == "sums"]
    places = [([30 + 2 * p.units * round_] * 2, outer > 0) for _, outer, round_, _ in sums]
    check_sums(p, trace, places, both=False, units=p.units)
    scaled = [one["tag_scales"] for one in trace.of(Op.READ_RESULT)][::2]
    assert scaled == [scale for one in sums for scale in one[3]]


@pytest.mark.parametrize("seed", range(2))
def test_two_requests_share_a_linear_layer(seed: int) -> None:
    """Both inputs of a group precede its columns; each column is read once, then sums of both."""
    p = replace(TINY, batch=2)
    said = given(outers=2, rounds=3, steps=4, both=1, inputs=[5, 50], sums=[30, 90])
    trace = run(p, said, 9, seed)
    words, halves = 4 * 4 // p.word, p.channel.unit.steps * 4 // p.word
    inputs = [
        (first + outer * words + i, pump * halves + i)
        for outer in range(2)
        for pump, first in enumerate(said["inputs"])
        for i in range(words)
    ]
    assert [(one["address"], one["word"]) for one in trace.of(Op.WRITE_INPUT)] == inputs
    positions = [one[1] for one in linear(p, said) if one[0] == "multiply"]
    assert [one["position"] for one in trace.of(Op.MULTIPLY)] == positions
    sums = [
        ([place + 2 * p.units * round_ for place in said["sums"]], outer > 0)
        for outer in range(2)
        for round_ in range(3)
    ]
    check_sums(p, trace, sums, both=True, units=p.units)
    # The NPU tracks the first request's sums of the last group; the others are read between them.
    followed = [one["tag_place"] for one in trace.of(Op.READ_RESULT) if one["tag_final"]]
    assert followed == list(range(30, 30 + 3 * 2 * p.units))


@pytest.mark.parametrize(("seed", "token"), [(0, 9), (1, 63), (2, 64), (3, 100)])
def test_keys_are_multiplied_by_one_or_two_queries(seed: int, token: int) -> None:
    """Sets of four rounds of tokens; scales of keys and of values are separate, once per head."""
    p = replace(TINY, slots=128)
    both, scaled = seed % 2, seed == 2
    said = given(mode=Mode.QK.value, both=both, scaled=scaled, outers=1)
    said |= {"inputs": [3, 8], "sums": [10, 50], "columns": [0, 64]}
    trace = run(p, said, token, seed)
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
    sums = [([10 + 2 * p.units * i, 50 + 2 * p.units * i], False) for i in range(rounds)]
    check_sums(p, trace, sums, both=bool(both), units=p.units)


@pytest.mark.parametrize(("seed", "token"), [(0, 2), (1, 31), (2, 32), (3, 101)])
def test_values_are_multiplied_by_refills_of_probabilities(seed: int, token: int) -> None:
    """Registers hold 32 probabilities; a set of zero points has 16 tokens; one sum over all."""
    p = replace(TINY, slots=128)
    both = seed % 2
    said = given(mode=Mode.PV.value, both=both, outers=1, rounds=1, inputs=[3, 90], sums=[10, 50])
    trace = run(p, said, token, seed)
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
    check_sums(p, trace, [([10, 50], False)], both=bool(both), units=units)
