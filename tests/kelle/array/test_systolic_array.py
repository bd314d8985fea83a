"""The array's model compared with integer sums, its parameters, bounds of sums, and its modules."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden.kelle.array.systolic_array import combined, split_bytes, tiles
from hdl.catalog import entry_named
from hdl.emit import Emission
from hdl.kelle.array.systolic_array import Moving, SystolicArray, SystolicArrayParameters
from hdl.stream.skew_buffer import SkewBuffer

ENTRY = entry_named("systolic_array")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 12}, "rows must be a power of two between 2 and 64, not 12"),
        ({"rows": 128}, "rows must be a power of two between 2 and 64, not 128"),
        ({"bands": 3}, "bands must be a power of two between 1 and 64, not 3"),
        ({"bands": 64}, "bands must be at most rows = 32, not 64"),
        ({"moving": "wide"}, "moving must be one of .*, not 'wide'"),
        ({"tag_width": 0}, "tag_width must be an integer from 1 to 64, not 0"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SystolicArrayParameters(**change)


def test_rejects_illegal_skew_buffers() -> None:
    with pytest.raises(ValueError, match="lanes must be an integer from 1 to 64, not 0"):
        SkewBuffer(shape=8, lanes=0)
    with pytest.raises(ValueError, match="step must be an integer from 1 to 64, not 65"):
        SkewBuffer(shape=8, lanes=2, step=65)


@pytest.mark.parametrize("moving", Moving)
@pytest.mark.parametrize("rows", [2, 4, 8, 16, 32, 64])
def test_every_sum_fits_its_width(moving: Moving, rows: int) -> None:
    """The largest products of every kind, `rows` times, in element and result."""
    p = SystolicArrayParameters(rows=rows, bands=1, moving=moving)
    bits = p.element_shape.width
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    sums = [rows * a * w for a in (low, high) for w in (-128, 127, 255)]
    bound = 1 << p.sum_shape.width - 1
    assert all(-bound <= total < bound for total in sums)
    # The top bit is needed: the extreme sums do not fit one bit fewer.
    assert min(sums) < -bound // 2
    if moving is Moving.TWO_PASS:
        link = 1 << p.link_sum_width - 1
        assert rows * 255 * 255 < link and -link <= rows * -128 * 255


def test_dimensions_of_the_paper() -> None:
    p = SystolicArrayParameters()
    assert p.load_cycles == 8
    assert p.sum_shape.width == p.link_sum_width == 29
    assert p.latency == 34


@given(
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_passes_make_the_product(
    inputs: int, outputs: int, vectors: int, transposed: bool, wide: bool, seed: int
) -> None:
    """Tile passes of any shapes, by bytes, add up to the product in Python integers."""
    p = SystolicArrayParameters(rows=4, bands=2)
    rng = np.random.default_rng(seed)
    bound = 1 << 15 if wide else 1 << 7
    matrix = rng.integers(-bound, bound, (inputs, outputs))
    moving = rng.integers(-(1 << 15), 1 << 15, (vectors, inputs))
    stationary = matrix.T if transposed else matrix
    for first, passes in tiles(stationary, moving, p, transposed=transposed, wide=wide):
        got = combined(passes)
        for v in range(vectors):
            for lane in range(p.rows):
                j = first + lane
                exact = (
                    sum(int(moving[v, i]) * int(matrix[i, j]) for i in range(inputs))
                    if j < outputs
                    else 0
                )
                assert got[v, lane] == exact
        for item in passes:
            low, high = (0, 255) if item.unsigned_weights else (-128, 127)
            assert item.weights.min() >= low and item.weights.max() <= high


@given(st.integers(-(1 << 15), (1 << 15) - 1))
def test_bytes_make_the_value(value: int) -> None:
    upper, lower = split_bytes(np.array(value))
    assert -128 <= upper <= 127 and 0 <= lower <= 255
    assert 256 * upper + lower == value


def test_there_is_one_element_in_the_verilog() -> None:
    """All elements are instances of one module; with the skew buffers there are five modules."""
    unit = SystolicArray(parameters=SystolicArrayParameters(rows=8, bands=2))
    modules = Emission(top=unit, name=ENTRY.top).modules
    names = [module.name for module in modules]
    assert len(names) == 5
    assert sum(name.startswith("processing_element") for name in names) == 1
    assert modules[-1].rtlil.count("cell \\processing_element_16_27 ") == 64
