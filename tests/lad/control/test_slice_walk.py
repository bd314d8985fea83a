"""Address generator: the model against loops that add, and the parameters' rules."""

import re

import numpy as np
import pytest

from golden.lad.control.slice_walk import LOOPS, slice_walk
from hdl.lad.control import slice_walk as hardware
from hdl.lad.control.slice_walk import SliceWalkParameters


def test_places_are_those_of_loops_that_add() -> None:
    """Addresses are in the order of the loops, modulo their range."""
    walk = {
        "base": 13,
        "outer": {"rounds": 3, "stride": 9},
        "middle": {"rounds": 2, "stride": 1},
        "inner": {"rounds": 2, "stride": 6},
    }
    expected, outer = [], 13
    for a in range(3):
        middle = outer
        for b in range(2):
            inner = middle
            for c in range(2):
                expected.append((inner % 32, b, c == 1, (a, b, c) == (2, 1, 1)))
                inner += 6
            middle += 1
        outer += 9
    assert np.array_equal(slice_walk(walk, 5), np.array(expected, np.int64))
    assert any(address < 13 for address, *_flags in expected)


def test_model_and_hardware_name_the_same_loops() -> None:
    assert LOOPS == hardware.LOOPS


@pytest.mark.parametrize("bits", [1, 25])
def test_illegal_bits_are_rejected(bits: int) -> None:
    message = f"bits must be an integer from 2 to 24, not {bits}"
    with pytest.raises(ValueError, match=re.escape(message)):
        SliceWalkParameters(bits=bits)
