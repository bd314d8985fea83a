"""Both elements compute the measured work correctly."""

from pathlib import Path

import numpy as np

from golden.p3llm.pim.pim_processing_element import finished
from testbenches.multiply_energy import (
    OUTPUTS,
    PUMPS,
    TERMS,
    half_precision,
    half_precision_operands,
    low_precision,
    low_precision_cycles,
)
from testbenches.packing import to_integers


def test_low_precision_sums_equal_the_model(tmp_path: Path) -> None:
    cycles = low_precision_cycles()
    expected, known = finished(PUMPS, cycles)
    _files, _waves, bits = low_precision().simulate(tmp_path)
    got = np.array(to_integers(bits), np.uint32).astype(np.int32)
    numbers = np.flatnonzero(known)
    numbers = numbers[numbers < len(got)]
    assert cycles.work[: OUTPUTS * TERMS // 4 * PUMPS].all()
    assert len(numbers) > OUTPUTS * PUMPS
    assert np.array_equal(got[numbers], expected[numbers])


def test_half_precision_sums_equal_the_products(tmp_path: Path) -> None:
    """Three interleaved sums of a token and output add up to its dot product, in FP32."""
    element = half_precision()
    _files, _waves, bits = element.simulate(tmp_path)
    sums = np.array(to_integers(bits), np.uint32).view(np.float32).astype(np.float64)
    weights, inputs = (values.astype(np.float64) for values in half_precision_operands())
    exact = (weights @ inputs.T).reshape(-1)
    # A product enters a sum after five cycles: factors, product, three adder stages.
    ends = np.arange(1, OUTPUTS * PUMPS) * TERMS + 5 - 1
    found = sums[ends] + sums[ends - 1] + sums[ends - 2]
    largest = np.abs(weights).max() * np.abs(inputs).max()
    assert np.allclose(found, exact[: len(ends)], rtol=0, atol=largest * TERMS * 2.0**-22)
    assert np.abs(exact).max() > 1e3 * largest * TERMS * 2.0**-22
