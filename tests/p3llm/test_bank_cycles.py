"""Cycles by cause: a trace of the banks' commands whose causes are known."""

from collections import Counter

import numpy as np
import pytest

from hdl.catalog import entry_named
from hdl.p3llm.parameters import P3llmParameters
from systola.comparing.bank_cycles import Bits, Causes, regions

pytestmark = pytest.mark.depends("p3llm")

TINY: P3llmParameters = entry_named("p3llm").parameters("tiny")
BANKS = TINY.channel.timing.banks
EVEN, ODD = (sum(1 << bank for bank in range(parity, BANKS, 2)) for parity in range(2))


def trace(cycles: int, commands: dict[int, dict[str, int]]) -> Bits:
    """Return the bits of each cycle's command."""
    layout = TINY.channel.bank_command_layout
    bits = np.zeros((cycles, layout.size), np.uint8)
    for cycle, fields in commands.items():
        for name, value in fields.items():
            field = layout[name]
            bits[cycle, field.offset : field.offset + field.width] = [
                value >> bit & 1 for bit in range(field.width)
            ]
    return bits


def test_each_cycle_has_the_cause_of_its_pause_or_column() -> None:
    names = [name for _end, name in regions(TINY, lm_head=False)]
    ends = [end for end, _name in regions(TINY, lm_head=False)]
    first = ends[names.index("qkv") - 1]
    assert first < 30 and ends[names.index("qkv")] > 34
    bits = trace(
        60,
        {
            2: {"activate": EVEN, "row": 0},
            10: {"read": EVEN, "column": 30},
            12: {"read": EVEN, "column": 31},
            20: {"refresh": EVEN | ODD},
            30: {"activate": ODD, "row": 0},
            # Row 0 of the odd banks follows row 0 of the even ones.
            40: {"read": ODD, "column": 0},
            50: {"write": ODD & -ODD, "column": 1},
        },
    )
    found = Causes(TINY).of(bits, 0)
    assert found == Counter(
        {
            ("pause in which a row is opened", "begin to qkv"): 10,
            ("columns of all units", "qkv"): 6,
            ("refresh of all banks", "qkv"): 26,
            ("other pause", "qkv"): 8,
            ("single columns", "qkv"): 1,
            ("other pause", "qkv to end"): 9,
        }
    )


def test_a_layer_continues_with_the_open_rows_of_the_layer_before() -> None:
    causes = Causes(TINY)
    causes.of(trace(4, {0: {"activate": EVEN, "row": 1}}), 0)
    # Row 1 of the even banks has the positions from 64 on.
    (cause,) = (
        name
        for name, cycles in causes.of(trace(2, {0: {"read": EVEN, "column": 5}}), 0).items()
        if cycles
    )
    assert cause == ("columns of all units", "qkv")


@pytest.mark.parametrize("lm_head", [False, True])
def test_regions_ascend(lm_head: bool) -> None:
    ends = [end for end, _name in regions(TINY, lm_head=lm_head)]
    assert ends == sorted(set(ends))
