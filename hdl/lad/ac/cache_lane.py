"""The adders of one lane: they update a column of the caches, or add up corrections."""

from typing import Any

from amaranth.hdl import Module, Mux, Value, unsigned
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from hdl.arith.float_add import FloatAdd
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.fp16 import FP16
from hdl.unit import Unit


class Augend(enum.Enum, shape=unsigned(2)):
    """To what is added.

    Members
    -------
    NOTHING : int
        Zero: a sum begins.
    RESULT : int
        What comes out of the adders in this cycle.
    WORD : int
        A word of the caches.
    """

    NOTHING = 0
    RESULT = 1
    WORD = 2


class Addend(enum.Enum, shape=unsigned(2)):
    """What is added.

    Members
    -------
    NOTHING : int
        Zero.
    PRODUCT : int
        A vector in FP16 and two scalars.
    OTHER : int
        A word from elsewhere.
    """

    NOTHING = 0
    PRODUCT = 1
    OTHER = 2


class CacheLane(Unit):
    """``head_size + 2`` adders in the caches' format.

    As many sums as the adders have stages go round in them, where each cycle's result is added to.

    **Latency** `cache_stages` cycles. **Throughput** one word a cycle. **Numerics** one rounding.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Dimensions.

    Members
    -------
    augend : In(Augend)
        To what is added.
    addend : In(Addend)
        What is added.
    word, other : In(word_layout)
        Words.
    product : In(ArrayLayout(16, head_size))
        The vector.
    scalars : In(16).array(2)
        What is added to the two last elements.
    result : Out(word_layout)
        The sums.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "augend": In(Augend),
                "addend": In(Addend),
                "word": In(p.word_layout),
                "other": In(p.word_layout),
                "product": In(p.vector.vector_layout),
                "scalars": In(FP16).array(2),
                "result": Out(p.word_layout),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Widen, choose, add."""
        m = Module()
        p, size = self.parameters, self.parameters.vector.head_size
        # Vector and scalars are one word: all d + 2 columns are added in the same way.
        narrow = [*(self.product[index] for index in range(size)), *self.scalars]
        for index, code in enumerate(narrow):
            m.submodules[f"add_{index}"] = add = FloatAdd(
                number_format=p.cache_format, stages=p.cache_stages
            )
            wide: Any = code
            if p.cache_format != BINARY16:
                m.submodules[f"widen_{index}"] = widen = FloatConvert(
                    source=BINARY16, target=p.cache_format
                )
                m.d.comb += Value.cast(widen.a).eq(code)
                wide = Value.cast(widen.result)
            # What comes out goes round again: so a sum a stage is kept without a register of its
            # own.
            kept = Mux(self.augend == Augend.RESULT, self.result[index], 0)
            added = Mux(self.addend == Addend.OTHER, self.other[index], 0)
            m.d.comb += [
                Value.cast(add.a).eq(Mux(self.augend == Augend.WORD, self.word[index], kept)),
                Value.cast(add.b).eq(Mux(self.addend == Addend.PRODUCT, wide, added)),
                self.result[index].eq(Value.cast(add.result)),
            ]
        return m
