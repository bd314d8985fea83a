"""P3-LLM's operand decoders: proved against tables computed again from the paper."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from golden.p3llm.pim.operand_decoder import input_operands, real, weight_operands
from hdl.p3llm.pim.operand_decoder import FRACTION_BITS, InputDecoder, Mode, WeightDecoder
from testbenches.arith.equivalence import prove_equivalent
from testbenches.arith.step import run_steps

E4M3_ONE, S0E4M4_ONE = 9, 18
"""Fraction bits of a significand with shift 0."""

MODES = [*Mode, 3]
"""The undefined encoding behaves as `Mode.QK`."""


def e4m3(code: int) -> Fraction | None:
    """Return the value by the library's table; None for a NaN."""
    value = float(np.array(code, np.uint8).view(ml_dtypes.float8_e4m3fn))
    return None if np.isnan(value) else Fraction(value)


def s0e4m4(code: int) -> Fraction:
    """Return the value by the paper's definition: four mantissa bits, FP16's lower exponents."""
    exponent, mantissa = divmod(code, 16)
    if exponent == 0:
        return Fraction(mantissa, 16) * Fraction(1, 1 << 14)
    return (1 + Fraction(mantissa, 16)) * Fraction(2) ** (exponent - 15)


def half_units(code: int, select: int) -> int:
    """Return a BitMoD number times two: FP4 E2M1, and one special value for the negative zero."""
    if code == 8:
        return (10, -10, 16, -16)[select]
    magnitude = (0, 1, 2, 3, 4, 6, 8, 12)[code % 8]
    return -magnitude if code > 8 else magnitude


def weight(mode: Mode | int, code: int, bits: int) -> int:
    return half_units(code, bits % 4) if mode is Mode.LINEAR else code - bits


def number(mode: Mode | int) -> int:
    return mode.value if isinstance(mode, Mode) else mode


def test_weight_decoder_is_proved() -> None:
    lines = "".join(
        f"{{2'd{number(mode)}, 4'd{code}, 4'd{bits}}}: result = {weight(mode, code, bits)};\n"
        for mode in MODES
        for code in range(16)
        for bits in range(16)
    )
    prove_equivalent(
        WeightDecoder(),
        f"""
        module specification(
            input [1:0] mode, input [3:0] code, input [3:0] group_bits,
            output reg signed [5:0] result
        );
          always @* case ({{mode, code, group_bits}}) {lines} endcase
        endmodule
        """,
    )


def operand(mode: Mode | int, code: int) -> tuple[int, int, int]:
    """Return significand, shift and NaN flag that reproduce the value, the shift the smallest."""
    value = s0e4m4(code) if mode is Mode.PV else e4m3(code)
    if value is None:
        return 0, (code >> 3 & 15) - 1, 1
    units = value * (1 << (S0E4M4_ONE if mode is Mode.PV else E4M3_ONE))
    assert units.denominator == 1
    significand, shift = units.numerator, 0
    while abs(significand) > (31 if mode is Mode.PV else 15):
        significand, shift = significand // 2, shift + 1
    assert significand << shift == units
    return significand, shift, 0


def test_input_decoder_is_proved() -> None:
    lines = ""
    for mode in MODES:
        for code in range(256):
            significand, shift, nan = operand(mode, code)
            lines += f"{{2'd{number(mode)}, 8'd{code}}}: begin significand = {significand};"
            lines += f" shift = {shift}; nan = {nan}; end\n"
    prove_equivalent(
        InputDecoder(),
        f"""
        module specification(
            input [1:0] mode, input [7:0] code, output reg signed [5:0] significand,
            output reg [3:0] shift, output reg nan
        );
          always @* case ({{mode, code}}) {lines} endcase
        endmodule
        """,
    )


@pytest.mark.parametrize("mode", Mode)
def test_models_and_binary_points(mode: Mode) -> None:
    """For every code and weight, the model's product is the exact fraction."""
    codes = np.arange(256)
    significand, shift, nan = input_operands(np.array(mode.value), codes)
    for code in codes:
        assert (significand[code], shift[code], nan[code]) == operand(mode, int(code))
    steps = run_steps(
        InputDecoder(stages=1, enable=True), {"mode": np.full(256, mode.value), "code": codes}
    )
    assert list(steps["significand"]) == list(significand) and list(steps["shift"]) == list(shift)
    grid = [(code, bits) for code in range(16) for bits in range(16)]
    weights = weight_operands(np.array(mode.value), *np.array(grid).T)
    assert list(weights) == [weight(mode, code, bits) for code, bits in grid]
    half = Fraction(1, 2) if mode is Mode.LINEAR else Fraction(1)
    for code in range(256):
        value = s0e4m4(code) if mode is Mode.PV else e4m3(code)
        if value is None:
            continue
        for number_ in sorted(set(weights)):
            integer = int(significand[code] * number_) << int(shift[code])
            assert Fraction(integer, 1 << FRACTION_BITS[mode]) == value * number_ * half
            assert real(mode, np.array(integer)) == float(value * number_ * half)
