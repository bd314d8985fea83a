"""Test the array's model against float64 and plain sums, its parameters, its emitted modules."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.arith.float_add import float_add
from golden.veda.array.flexible_pe_array import inner_products, multiply, outer_product, run
from hdl.arith.float_format import BINARY16, BINARY32, FP8_E4M3FN, FP29
from hdl.catalog import entry_named
from hdl.emit import Emission, write_verilog
from hdl.veda.array.array_parameters import FlexiblePeArrayParameters
from testbenches.veda.array import array_work as work

ENTRY = entry_named("flexible_pe_array")
PAPER: FlexiblePeArrayParameters = ENTRY.parameters("paper")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 6}, "rows must be a power of two between 2 and 16, not 6"),
        ({"columns": 32}, "columns must be a power of two between 2 and 16, not 32"),
        ({"planes": 3}, "planes must be an integer from 1 to 2, not 3"),
        ({"sum_format": FP8_E4M3FN}, "sum_format must be FP16 or hold every product"),
        ({"multiply_stages": 1}, "multiply_stages must be an integer from 2 to 3, not 1"),
        ({"add_stages": 5}, "add_stages must be an integer from 2 to 4, not 5"),
        ({"partial_sums": 33}, "partial_sums must be a power of two between 2 and 1024, not 33"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FlexiblePeArrayParameters(**change)


@pytest.mark.parametrize("sum_format", [FP29, BINARY32, BINARY16], ids=["fp29", "fp32", "fp16"])
def test_sums_are_added_in_the_order_of_the_paper(sum_format: Any) -> None:
    p = FlexiblePeArrayParameters(rows=2, columns=8, sum_format=sum_format)
    rng = np.random.default_rng(1)
    vector, weights = (work.codes(rng.normal(size=(1, p.width))) for _ in range(2))

    def add(a: Any, b: Any) -> Any:
        return float_add(sum_format, a, b).item()

    product = multiply(sum_format, vector, weights)[0]
    rows = []
    for first in range(0, p.width, 8):
        one, two, three, four, five, six, seven, eight = product[first : first + 8]
        half = add(add(one, two), add(three, four))
        rows.append(add(half, add(add(five, six), add(seven, eight))))
    planes = [add(rows[0], rows[1]), add(rows[2], rows[3])]
    split = inner_products(p, vector, weights, np.array([1]))[0]
    assert split.tolist() == planes
    whole = inner_products(p, vector, weights, np.array([0]))[0]
    assert whole[0] == add(*planes)


def test_short_row_adds_oldest_partial_sums_first() -> None:
    """Test one to four elements: the oldest partial sums are added first."""
    p = FlexiblePeArrayParameters(rows=2, columns=2)
    scalars = np.tile(work.codes(np.array([1.0, 2.0**-11, 2.0**-11, -1.0])), (p.planes, 1)).T
    ones = np.full((4, p.width), BINARY16.one, np.uint64)
    expected = [1.0, 1.0 + 2.0**-11, 1.0 + 2.0**-10, 2.0**-10]
    for count, value in enumerate(expected, start=1):
        row = outer_product(p, scalars[:count], ones[:count])
        assert row.tolist() == [int(work.codes(np.array([value]))[0])] * p.width


def worst(p: FlexiblePeArrayParameters, length: int) -> tuple[float, float]:
    """Return the largest errors of scores and of weighted sums, relative to ``sum(|products|)``.

    The error is that before the last rounding to FP16, against float64 on the same FP16 operands.
    """
    heads = work.real_heads(p.width, length, 6)
    score_error = sum_error = 0.0
    for head in heads:
        keys, values = work.codes(head.keys), work.codes(head.values)
        vector = np.repeat(work.codes(head.query)[np.newaxis], length, axis=0)
        products = BINARY16.decode(vector) * BINARY16.decode(keys)
        sums = inner_products(p, vector, keys, np.zeros(length, np.uint64))[:, 0]
        error = np.abs(p.sum_format.decode(sums) - products.sum(axis=1))
        score_error = max(score_error, float(np.max(error / np.abs(products).sum(axis=1))))

        scalars = np.repeat(work.codes(head.probabilities)[:, np.newaxis], p.planes, axis=1)
        terms = BINARY16.decode(scalars[:, :1]) * BINARY16.decode(values)
        row = BINARY16.decode(outer_product(p, scalars, values))
        # The rounding to FP16 is not an error of the sum.
        rounding = np.abs(row) * 2.0**-11 + 2.0**-25
        error = np.maximum(np.abs(row - terms.sum(axis=0)) - rounding, 0)
        sum_error = max(sum_error, float(np.max(error / np.abs(terms).sum(axis=0))))
    return score_error, sum_error


def test_error_is_within_the_stated_bound() -> None:
    """Test the contract's bound on real heads of size 128 with 256 cached tokens."""
    length = 256
    score_error, sum_error = worst(PAPER, length)
    assert 0 < score_error <= (PAPER.levels + 2) * 2.0**-22
    assert sum_error <= (length / PAPER.add_stages + PAPER.add_stages) * 2.0**-22


def test_fp16_sums_have_larger_errors() -> None:
    score_error, _sum_error = worst(FlexiblePeArrayParameters(sum_format=BINARY16), 64)
    assert score_error > 100 * worst(PAPER, 64)[0]


def test_weighted_sums_follow_the_model_of_attention() -> None:
    """Scores and sums of a whole decode step equal those of float64 apart from FP16's rounding."""
    heads = work.real_heads(PAPER.width, 64, 2)
    outcome = run(PAPER, work.attention(PAPER, heads, split=False))
    dots = BINARY16.decode(np.array(outcome.dot_products))[:, 0].reshape(2, 64)
    rows = BINARY16.decode(np.array(outcome.results))
    for head, scores, row in zip(heads, dots, rows, strict=True):
        np.testing.assert_allclose(scores, head.keys @ head.query, rtol=2e-3, atol=2e-2)
        np.testing.assert_allclose(row, head.probabilities @ head.values, rtol=2e-3, atol=2e-3)


def test_array_has_one_module_per_pe_type(tmp_path: Path) -> None:
    files = write_verilog(Emission(top=ENTRY.build("paper"), name="array"), tmp_path / "rtl")
    elements = [file.stem for file in files if file.stem.startswith("processing_element")]
    assert len(elements) == 2
    top = (tmp_path / "rtl" / "array.v").read_text()
    for module in elements:
        assert len(re.findall(rf"^  {module} element_\d+_\d+_\d+ \($", top, re.M)) == 64
