"""P3-LLM's processing element: its bounds proved, its model against fractions and `ml_dtypes`."""

import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Module, Mux, Signal, signed

from golden.p3llm.pim.operand_decoder import input_operands, real
from golden.p3llm.pim.pim_processing_element import dot_products, wrapped
from golden.p3llm.pim.real_operands import linear, probabilities_and_values, queries_and_keys
from hdl.p3llm.pim.dot_product import DotProduct
from hdl.p3llm.pim.operand_decoder import FRACTION_BITS, InputDecoder, Mode
from hdl.p3llm.pim.pim_processing_element import PimProcessingElementParameters
from testbenches.formal import AnySeq, Assert, Assume, prove

MAGNITUDE_BITS = 27
"""Bound of the sum of all inputs' magnitudes, below which no sum can overflow."""


def largest_magnitude(mode: Mode, codes: np.ndarray) -> int:
    """Return the largest ``abs(significand) << shift`` of some codes."""
    significand, shift, _nan = input_operands(np.array(mode.value), codes)
    return int((np.abs(significand) << shift).max())


def test_legal_sums_stay_below_the_proved_bound() -> None:
    """The assumptions of the proof hold for all codes and legal numbers of terms."""
    limit = 1 << MAGNITUDE_BITS
    for mode in (Mode.LINEAR, Mode.QK):
        assert largest_magnitude(mode, np.arange(256)) == 14 << 14
        assert 128 * largest_magnitude(mode, np.arange(256)) < limit
    # Probabilities of n tokens sum to 1; rounding adds a 32nd, or half a subnormal step each.
    one = 1 << FRACTION_BITS[Mode.PV]
    for tokens in (1, 4096, 1 << 19):
        assert one + one // 32 + tokens / 2 < limit
    # Any codes, as many as fill one input register.
    assert 128 * largest_magnitude(Mode.PV, np.arange(256)) < limit


class Lane(Elaboratable):
    """For any input and weight, the shifted product is within 16 times the input."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = DotProduct()
        m.submodules.decoder = decoder = InputDecoder()
        weight, magnitude, shift = Signal(signed(6)), Signal(5), Signal(4)
        product, placed, bound = unit.products[0], Signal(signed(26)), Signal(signed(26))
        m.d.comb += [
            decoder.mode.eq(AnySeq(2)),
            decoder.code.eq(AnySeq(8)),
            weight.eq(AnySeq(6)),
            # BitMoD covers -16 to 16, the other formats from -15 to 15.
            Assume((weight >= -16) & (weight <= 16)),
            unit.significands[0].eq(decoder.significand),
            unit.weights[0].eq(weight),
            unit.shifts[0].eq(shift),
            placed.eq(unit.words[0]),
            bound.eq(magnitude << (shift + 4)),
            Assert((product >= -(magnitude << 4)) & (product <= magnitude << 4)),
            Assert(shift <= 14),
            Assert((placed >= -bound) & (placed <= bound)),
            Assert(placed == product << shift),
        ]
        # The shift arrives one cycle after the significand, whose magnitude is stored.
        m.d.sync += [
            shift.eq(decoder.shift),
            magnitude.eq(Mux(decoder.significand < 0, -decoder.significand, decoder.significand)),
        ]
        return m


class Accumulation(Elaboratable):
    """Four words within 16 times their inputs: the running sum is within the bound of its inputs.

    The sum of the words is computed on integers; the simulation verifies that the adder's result
    equals it modulo ``2**32``.
    """

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = MAGNITUDE_BITS
        sum_, magnitude, ghost = Signal(signed(32)), Signal(bits), Signal(bits)
        step, total, after = Signal(signed(32)), Signal(signed(32)), Signal(bits + 1)
        begins = Signal()
        m.d.comb += [
            begins.eq(AnySeq(1)),
            step.eq(AnySeq(32)),
            magnitude.eq(AnySeq(bits)),
            Assume((step >= -(magnitude << 4)) & (step <= magnitude << 4)),
            after.eq(Mux(begins, 0, ghost) + magnitude),
            Assume(after < 1 << bits),
            total.eq(Mux(begins, 0, sum_) + step),
            # No bit is lost: the 33-bit sum equals the 32-bit sum.
            Assert(total == Mux(begins, 0, sum_) + step),
            Assert((sum_ >= -(ghost << 4)) & (sum_ <= ghost << 4)),
        ]
        m.d.sync += [sum_.eq(total), ghost.eq(after)]
        return m


@pytest.mark.parametrize("piece", [Lane, Accumulation])
def test_sums_never_overflow(piece: type[Elaboratable]) -> None:
    """At full width, without a bound on time: products and shifts, and induction over the sum."""
    prove(piece(), inputs=[], depth=2)


@pytest.mark.parametrize("mode", Mode)
def test_sums_are_those_of_fractions(mode: Mode) -> None:
    """Real operands: values by `ml_dtypes` and the format's definition, added as fractions."""
    operands = {
        Mode.LINEAR: lambda: linear(0, "q_proj", outputs=4, inputs=64, tokens=2),
        Mode.QK: lambda: queries_and_keys(14, 1, tokens=4, heads=2),
        Mode.PV: lambda: probabilities_and_values(29, 0, tokens=64, heads=2),
    }[mode]()
    specials = (5, -5, 8, -8)
    for codes, bits in zip(operands.codes[:4], operands.group_bits[:4], strict=True):
        if mode is Mode.LINEAR:
            table = codes.view(ml_dtypes.float4_e2m1fn).astype(float)
            weights = [
                Fraction(specials[select] if code == 8 else float(value))
                for code, value, select in zip(codes, table, bits, strict=True)
            ]
        else:
            weights = [
                Fraction(int(code) - int(bit)) for code, bit in zip(codes, bits, strict=True)
            ]
        for row in operands.inputs:
            if mode is Mode.PV:
                values = (row.astype(np.uint16) << 6).view(np.float16).astype(float)
            else:
                values = row.view(ml_dtypes.float8_e4m3fn).astype(float)
            exact = sum(Fraction(x) * w for x, w in zip(values, weights, strict=True))
            total = dot_products(np.array(mode.value), row, codes, bits)
            assert Fraction(int(total), 1 << FRACTION_BITS[mode]) == exact
            assert real(mode, total) == float(exact)
            assert wrapped(total) == total


def test_sums_wrap() -> None:
    assert list(wrapped(np.array([1 << 31, -(1 << 31) - 1, 5]))) == [-(1 << 31), (1 << 31) - 1, 5]


def test_rejects_illegal_parameters() -> None:
    message = "pumps must be an integer from 1 to 8, not 9"
    with pytest.raises(ValueError, match=re.escape(message)):
        PimProcessingElementParameters(pumps=9)
    with pytest.raises(ValueError, match=re.escape(message)):
        DotProduct(pumps=9)
