"""Tree of floating-point adders with a fixed order of additions."""

from itertools import pairwise

from amaranth.hdl import Module
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.float_add import FloatAdd
from hdl.arith.float_format import BINARY16, FloatFormat
from hdl.arith.float_unpack import require_ieee
from hdl.arith.operator import Operator, Pipeline
from hdl.parameters import require_choice, require_range


class FloatTree(Operator):
    """Sum of many floating-point numbers, added in adjacent pairs, level by level.

    Each level adds the terms ``2 * i`` and ``2 * i + 1``; an unpaired last term passes to the next
    level unchanged. For eight terms the order is ``((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))``, as
    in the adder tree of LAD's vector unit.

    **Latency** `stages` cycles. **Throughput** one sum per cycle. **Numerics** each addition is
    rounded to nearest, ties to even, as `FloatAdd` does; the order is part of the contract.

    Parameters
    ----------
    number_format : FloatFormat
        Format of terms, partial sums and result; a signed IEEE format.
    terms : int
        Number of terms, 2 to 1024.
    saturate : bool
        As in `FloatAdd`.
    stages : int
        Pipeline stages, spread evenly over the ``ceil(log2(terms))`` levels.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    terms : In(ArrayLayout(number_format.layout, terms))
        The numbers to add.
    result : Out(number_format.layout)
        The sum.

    Raises
    ------
    ValueError
        If a parameter is illegal.
    """

    def __init__(
        self,
        *,
        number_format: FloatFormat = BINARY16,
        terms: int,
        saturate: bool = False,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_ieee("number_format", number_format)
        require_range("terms", terms, 2, 1024)
        require_choice("saturate", saturate, (False, True))
        self.number_format = number_format
        self.saturate = saturate
        self.levels = (terms - 1).bit_length()
        layout = number_format.layout
        super().__init__(
            {"terms": In(data.ArrayLayout(layout, terms)), "result": Out(layout)},
            stages=stages,
            enable=enable,
        )

    def elaborate(self, platform: object) -> Module:
        """Instantiate the adders level by level."""
        m = Module()
        edges = [self.stages * level // self.levels for level in range(self.levels + 1)]
        enable = getattr(self, "enable", None)
        terms = list(self.terms)
        for level, (before, after) in enumerate(pairwise(edges)):
            sums = []
            for index in range(0, len(terms) - 1, 2):
                adder = FloatAdd(
                    number_format=self.number_format,
                    saturate=self.saturate,
                    stages=after - before,
                    enable=enable is not None,
                )
                m.submodules[f"add_{level}_{index // 2}"] = adder
                m.d.comb += [adder.a.eq(terms[index]), adder.b.eq(terms[index + 1])]
                if enable is not None:
                    m.d.comb += adder.enable.eq(enable)
                sums.append(adder.result)
            if len(terms) % 2:
                alone = Pipeline(m, stages=after - before, cuts=1, enable=enable)
                sums += alone.cut(terms[-1])
            terms = sums
        m.d.comb += self.result.eq(terms[0])
        return m
