"""BitMoD FP4: the specified table, the search rules by brute force, proof of the decoder."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from golden.arith.bitmod_fp4 import (
    CLIP_RATIOS,
    code_table,
    decode,
    quantise,
    quantise_scales,
    quantise_weighted,
)
from hdl.arith.bitmod_fp4 import BitmodFp4Decoder
from testbenches.arith.equivalence import prove_equivalent
from testbenches.arith.step import run_steps

POSITIVE = [0, 1, 2, 3, 4, 6, 8, 12]
SPECIAL = [10, -10, 16, -16]


def specified(code: int, select: int) -> int:
    """Return the specified half-units: sign, magnitude, and negative zero as special value."""
    if code == 8:
        return SPECIAL[select]
    return -POSITIVE[code - 8] if code > 8 else POSITIVE[code]


def test_decoder_is_proved() -> None:
    """Compare with the table, entry by entry."""
    lines = "".join(
        f"{{2'd{select}, 4'd{code}}}: result = {specified(code, select)};\n"
        for select in range(4)
        for code in range(16)
    )
    prove_equivalent(
        BitmodFp4Decoder(),
        f"""
        module specification(
            input [3:0] code, input [1:0] select_port, output reg signed [5:0] result
        );
          always @* case ({{select_port, code}}) {lines} endcase
        endmodule
        """,
    )


def test_model_and_registered_decoder() -> None:
    """Test all 64 inputs."""
    code, select = (grid.ravel() for grid in np.meshgrid(np.arange(16), np.arange(4)))
    expected = [specified(int(c), int(s)) for c, s in zip(code, select, strict=True)]
    assert list(decode(code, select)) == expected
    rtl = run_steps(BitmodFp4Decoder(stages=1, enable=True), {"code": code, "select": select})
    assert list(rtl["result"]) == expected
    assert (min(expected), max(expected)) == (-16, 16)


def brute_force(weights: np.ndarray) -> tuple[list[int], int]:
    """Quantise one group as specified, number by number, in exact arithmetic."""
    best = None
    exact = [Fraction(float(weight)) for weight in weights]
    for select in range(4):
        table = [Fraction(specified(code, select), 2) for code in range(16)]
        scale = Fraction(
            float(np.float32(np.abs(weights).max()) / np.float32(max(abs(t) for t in table)))
        )
        codes, error = [], Fraction(0)
        for weight in exact:
            # Nearest; ties resolve to the more negative value.
            code = min(range(16), key=lambda c: (abs(weight - table[c] * scale), table[c]))
            codes.append(code)
            error += (weight - table[code] * scale) ** 2
        if best is None or error < best[0]:
            best = error, codes, select
    assert best is not None
    return best[1], best[2]


def test_quantiser_follows_the_rules() -> None:
    """Test several kinds of groups; each special value must be selected by some."""
    random = np.random.default_rng(7)
    groups = random.normal(size=(120, 16)).astype(np.float32)
    groups[40:80] = np.round(groups[40:80] * 4) / 4
    groups[80:] = random.choice([-1, 0.25, 0.5, 5 / 6, -5 / 6, 2], (40, 16)).astype(np.float32)
    quantised = quantise(groups, group_size=16)
    for index, group in enumerate(groups):
        codes, select = brute_force(group)
        assert quantised.selects[index, 0] == select, index
        assert list(quantised.codes[index, 0]) == codes, index
    assert set(quantised.selects.ravel()) == {0, 1, 2, 3}


def test_ties_resolve_to_the_more_negative_value() -> None:
    """With a largest weight of 6 the scale is 1, so midpoints of the table are exact."""
    middles = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5])
    group = np.concatenate([[6.0, -6.0, 5.0, 5.0, 5.0, 5.0], middles, -middles])
    quantised = quantise(group, group_size=len(group))
    assert quantised.selects[0] == 0 and quantised.scales[0] == 1
    lower = [0, 0.5, 1, 1.5, 2, 3]
    upper_of_negative = [-0.5, -1, -1.5, -2, -3, -4]
    assert list(quantised.values()[0][6:]) == lower + upper_of_negative


def test_equal_errors_resolve_to_the_first_set() -> None:
    """+5 and -5 give the same error for a group that uses no special value; +5 is first."""
    group = np.array([6, -6, 4, 3, 2, 1.5, 1, 0.5])
    assert quantise(group, group_size=8).selects[0] == 0
    assert quantise(np.zeros(8), group_size=8).selects[0] == 0
    assert not quantise(np.zeros(8), group_size=8).values().any()


def test_every_special_value_can_be_selected() -> None:
    """A group of one set's values is exact with that set."""
    for select in range(4):
        numbers = code_table(select).astype(np.float32) / 2
        quantised = quantise(numbers * np.float32(0.125), group_size=16)
        assert quantised.selects[0] == select
        assert np.array_equal(quantised.values()[0], numbers * 0.125)


def test_scales_are_quantised_per_row() -> None:
    scales = np.array([[0.0, 1.0, 2.55, 0.005], [0, 0, 0, 0]], np.float32)
    codes, row = quantise_scales(scales)
    assert list(codes[0][:3]) == [0, 100, 255]
    assert not codes[1].any()
    assert (np.abs(codes * row - scales) <= row * 0.5001).all()


def weighted_brute_force(
    weights: np.ndarray, importance: np.ndarray
) -> tuple[list[int], int, float]:
    """Search one group for the smallest weighted error, number by number, in exact arithmetic."""
    best = None
    exact = [Fraction(float(weight)) for weight in weights]
    powers = [Fraction(float(power)) for power in importance]
    for ratio in CLIP_RATIOS:
        for select in range(4):
            table = [Fraction(specified(code, select), 2) for code in range(16)]
            top = np.float32(max(abs(number) for number in table))
            scale = np.abs(weights).max() / top * np.float32(ratio)
            codes, error = [], Fraction(0)
            for weight, power in zip(exact, powers, strict=True):
                distances = [abs(weight - number * Fraction(float(scale))) for number in table]
                code = min(range(16), key=lambda c: (distances[c], table[c]))
                codes.append(code)
                error += power * distances[code] ** 2
            if best is None or error < best[0]:
                best = error, codes, select, float(scale)
    assert best is not None
    return best[1:]


def test_weighted_search_finds_the_smallest_error() -> None:
    """The exact search chooses the same scale, special value and codes, group by group."""
    random = np.random.default_rng(11)
    weights = random.standard_t(4, size=(8, 5, 12)).astype(np.float32)
    importance = random.exponential(size=(5, 12)) ** 2
    found = quantise_weighted(weights.reshape(8, -1), importance.ravel(), group_size=12)
    for row, group in np.ndindex(8, 5):
        codes, select, scale = weighted_brute_force(weights[row, group], importance[group])
        assert found.scales[row, group] == scale, (row, group)
        assert found.selects[row, group] == select, (row, group)
        assert list(found.codes[row, group]) == codes, (row, group)
    assert set(found.selects.ravel()) == {0, 1, 2, 3}
    clipped = np.abs(weights).max(-1) / found.scales
    assert ((clipped > 6) & (found.selects < 2)).any()


def test_weighted_error_is_at_most_that_of_plain_rounding() -> None:
    """Plain rounding's choice is one of the candidates, for rows of several blocks."""
    random = np.random.default_rng(3)
    weights = random.normal(size=(700, 96)).astype(np.float32)
    importance = random.exponential(size=96) ** 3
    importance[:7] = 0

    def errors(values: np.ndarray) -> np.ndarray:
        squares = (values.reshape(700, 6, 16).astype(np.float64) - weights.reshape(700, 6, 16)) ** 2
        return (importance.reshape(6, 16) * squares).sum(-1)

    found = errors(quantise_weighted(weights, importance, group_size=16).values())
    plain = errors(quantise(weights, group_size=16).values())
    assert (found <= plain).all()
    assert found.sum() < 0.9 * plain.sum()


def test_weighted_search_without_clipping_and_weighting_is_plain_rounding() -> None:
    weights = np.random.default_rng(5).normal(size=(40, 64)).astype(np.float32)
    weights[3] = 0
    found = quantise_weighted(weights, np.ones(64), group_size=16, ratios=(1.0,))
    wanted = quantise(weights, group_size=16)
    for name, part in vars(wanted).items():
        assert np.array_equal(getattr(found, name), part), name


@pytest.mark.parametrize(
    ("importance", "options", "message"),
    [
        (np.ones(8), {"group_size": 3}, "group_size must divide 8 inputs, not 3"),
        (np.ones(7), {}, r"importance must have the shape \(8,\), not \(7,\)"),
        (-np.ones(8), {}, "importance must be finite and at least 0"),
        (np.full(8, np.nan), {}, "importance must be finite and at least 0"),
        (np.ones(8), {"ratios": ()}, r"ratios must be above 0 and at most 1, not \(\)"),
        (np.ones(8), {"ratios": (0.0,)}, r"ratios must be above 0 and at most 1, not \(0.0,\)"),
    ],
)
def test_rejects_weighted_search_that_is_illegal(
    importance: np.ndarray, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        quantise_weighted(np.ones((2, 8)), importance, **{"group_size": 4, **options})


def test_group_size_must_divide() -> None:
    with pytest.raises(ValueError, match="group_size must divide 100 inputs, not 128"):
        quantise(np.zeros((3, 100)))
