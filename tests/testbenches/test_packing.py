"""Packing equals Amaranth's own layout constants, and unpacking inverts it."""

import numpy as np
import pytest
from amaranth.hdl import Const, signed
from amaranth.lib import data
from hypothesis import given
from hypothesis import strategies as st

from testbenches.packing import from_integers, pack, to_integer, to_integers, unpack

LANE = data.StructLayout({"score": signed(7), "index": 12, "flag": 1})
WIDE = data.ArrayLayout(LANE, 5)
lanes = st.fixed_dictionaries(
    {"score": st.integers(-64, 63), "index": st.integers(0, 4095), "flag": st.integers(0, 1)}
)


@given(st.lists(st.lists(lanes, min_size=5, max_size=5), min_size=1, max_size=4))
def test_packing_equals_amaranth(rows: list[list[dict[str, int]]]) -> None:
    arrays = {
        name: np.array([[lane[name] for lane in row] for row in rows])
        for name in ("score", "index", "flag")
    }
    bits = pack(WIDE, arrays)
    integers = to_integers(bits)
    for row, integer in zip(rows, integers, strict=True):
        constant = Const.cast(WIDE.const(row))
        assert integer == constant.value
    assert to_integer(bits[0]) == integers[0]
    back = unpack(WIDE, from_integers(integers, WIDE.size))
    for name, array in arrays.items():
        assert np.array_equal(back[name], array)


def test_rejects_values_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"must be from -64 to 63, not 64"):
        pack(signed(7), np.array([0, 64]))


def test_rejects_unknown_fields() -> None:
    with pytest.raises(ValueError, match="fields must be"):
        pack(LANE, {"score": np.array([1])})
