"""Integer products and sums: all operands of small widths."""

from itertools import product as combinations

import numpy as np
import pytest
from amaranth.hdl import Module, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.carry_save_sum import CarrySaveSum, column_sum, product
from hdl.arith.prefix_sum import incremented, prefix_difference, prefix_sum
from hdl.target import Target, writing_for
from hdl.unit import Unit
from testbenches.arith.bulk import run_bulk

WIDEST = 7


class EveryWidth(Unit):
    """Products of all pairs of widths, and sums of all widths, of the low bits of two words."""

    def __init__(self, *, target: Target) -> None:
        self.target = target
        widths = range(1, WIDEST + 1)
        super().__init__(
            {"a": In(WIDEST), "b": In(WIDEST)}
            | {f"product_{one}_{two}": Out(one + two) for one in widths for two in widths}
            | {f"sum_{width}": Out(width + 1) for width in widths}
            | {f"incremented_{width}": Out(width) for width in widths}
            | {f"difference_{width}": Out(width) for width in widths}
            | {f"fits_{width}": Out(1) for width in widths}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with writing_for(self.target):
            self.add_outputs(m)
        return m

    def add_outputs(self, m: Module) -> None:
        for one in range(1, WIDEST + 1):
            a = self.a[:one]
            for two in range(1, WIDEST + 1):
                m.d.comb += getattr(self, f"product_{one}_{two}").eq(product(m, a, self.b[:two]))
            difference, fits = prefix_difference(m, a, self.b[:one])
            m.d.comb += [
                getattr(self, f"difference_{one}").eq(difference),
                getattr(self, f"fits_{one}").eq(fits),
                getattr(self, f"sum_{one}").eq(prefix_sum(m, a, self.b[:one])),
                getattr(self, f"incremented_{one}").eq(incremented(m, a, self.b[0])),
            ]


@pytest.mark.parametrize("target", Target)
def test_every_operand_of_every_width(target: Target) -> None:
    a, b = (words.ravel() for words in np.meshgrid(*[np.arange(1 << WIDEST)] * 2))
    results = run_bulk(EveryWidth(target=target), {"a": a, "b": b})
    low = {width: (1 << width) - 1 for width in range(1, WIDEST + 1)}
    for one, mask in low.items():
        for two, other in low.items():
            assert np.array_equal(results[f"product_{one}_{two}"], (a & mask) * (b & other))
        assert np.array_equal(results[f"sum_{one}"], (a & mask) + (b & mask))
        assert np.array_equal(results[f"difference_{one}"], ((a & mask) - (b & mask)) & mask)
        assert np.array_equal(results[f"fits_{one}"], (a & mask) >= (b & mask))
        assert np.array_equal(results[f"incremented_{one}"], (a + (b & 1)) & mask)


MIXED = 4
SIGNS = (False, True)
CONSTANT = -11


class MixedSigns(Unit):
    """``a * b + a - b`` plus a constant, and column sums, for operands of every width and sign."""

    def __init__(self, *, target: Target) -> None:
        self.target = target
        widths = range(1, MIXED + 1)
        self.kinds = tuple(combinations(widths, SIGNS, widths, SIGNS))
        super().__init__(
            {"a": In(MIXED), "b": In(MIXED)}
            | {self.named("total", *kind): Out(2 * MIXED) for kind in self.kinds}
            | {self.named("column", *kind): Out(2 * MIXED) for kind in self.kinds if kind[2] < 3}
        )

    @staticmethod
    def named(what: str, one: int, one_signed: bool, two: int, two_signed: bool) -> str:
        return f"{what}_{'us'[one_signed]}{one}_{'us'[two_signed]}{two}"

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with writing_for(self.target):
            for kind in self.kinds:
                self.add_outputs(m, kind)
        return m

    def add_outputs(self, m: Module, kind: tuple[int, bool, int, bool]) -> None:
        one, one_signed, two, two_signed = kind

        def taken(value: Value, is_signed: bool) -> Value:
            return value.as_signed() if is_signed else value

        a, b = taken(self.a[:one], one_signed), taken(self.b[:two], two_signed)
        total = CarrySaveSum(m, 2 * MIXED)
        total.add_product(a, b)
        total.add(a)
        total.subtract(b)
        total.add(CONSTANT)
        m.d.comb += getattr(self, self.named("total", *kind)).eq(total.result())
        if two < 3:
            # As many values of one shape as the second width, plus one.
            other = taken(self.b[:one], one_signed)
            values = [a, other, a][: two + 1]
            m.d.comb += getattr(self, self.named("column", *kind)).eq(column_sum(m, values))


@pytest.mark.parametrize("target", Target)
def test_every_width_and_signedness(target: Target) -> None:
    a, b = (words.ravel() for words in np.meshgrid(*[np.arange(1 << MIXED)] * 2))
    unit = MixedSigns(target=target)
    results = run_bulk(unit, {"a": a, "b": b})

    def taken(words: np.ndarray, width: int, is_signed: bool) -> np.ndarray:
        low = words & (1 << width) - 1
        return np.where(is_signed & (low >> width - 1).astype(bool), low - (1 << width), low)

    below = (1 << 2 * MIXED) - 1
    for kind in unit.kinds:
        one, one_signed, two, two_signed = kind
        x, y = taken(a, one, one_signed), taken(b, two, two_signed)
        total = results[unit.named("total", *kind)]
        assert np.array_equal(total, x * y + x - y + CONSTANT & below), kind
        if two < 3:
            other = taken(b, one, one_signed)
            column = sum([x, other, x][: two + 1])
            assert np.array_equal(results[unit.named("column", *kind)], column & below), kind
