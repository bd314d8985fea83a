"""Orders of floating-point codes: model against Python's floats, hardware against the model."""

import math
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, Value
from amaranth.sim import Simulator

from golden.arith import float_order as model
from hdl.arith import float_order as hardware
from hdl.arith.float_format import (
    BINARY16,
    BINARY32,
    FP8_E4M3FN,
    FP8_S0E4M4,
    FloatFormat,
    Specials,
)

SMALL = {
    "e3m2": FloatFormat(exponent_bits=3, mantissa_bits=2, bias=3),
    "e5m2": FloatFormat(exponent_bits=5, mantissa_bits=2, bias=15),
    "e4m3fn": FP8_E4M3FN,
    "e2m3": FloatFormat(exponent_bits=2, mantissa_bits=3, bias=1, specials=Specials.NONE),
}
"""Signed formats of at most 8 bits, with each kind of special values."""

formats = pytest.mark.parametrize("number_format", SMALL.values(), ids=SMALL)


def every(number_format: FloatFormat) -> np.ndarray:
    return np.arange(1 << number_format.width)


def number(number_format: FloatFormat, code: int) -> float:
    """Return the value of a code, computed from its fields by Python's integers and floats."""
    magnitude = code & number_format.magnitude_mask
    exponent, mantissa = divmod(magnitude, 1 << number_format.mantissa_bits)
    ieee = number_format.specials is Specials.IEEE and exponent == number_format.exponent_mask
    only = number_format.specials is Specials.NAN_ONLY and magnitude == number_format.magnitude_mask
    if only or (ieee and mantissa):
        value = math.nan
    elif ieee:
        value = math.inf
    else:
        hidden = (exponent > 0) << number_format.mantissa_bits
        power = max(exponent, 1) - number_format.bias - number_format.mantissa_bits
        value = math.ldexp(hidden | mantissa, power)
    return math.copysign(value, -1.0 if code & number_format.sign_mask else 1.0)


def totally_less(a: float, b: float) -> bool:
    """Return the total order of two numbers or infinities."""
    return a < b or (a == b and math.copysign(1, a) < math.copysign(1, b))


@formats
def test_model_orders_all_pairs_as_floats_do(number_format: FloatFormat) -> None:
    codes = every(number_format).tolist()
    numbers = [number(number_format, code) for code in codes]
    total = model.total_order(number_format, codes).tolist()
    keys = model.number_order(number_format, codes).tolist()
    for a, b in product(codes, repeat=2):
        x, y = numbers[a], numbers[b]
        if math.isnan(x):
            # Below every number, and equal to every other NaN.
            assert (keys[a] < keys[b]) == (not math.isnan(y))
            beyond = total[a] > total[b] if math.copysign(1, x) > 0 else total[a] < total[b]
            assert beyond or math.isnan(y)
        elif not math.isnan(y):
            assert (keys[a] < keys[b], keys[a] == keys[b]) == (x < y, x == y)
            assert (total[a] < total[b]) == totally_less(x, y)
    assert sorted(total) == codes


@pytest.mark.parametrize("number_format", [BINARY16, BINARY32], ids=["binary16", "binary32"])
def test_model_sorts_as_numpy_does(number_format: FloatFormat) -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 1 << number_format.width, 20_000, dtype=np.uint64)
    numbers = number_format.decode(codes)
    order = np.argsort(model.number_order(number_format, codes), kind="stable")
    nans = np.isnan(numbers)
    ranked = numbers[order]
    assert np.isnan(ranked[: nans.sum()]).all()
    assert np.array_equal(ranked[nans.sum() :], np.sort(numbers[~nans]))


def outputs(width: int, inputs: Iterable[tuple[int, ...]], *functions: Any) -> list[list[int]]:
    """Return the results of functions of one or two values, for each tuple of inputs."""
    inputs = list(inputs)
    ports = [Signal(width, name=f"port_{i}") for i in range(len(inputs[0]))]
    m = Module()
    results = []
    for function in functions:
        value = Value.cast(function(*ports))
        results.append(Signal(value.shape(), name=f"result_{len(results)}"))
        m.d.comb += results[-1].eq(value)
    found: list[list[int]] = []

    async def bench(context: Any) -> None:
        for item in inputs:
            for port, value in zip(ports, item, strict=True):
                context.set(port, value)
            found.append([context.get(result) for result in results])

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    return found


@formats
def test_hardware_is_the_model_for_every_code(number_format: FloatFormat) -> None:
    codes = every(number_format)
    keys = model.number_order(number_format, codes)
    got = np.array(
        outputs(
            number_format.width,
            ((code,) for code in codes.tolist()),
            hardware.total_order,
            lambda code: hardware.total_order_code(hardware.total_order(code)),
            lambda code: hardware.number_order(number_format, code),
            lambda code: hardware.is_nan(number_format, code),
            lambda code: hardware.number_order_code(
                number_format, hardware.number_order(number_format, code)
            ),
        )
    )
    assert np.array_equal(got[:, 0], model.total_order(number_format, codes))
    assert np.array_equal(got[:, 1], codes)
    assert np.array_equal(got[:, 2], keys)
    nans = np.isnan(number_format.decode(codes))
    assert np.array_equal(got[:, 3], nans)
    expected = np.where(codes == number_format.sign_mask, 0, codes)
    assert np.array_equal(got[:, 4], np.where(nans, number_format.quiet_nan or 0, expected))
    constants = [hardware.number_order_key(number_format, code) for code in codes.tolist()]
    assert constants == keys.tolist()


def test_hardware_compares_all_pairs_in_the_total_order() -> None:
    number_format = SMALL["e3m2"]
    total = model.total_order(number_format, every(number_format))
    pairs = [(a, b) for a, b in product(every(number_format).tolist(), repeat=2) if a != b]
    got = outputs(number_format.width, pairs, hardware.total_order_less)
    assert [bool(less) for (less,) in got] == [bool(total[a] < total[b]) for a, b in pairs]


def test_unsigned_formats_have_no_order() -> None:
    with pytest.raises(ValueError, match="number_format must be a signed floating-point format"):
        hardware.require_signed("number_format", FP8_S0E4M4)
