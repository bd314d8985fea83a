"""Argmax: the model against numpy and Python's floats, the unit's order of lanes, its rules."""

import math
import re
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Value

from golden.nonlinear.argmax import argmax, argmax_of_slices
from hdl.arith.float_format import BINARY16, BINARY32, FP8_S0E4M4, FloatFormat
from hdl.nonlinear.argmax import Argmax, ArgmaxParameters
from testbenches.nonlinear.tb_argmax import KINDS, Row, sliced, special_pairs
from testbenches.packing import pack, to_integers
from testbenches.stream_trial import check_streams

FORMATS = {"integers": (9, None), "binary16": (16, BINARY16), "binary32": (32, BINARY32)}


def one_by_one(numbers: list[float]) -> tuple[int, float]:
    """Return the argmax by comparing Python's numbers; a NaN is replaced by any number."""
    index, best = 0, math.nan
    for place, number in enumerate(numbers):
        if number > best or (math.isnan(best) and not math.isnan(number)):
            index, best = place, number
    return index, best


@pytest.mark.parametrize("number_format", [BINARY16, BINARY32], ids=["binary16", "binary32"])
def test_argmax_of_finite_numbers_is_that_of_numpy(number_format: FloatFormat) -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        codes = rng.integers(0, 1 << number_format.width, 40, dtype=np.uint64)
        numbers = number_format.decode(codes)
        codes = codes[np.isfinite(numbers)]
        numbers = numbers[np.isfinite(numbers)]
        index, code = argmax(number_format, codes)
        assert index == numbers.argmax()
        assert number_format.decode(np.array(code)) == numbers.max()


@pytest.mark.parametrize("number_format", [BINARY16, BINARY32], ids=["binary16", "binary32"])
def test_argmax_of_all_codes_follows_the_rule(number_format: FloatFormat) -> None:
    rng = np.random.default_rng(2)
    p = ArgmaxParameters(width=number_format.width, number_format=number_format)
    for kind in KINDS * 60:
        codes = kind(p, rng, int(rng.integers(1, 12)))
        index, best = one_by_one(number_format.decode(codes).tolist())
        found, code = argmax(number_format, codes)
        assert found == index
        assert number_format.decode(np.array(code)) == best or math.isnan(best)
        assert not math.isnan(best) or code == number_format.quiet_nan
        assert code != number_format.sign_mask


@pytest.mark.parametrize(
    ("numbers", "index", "code"),
    [
        ([1, math.nan, 2, 3], 3, 0x4200),
        ([-0.0, 0.0], 0, 0x0000),
        ([-1, 0.0, -0.0], 1, 0x0000),
        ([2, 5, 5], 1, 0x4500),
        ([math.nan, -math.inf, math.nan], 1, 0xFC00),
        ([math.nan, math.nan], 0, 0x7E00),
        ([-(2**-24), 2**-24, 0], 1, 0x0001),
        ([65504, math.inf, math.inf], 1, 0x7C00),
    ],
)
def test_argmax_of_examples(numbers: list[float], index: int, code: int) -> None:
    codes = np.array(numbers, np.float16).view(np.uint16)
    assert argmax(BINARY16, codes) == (index, code)


@pytest.mark.parametrize("kind", FORMATS)
def test_argmax_of_slices_is_the_argmax_of_the_values_so_far(kind: str) -> None:
    width, number_format = FORMATS[kind]
    rng = np.random.default_rng(3)
    p = ArgmaxParameters(lanes=3, length=20, width=width, number_format=number_format)
    for draw in KINDS * 4:
        row = draw(p, rng, 20)
        slices = sliced(p, rng, [row], ordered=True)
        found = argmax_of_slices(p, slices)
        for number, end in enumerate([3, 6, 9, 12, 15, 18, 20]):
            if number_format is None:
                expected = int(row[:end].argmax()), int(row[:end].max())
            else:
                expected = argmax(number_format, row[:end])
            assert (found["index"][number], found["value"][number]) == expected


@pytest.mark.parametrize(
    ("lanes", "kind", "contexts"),
    [
        (1, "integers", 1),
        (1, "binary32", 3),
        (2, "binary16", 1),
        (3, "integers", 2),
        (5, "binary16", 1),
        (5, "binary32", 2),
        (8, "binary16", 5),
        (12, "binary16", 1),
        (12, "integers", 2),
    ],
)
def test_unit_equals_the_model_with_any_number_of_lanes(
    lanes: int, kind: str, contexts: int
) -> None:
    width, number_format = FORMATS[kind]
    p = ArgmaxParameters(
        lanes=lanes, length=30, width=width, number_format=number_format, contexts=contexts
    )
    rng = np.random.default_rng(lanes)
    check(p, rng, [draw(p, rng, int(rng.integers(1, 31))) for draw in KINDS * 2])


@pytest.mark.parametrize(("lanes", "kind"), [(1, "binary16"), (2, "binary16"), (3, "integers")])
def test_unit_equals_the_model_for_all_pairs_of_special_codes(lanes: int, kind: str) -> None:
    width, number_format = FORMATS[kind]
    p = ArgmaxParameters(lanes=lanes, length=8, width=width, number_format=number_format)
    check(p, np.random.default_rng(lanes), special_pairs(p), seeds=1)


def check(p: ArgmaxParameters, rng: np.random.Generator, rows: list[Row], seeds: int = 4) -> None:
    """Compare the unit with the model, with pauses, random payloads in them, and resets."""
    slices, unit = sliced(p, rng, rows), Argmax(parameters=p)

    def disturb(ctx: Any, _received: Any) -> None:
        if not ctx.get(unit.slices.valid):
            payload = Value.cast(unit.slices.payload)
            ctx.set(payload, int.from_bytes(rng.bytes(len(payload) // 8 + 1)) % (1 << len(payload)))

    check_streams(
        unit,
        {"slices": to_integers(pack(p.slice_layout, slices))},
        {"results": to_integers(pack(p.result_layout, argmax_of_slices(p, slices)))},
        seeds=range(seeds),
        cycle=disturb,
    )


@pytest.mark.parametrize(
    ("lanes", "length", "skewed", "bits", "latency"),
    [
        (1, 1, False, 1, 2),
        (2, 3, False, 2, 2),
        (3, 9, False, 4, 3),
        (7, 49152, False, 16, 4),
        (12, 13, False, 5, 5),
        (16, 49152, False, 16, 5),
        (4, 5, True, 3, 5),
    ],
)
def test_index_and_latency(lanes: int, length: int, skewed: bool, bits: int, latency: int) -> None:
    p = ArgmaxParameters(lanes=lanes, length=length, skewed=skewed)
    assert (p.index_bits, p.latency) == (bits, latency)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lanes": 65}, "lanes must be an integer from 1 to 64, not 65"),
        ({"length": 0}, "length must be an integer from 1 to 16777216, not 0"),
        ({"contexts": 0}, "contexts must be an integer from 1 to 64, not 0"),
        ({"number_format": BINARY16}, "number_format must have width's 32 bits"),
        (
            {"number_format": FP8_S0E4M4, "width": 8},
            "number_format must be a signed floating-point format",
        ),
    ],
)
def test_rejects_illegal_parameters(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ArgmaxParameters(**changes)
