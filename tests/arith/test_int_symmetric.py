"""Symmetric integers: range, scale and error of the quantiser."""

import numpy as np
import pytest

from golden.arith.int_symmetric import quantise


@pytest.mark.parametrize("bits", [8, 16])
def test_range_and_error(bits: int) -> None:
    """The largest magnitude becomes the largest integer; the error is at most half a step."""
    values = np.random.default_rng(bits).normal(size=(50, 64)).astype(np.float32)
    values[3] = 0
    integers, scales = quantise(values, bits=bits)
    limit = (1 << (bits - 1)) - 1
    assert integers.dtype == (np.int8 if bits == 8 else np.int16)
    largest = np.abs(integers.astype(int)).max(axis=-1)
    assert set(np.delete(largest, 3)) == {limit}
    assert scales[3, 0] == 1 and not integers[3].any()
    error = np.abs(integers.astype(np.float64) * scales - values)
    assert (error <= scales * (0.5 + 2.0**-8)).all()


def test_ties_resolve_to_even() -> None:
    """With a largest magnitude of 127 the scale is 1."""
    integers, scales = quantise(np.array([127, 0.5, 1.5, 2.5, -0.5, -1.5]), axis=None)
    assert scales.item() == 1
    assert list(integers) == [127, 0, 2, 2, 0, -2]


def test_bits_out_of_range() -> None:
    with pytest.raises(ValueError, match="bits must be an integer from 2 to 16, not 17"):
        quantise(np.zeros(3), bits=17)
