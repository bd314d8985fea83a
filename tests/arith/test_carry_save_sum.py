"""The integer product and the sums below the floating-point operators: every operand of a width."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import In, Out

from hdl.arith.prefix_sum import incremented, prefix_sum
from hdl.arith.unsigned_multiply import product
from hdl.target import Target, writing_for
from hdl.unit import Unit
from testbenches.arith.bulk import run_bulk

WIDEST = 7


class EveryWidth(Unit):
    """Products of all pairs of widths, and sums of all widths, of two words' low bits."""

    def __init__(self, *, target: Target) -> None:
        self.target = target
        widths = range(1, WIDEST + 1)
        super().__init__(
            {"a": In(WIDEST), "b": In(WIDEST)}
            | {f"product_{one}_{two}": Out(one + two) for one in widths for two in widths}
            | {f"sum_{width}": Out(width + 1) for width in widths}
            | {f"incremented_{width}": Out(width) for width in widths}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with writing_for(self.target):
            self.place(m)
        return m

    def place(self, m: Module) -> None:
        for one in range(1, WIDEST + 1):
            a = self.a[:one]
            for two in range(1, WIDEST + 1):
                m.d.comb += getattr(self, f"product_{one}_{two}").eq(product(m, a, self.b[:two]))
            m.d.comb += [
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
        assert np.array_equal(results[f"incremented_{one}"], (a + (b & 1)) & mask)
