"""Round sequencer: its commands against an expected list and a replay of the registers."""

from dataclasses import replace
from typing import Any

import pytest

from hdl.p3llm.control.round_sequencer import RoundSequencer
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.pim_channel import ColumnOperation as Op
from hdl.p3llm.presets import PRESETS
from tests.p3llm.control.test_product_sequencer import BASE, LAYER, Trace, given, run

SCALED = replace(PRESETS["tiny_group_scaling"], intermediate_size=288, layers=1)
"""Parameters whose longest input has 18 groups."""
COMPLETE = 16
"""Cycles from the column that completes totals until a unit has them: 2 + 4 + 2 * 4 + 2."""
MORE = ("begins", "ends", "total", "high", "inputs")
FILLS = (Op.FILL_METADATA, Op.FILL_SCALES, Op.MULTIPLY)


def columns(said: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Rounds of groups: special values for eight, scales for two, columns."""
    expected, position = [], LAYER + BASE
    for _round in range(said["rounds"]):
        for group in range(said["outers"]):
            fills = [Op.FILL_METADATA] * (group % 8 == 0) + [Op.FILL_SCALES] * (group % 2 == 0)
            for fill in fills:
                expected.append((fill, position))
                position += 1
            for step in range(said["steps"]):
                flags = (step == 0, step == said["steps"] - 1)
                ends = (group == 0, group == said["outers"] - 1)
                expected.append((Op.MULTIPLY, position, group % 8, *flags, *ends))
                position += 1
    return expected


def check_inputs(p: P3llmParameters, trace: Trace, said: dict[str, Any]) -> None:
    """Replay the registers: each column has its inputs, of both requests."""
    a_word = p.channel.unit.steps_a_word
    ring = p.channel.unit.steps // a_word
    registers: dict[int, int] = {}
    a_round, column = said["outers"] * said["steps"], 0
    for one in trace.of(Op.WRITE_INPUT, Op.MULTIPLY):
        if one["operation"] is Op.WRITE_INPUT:
            registers[one["word"]] = one["address"]
            continue
        for pump in range(1 + said["both"]):
            wanted = said["inputs"][pump] + column % a_round // a_word
            assert registers[pump * ring + one["step"] // a_word] == wanted
        assert one["inputs"] == said["both"]
        column += 1
    words = a_round // a_word * (1 + said["both"]) * said["rounds"]
    assert len(trace.of(Op.WRITE_INPUT)) == words


@pytest.mark.parametrize(
    ("seed", "groups", "rounds", "both"), [(0, 9, 3, 1), (1, 1, 5, 1), (2, 17, 2, 0), (3, 4, 4, 1)]
)
def test_a_linear_layer_is_processed_round_by_round(
    seed: int, groups: int, rounds: int, both: int
) -> None:
    said = given(outers=groups, rounds=rounds, steps=4, both=both)
    said |= {"inputs": [5, 90], "sums": [30, 400]}
    trace = run(SCALED, said, 9, seed, RoundSequencer(parameters=SCALED), MORE)
    got = [
        (one["operation"], one["position"])
        + (one["operation"] is Op.MULTIPLY)
        * (one["group"], *map(bool, one["bounds"]), bool(one["begins"]), bool(one["ends"]))
        for one in trace.of(*FILLS)
    ]
    assert got == columns(said)
    check_inputs(SCALED, trace, said)
    check_totals(SCALED, trace, said)


def check_totals(p: P3llmParameters, trace: Trace, said: dict[str, Any]) -> None:
    """Require that a round's totals are read when complete and before the next ones."""
    ends = [
        cycle
        for cycle, one in trace.commands
        if one["operation"] is Op.MULTIPLY and one["bounds"][1] and one["ends"]
    ]
    reads = [(c, one) for c, one in trace.commands if one["operation"] is Op.READ_RESULT]
    pumps = 1 + said["both"]
    order = [
        (unit, pump, high, upper)
        for unit in range(p.units)
        for pump in range(pumps)
        for high, upper in ((1, 0), (0, 0), (0, 1))
    ]
    assert len(ends) == said["rounds"]
    assert len(reads) == len(ends) * len(order)
    for number, end in enumerate(ends):
        mine = reads[number * len(order) : (number + 1) * len(order)]
        assert mine[0][0] >= end + COMPLETE
        assert number + 1 == len(ends) or mine[-1][0] < ends[number + 1]
        for (_cycle, one), (unit, pump, high, upper) in zip(mine, order, strict=True):
            assert (one["bank"] >> 1, one["inputs"], one["high"], one["upper"]) == (
                unit,
                pump,
                high,
                upper,
            )
            assert one["total"]
            place = said["sums"][pump] + 2 * (number * p.units + unit) + upper
            assert high or one["tag_place"] == place
