"""Each fault in the special functions is found by the unit's simulation."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, simulation_finds

SOFTMAX = "hdl/kelle/softmax.py"
BUFFER = "hdl/kelle/row_buffer.py"
NORM = "hdl/kelle/rms_norm.py"
ACTIVATION = "hdl/kelle/activation_functions.py"
ROTARY = "hdl/kelle/rotary_embedding.py"
FAULTS = [
    (
        "softmax",
        Fault(
            "the maximum is rounded down",
            SOFTMAX,
            ".as_signed() + fraction.any())",
            ".as_signed())",
        ),
    ),
    (
        "softmax",
        Fault(
            "a larger maximum does not correct the sum",
            SOFTMAX,
            "total >> growth[:5])",
            "total)",
        ),
    ),
    (
        "softmax",
        Fault(
            "the last row's maximum is kept",
            SOFTMAX,
            "Mux(begins | (peak > running), peak, running)",
            "Mux(peak > running, peak, running)",
        ),
    ),
    (
        "softmax",
        Fault(
            "scores that are not kept take part in the sum",
            SOFTMAX,
            "Mux(scores.keep[i], power(scores.values[i], maximum), 0)",
            "power(scores.values[i], maximum)",
        ),
    ),
    (
        "softmax",
        Fault(
            "earlier slices keep their own maximum",
            SOFTMAX,
            "(buffer.result.maximum - buffer.tag)",
            "(buffer.result.maximum - buffer.result.maximum)",
        ),
    ),
    (
        "softmax",
        Fault(
            "small powers wrap instead of vanishing",
            SOFTMAX,
            "Mux(distance[4:].any(), 0, mantissa >> distance[:4])",
            "mantissa >> distance[:4]",
        ),
    ),
    (
        "softmax",
        Fault(
            "the reciprocal may reach its exact value",
            "hdl/kelle/reciprocal.py",
            "(start + correction - 1)",
            "(start + correction)",
        ),
    ),
    (
        "softmax",
        Fault(
            "a place is free before its data is read",
            BUFFER,
            "slices + self.take - (self.valid & self.enable)",
            "slices + self.take - read",
        ),
    ),
    (
        "softmax",
        Fault(
            "slices are taken without room",
            BUFFER,
            "(slices != self.depth) & (rows != self.rows)",
            "(rows != self.rows)",
        ),
    ),
    (
        "softmax",
        Fault(
            "more rows are let in than there is room for",
            BUFFER,
            "(slices != self.depth) & (rows != self.rows)",
            "(slices != self.depth)",
        ),
    ),
    (
        "rms_norm",
        Fault(
            "epsilon of the row's other slices counts",
            NORM,
            "Mux(flags[0], epsilon, total) + addend",
            "Mux(flags[0], 0, total) + epsilon + addend",
        ),
    ),
    (
        "rms_norm",
        Fault(
            "odd exponents are taken for even",
            NORM,
            "place.eq(Cat(fraction, exponent[0]))",
            "place.eq(fraction)",
        ),
    ),
    (
        "rms_norm",
        Fault(
            "the second pass does not wait for the weights",
            NORM,
            "free & (~divided | self.weights.valid)",
            "free",
        ),
    ),
    (
        "rms_norm",
        Fault(
            "results wrap instead of saturating",
            NORM,
            "out.values[i].eq(clamped)",
            "out.values[i].eq(weighted >> p.drop)",
        ),
    ),
    (
        "activation_functions",
        Fault(
            "values beyond the table are looked up",
            ACTIVATION,
            "Mux(beyond, 0, magnitude[:table_bits])",
            "magnitude[:table_bits]",
        ),
    ),
    (
        "activation_functions",
        Fault(
            "GeLU is SiLU",
            ACTIVATION,
            "Cat(place, function)",
            "Cat(place, Const(0, 1))",
        ),
    ),
    (
        "rotary_embedding",
        Fault(
            "a quarter turns the other way",
            ROTARY,
            "Mux(quarters[0], -y, x), Mux(quarters[0], x, y)",
            "Mux(quarters[0], y, x), Mux(quarters[0], -x, y)",
        ),
    ),
    (
        "rotary_embedding",
        Fault(
            "the next vector goes on with this one's channels",
            ROTARY,
            "Mux(taken.last, 0, index + 1)",
            "index",
        ),
    ),
    (
        "rotary_embedding",
        Fault(
            "the angle is not rounded",
            ROTARY,
            "self.position * self.turn + (1 << self.position_bits - 1)",
            "self.position * self.turn",
        ),
    ),
]


@pytest.mark.full
@pytest.mark.parametrize(("top", "fault"), FAULTS, ids=lambda part: getattr(part, "meaning", part))
def test_fault_is_found(top: str, fault: Fault, tmp_path: Path) -> None:
    assert simulation_finds(faulty_copy(fault, tmp_path), top, "tiny")
