"""Conversions between the NPU's number formats, under any pauses, against numpy and the models."""

from typing import Any

import numpy as np
import pytest

from golden.arith.float_to_fixed import float_to_fixed
from golden.arith.float_values import codes
from golden.p3llm.npu.block_fixed import block_fixed
from hdl.p3llm.npu.block_fixed import BlockFixed, BlockFixedParameters
from hdl.p3llm.npu.number_lanes import FixedLanes, HalfLanes, SingleLanes
from hdl.p3llm.npu.result_scaler import ResultScaler, ResultScalerParameters
from hdl.target import Target, writing_for
from testbenches.packing import pack, to_integers
from testbenches.stream_trial import check_streams

LANES = 2
RNG = np.random.default_rng(5)


def packed(stream: Any, fields: dict[str, np.ndarray]) -> list[int]:
    """Return payloads of a stream, one a row."""
    full = {name: fields.get(name) for name, _field in stream.payload.shape()}
    count = len(next(iter(fields.values())))
    for name, field in stream.payload.shape():
        if full[name] is None:
            shape = (count, LANES) if hasattr(field.shape, "length") else (count,)
            full[name] = np.zeros(shape, np.int64)
    return to_integers(pack(stream.payload.shape(), full))


def bits(numbers: np.ndarray) -> np.ndarray:
    """Return the codes of float32."""
    return numbers.astype(np.float32).view(np.uint32).astype(np.int64)


def lasts(count: int, every: int) -> np.ndarray:
    return (np.arange(count) % every == every - 1).astype(np.int64)


@pytest.mark.parametrize("spare", [0, 1])
def test_a_vector_has_one_binary_point(spare: int) -> None:
    """Vectors of 2 to 6 slices, of all sizes; zeros and subnormal numbers among them."""
    unit = BlockFixed(parameters=BlockFixedParameters(lanes=LANES, slices=6))
    vectors = [RNG.normal(size=2 * n) * 2.0 ** RNG.integers(-40, 40) for n in (2, 3, 6, 4, 2)]
    vectors += [np.zeros(4), np.array([2.0**-127, 0, -(2.0**-130), 0])]
    given, expected = [], []
    for vector in vectors:
        singles = vector.astype(np.float32)
        raw, point = block_fixed(singles[np.newaxis], spare=spare)
        count = len(singles) // LANES
        last = lasts(count, count)
        fields = {"values": bits(singles).reshape(-1, LANES), "last": last}
        given += packed(unit.vectors, fields | {"spare": np.full(count, spare)})
        fields = {"values": raw.reshape(-1, LANES), "last": last}
        expected += packed(unit.results, fields | {"point": np.full(count, point[0])})
    check_streams(unit, {"vectors": given}, {"results": expected}, seeds=range(2))


def test_sums_become_numbers() -> None:
    """Three roundings: the sum, the factor by the common factor, and their product."""
    unit = ResultScaler(parameters=ResultScalerParameters(lanes=LANES))
    sums = RNG.integers(-(1 << 47), 1 << 47, (16, LANES)) >> RNG.integers(0, 47, (16, LANES))
    factors = RNG.normal(size=(16, LANES)).astype(np.float16)
    common, point = np.float32(0.0123), 9
    last = lasts(16, 8)
    # Of 48 bits, float64 is exact; its rounding to binary32 is the only one.
    singles = np.ldexp(sums.astype(np.float64), -point).astype(np.float32)
    numbers = singles * (factors.astype(np.float32) * common)
    given = {"sums": sums & (1 << 48) - 1, "last": last}
    given["factors"] = factors.view(np.uint16).astype(np.int64)

    def stands(ctx: Any, _received: Any) -> None:
        ctx.set(unit.common.as_value(), int(common.view(np.uint32)))
        ctx.set(unit.point, point)

    expected = packed(unit.results, {"values": bits(numbers), "last": last})
    sources = {"slices": packed(unit.slices, given)}
    # Multipliers made of gates are slow in this simulator.
    with writing_for(Target.FPGA):
        check_streams(unit, sources, {"results": expected}, seeds=range(2), cycle=stands)


def test_half_precision_is_rounded_once() -> None:
    """Integers with a binary point and binary32 by turns; halves of a step among them."""
    unit = HalfLanes(lanes=LANES)
    whole = RNG.integers(0, 2, 20)
    integers = RNG.integers(-(1 << 16), 1 << 16, (20, LANES))
    point = RNG.integers(0, 24, 20)
    singles = RNG.normal(size=(20, LANES)).astype(np.float32)
    singles[::3] = np.float16(singles[::3]).astype(np.float32) * np.float32(1 + 2.0**-11)
    exact = np.where(whole[:, np.newaxis], np.ldexp(integers, -point[:, np.newaxis]), singles)
    last = lasts(20, 4)
    given = {"whole": whole, "integers": integers, "point": point, "last": last}
    given["singles"] = bits(singles)
    expected = {"values": codes(exact).astype(np.int64), "last": last}
    sources = {"slices": packed(unit.slices, given)}
    check_streams(unit, sources, {"results": packed(unit.results, expected)}, seeds=range(2))


def test_fixed_point_saturates() -> None:
    unit = FixedLanes(lanes=LANES)
    singles = (RNG.normal(size=(20, LANES)) * 2.0 ** RNG.integers(-12, 8, (20, 1))).astype(
        np.float32
    )
    last = lasts(20, 4)
    raw = float_to_fixed(singles, 10)
    assert abs(raw).max() >= (1 << 15) - 1
    sources = {"slices": packed(unit.slices, {"values": bits(singles), "last": last})}
    expected = packed(unit.results, {"values": raw, "last": last})
    check_streams(unit, sources, {"results": expected}, seeds=range(2))


def test_sums_and_products_are_those_of_float32() -> None:
    """Both by turns: each slice says which it is."""
    unit = SingleLanes(lanes=LANES)
    multiply = RNG.integers(0, 2, 20)
    values, addends = RNG.normal(size=(2, 20, LANES)).astype(np.float32)
    factors = RNG.integers(-(1 << 15), 1 << 15, (20, LANES))
    products = values * (factors / 1024).astype(np.float32)
    numbers = np.where(multiply[:, np.newaxis], products, values + addends)
    last = lasts(20, 4)
    given = {"multiply": multiply, "values": bits(values), "addends": bits(addends)}
    sources = {"slices": packed(unit.slices, given | {"factors": factors, "last": last})}
    expected = packed(unit.results, {"values": bits(numbers), "last": last})
    with writing_for(Target.FPGA):
        check_streams(unit, sources, {"results": expected}, seeds=range(2))
