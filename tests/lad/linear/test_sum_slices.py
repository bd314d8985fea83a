"""Slices of sums: the model against queues, and the parameters' rules."""

import re
from typing import Any

import numpy as np
import pytest

from golden.lad.linear.sum_slices import sum_slices
from hdl.catalog import entry_named
from hdl.lad.catalog import PAPER, SMOLLM2, TINY, TINY_PAIRS, TINY_TURNS
from hdl.lad.control.program import LayerProgram
from hdl.lad.instructions import instruction_layout
from hdl.lad.linear.sum_slices import SumSlicesParameters
from hdl.lad.parameters import LadParameters


def queued(sums: np.ndarray, rest: int, head_size: int) -> list[list[int]]:
    """Return a layer's slices from queues, one per sample, cut when a slice is complete."""
    groups, batch, _units = sums.shape
    queues: list[list[int]] = [[] for _ in range(batch)]
    # The elements after the last sums are kept separately.
    behind: list[list[int]] = [[] for _ in range(batch)]
    for group, transfers in enumerate(sums.tolist()):
        for sample, transfer in enumerate(transfers):
            count = rest if group == groups - 1 else len(transfer)
            queues[sample] += transfer[:count]
            behind[sample] = transfer[count:]
    slices = []
    while queues[0]:
        for sample, queue in enumerate(queues):
            one, queues[sample] = queue[:head_size], queue[head_size:]
            missing = head_size - len(one)
            one += behind[sample][:missing]
            slices.append(one + [0] * (head_size - len(one)))
    return slices


@pytest.mark.parametrize(("units", "head_size", "batch"), [(7, 4, 2), (3, 4, 3), (5, 16, 1)])
def test_slices_are_those_of_queues(units: int, head_size: int, batch: int) -> None:
    rng = np.random.default_rng(units)
    for groups in range(1, 9):
        for rest in range(1, units + 1):
            sums = rng.integers(0, 1 << 16, (groups, batch, units), np.uint16)
            expected = queued(sums, rest, head_size)
            assert sum_slices(sums, rest, head_size).tolist() == expected


def test_slices_by_hand() -> None:
    """Two samples, three sums per transfer, two or one in the last; slices of four."""
    sums = np.array([[[1, 2, 3], [11, 12, 13]], [[4, 5, 9], [14, 15, 19]]], np.uint16)
    four = [[1, 2, 3, 4], [11, 12, 13, 14], [5, 9, 0, 0], [15, 19, 0, 0]]
    assert sum_slices(sums, 2, 4).tolist() == four
    assert sum_slices(sums, 1, 4).tolist() == four[:2]


def test_presets_are_those_of_layers() -> None:
    entry = entry_named("sum_slices")
    assert entry.parameters("tiny") == TINY.sum_slices
    assert entry.parameters("smollm2") == SMOLLM2.sum_slices
    assert entry.parameters("paper") == SumSlicesParameters() == PAPER.sum_slices


@pytest.mark.parametrize("p", [TINY, TINY_TURNS, TINY_PAIRS, SMOLLM2, PAPER])
def test_sums_of_layers_fill_their_slices(p: LadParameters) -> None:
    """The slices therefore contain nothing but sums."""
    program, own = LayerProgram(p), p.sum_slices
    counts = set()
    for instruction, bits in zip(program.instructions, program.table, strict=True):
        if instruction.outputs:
            line: Any = instruction_layout(p).from_bits(bits)
            assert 1 <= line.row_groups <= own.groups and 1 <= line.rest <= own.units
            count = (line.row_groups - 1) * own.units + line.rest
            assert count == instruction.outputs * own.head_size
            counts.add(line.row_groups)
    assert max(counts) == own.groups


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"units": 1}, "units must be an integer from 2 to 16, not 1"),
        ({"head_size": 257}, "head_size must be an integer from 2 to 256, not 257"),
        ({"batch": 0}, "batch must be an integer from 1 to 64, not 0"),
        ({"groups": 131073}, "groups must be an integer from 1 to 131072, not 131073"),
    ],
)
def test_illegal_parameters_are_rejected(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        SumSlicesParameters(**changes)
