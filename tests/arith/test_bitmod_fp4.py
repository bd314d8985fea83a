"""BitMoD FP4: the specified table, the search rules by brute force, proof of the decoder."""

from fractions import Fraction

import numpy as np
import pytest

from golden.arith.bitmod_fp4 import code_table, decode, quantise, quantise_scales
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


def test_group_size_must_divide() -> None:
    with pytest.raises(ValueError, match="group_size must divide 100 inputs, not 128"):
        quantise(np.zeros((3, 100)))
