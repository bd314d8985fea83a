"""FP8 S0E4M4: the specified table, all FP16 inputs against exact rationals, and a proof."""

from bisect import bisect_right
from fractions import Fraction

import numpy as np
import pytest

from golden.arith import fp8_s0e4m4
from hdl.arith.float_format import BINARY16, FP8_S0E4M4
from hdl.arith.fp8_s0e4m4 import Round, S0e4m4Encoder, S0e4m4Operand
from testbenches.arith.bank import run_bank
from testbenches.arith.equivalence import prove_equivalent

FP16 = np.arange(1 << 16, dtype=np.uint16)
CODES = np.arange(1 << 8, dtype=np.uint8)
TWO = 0x4000
ONE = 0x3C00


def rational_encode(bits: int, round: Round) -> int:
    """Select one of two adjacent codes by exact distances."""
    value = BINARY16.to_fraction(bits)
    below = bisect_right(VALUES, value) - 1
    if below == len(VALUES) - 1 or round is Round.TRUNC:
        return below
    to_below, to_above = value - VALUES[below], VALUES[below + 1] - value
    if to_below != to_above:
        return below + (to_above < to_below)
    return below + (round is Round.HALF_UP or below % 2)


VALUES = [FP8_S0E4M4.to_fraction(code) for code in range(256)]


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (0x00, 0),
        (0x01, Fraction(1, 2**18)),
        (0x0F, Fraction(15, 2**18)),
        (0x10, Fraction(1, 2**14)),
        (0xEF, Fraction(31, 32)),
        (0xF0, 1),
        (0xFF, Fraction(31, 16)),
    ],
)
def test_specified_code_table(code: int, value: Fraction) -> None:
    """Test the format, the decoder and the operand decoder."""
    assert FP8_S0E4M4.to_fraction(code) == value
    fp16 = int(fp8_s0e4m4.decode(np.array([code]))[0])
    assert BINARY16.to_fraction(fp16) == value
    significand, shift = fp8_s0e4m4.operand(np.array([code]))
    assert Fraction(int(significand[0])) * Fraction(2) ** int(shift[0] - 18) == value


@pytest.mark.parametrize("round", Round)
def test_encoder_model_is_exact_rounding(round: Round) -> None:
    """Test all FP16 numbers in [0, 2)."""
    expected = [rational_encode(bits, round) for bits in range(TWO)]
    assert np.array_equal(fp8_s0e4m4.encode(FP16[:TWO], round), expected)


def test_half_up_and_rne_differ_on_120_of_15361() -> None:
    """They differ for the ties in [0, 1] with an even code below."""
    probabilities = FP16[: ONE + 1]
    assert len(probabilities) == 15361
    half_up = fp8_s0e4m4.encode(probabilities, Round.HALF_UP)
    assert (half_up != fp8_s0e4m4.encode(probabilities, Round.RNE)).sum() == 120


def test_outside_the_range() -> None:
    """Numbers from 1.96875 on, infinities and NaNs give 0xFF; negative numbers give 0."""
    for round in (Round.HALF_UP, Round.RNE):
        assert set(fp8_s0e4m4.encode(FP16[0x3FE0:0x8000], round)) == {0xFF}
    assert fp8_s0e4m4.encode(FP16[0x3FDF:0x3FE0])[0] == 0xFF
    assert set(fp8_s0e4m4.encode(FP16[0x4000:0x8000], Round.TRUNC)) == {0xFF}
    for round in Round:
        assert not fp8_s0e4m4.encode(FP16[0x8000:], round).any()


def test_rtl_equals_model_on_all_inputs() -> None:
    """Test three rounding rules, with and without a register, and the operand decoder."""
    encoders = {
        f"{round.name.lower()}_{stages}": (round, stages) for round in Round for stages in (0, 1)
    }
    operators = {
        name: S0e4m4Encoder(round=round, stages=stages)
        for name, (round, stages) in encoders.items()
    }
    results = run_bank(
        operators | {"operand": S0e4m4Operand()},
        {name: {"a": FP16} for name in operators} | {"operand": {"a": CODES}},
    )
    for name, (round, _) in encoders.items():
        assert np.array_equal(results[name]["result"], fp8_s0e4m4.encode(FP16, round)), name
    significand, shift = fp8_s0e4m4.operand(CODES)
    assert np.array_equal(results["operand"]["significand"], significand)
    assert np.array_equal(results["operand"]["shift"], shift)


INCREMENT = {
    Round.HALF_UP: "a[5]",
    Round.RNE: "(a[5:0] > 32) || (a[5:0] == 32 && a[6])",
    Round.TRUNC: "1'b0",
}


@pytest.mark.parametrize("round", Round)
def test_encoder_is_proved(round: Round) -> None:
    """Compare with the definition for all inputs."""
    prove_equivalent(
        S0e4m4Encoder(round=round),
        f"""
        module specification(input [15:0] a, output reg [7:0] result);
          wire [9:0] rounded = a[14:6] + ({INCREMENT[round]});
          always @* begin
            if (a[15]) result = 0;
            else if (rounded > 255) result = 255;
            else result = rounded;
          end
        endmodule
        """,
    )


def test_rejects_a_rounding_that_is_no_enum() -> None:
    """The constructor accepts only members of `Round`."""
    with pytest.raises(ValueError, match=r"round must be one of .* not 'rne'"):
        S0e4m4Encoder(round="rne")  # pyright: ignore[reportArgumentType]
