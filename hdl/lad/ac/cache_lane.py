"""The adders of one lane: they update a column of the caches, or add up corrections."""

from typing import Any

from amaranth.hdl import Module, Signal, Value, unsigned
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


class CacheElement(Unit):
    """One adder of a lane, with the registers that choose its operands.

    A lane chooses for hundreds of bits at once: each adder has a choice of its own, a cycle later.

    **Latency** `cache_stages` cycles. **Throughput** one sum a cycle. **Numerics** one rounding.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Dimensions.

    Members
    -------
    augend, addend : In
        To what is added in the next cycle, and what.
    word, other : In
        Elements of the words, in the caches' format.
    narrow : In(16)
        An element of the product, in FP16.
    result : Out
        The sum.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = parameters
        code = unsigned(parameters.cache_format.width)
        super().__init__(
            {"augend": In(Augend), "addend": In(Addend), "narrow": In(FP16)}
            | {"word": In(code), "other": In(code), "result": Out(code)}
        )

    def elaborate(self, platform: Any) -> Module:
        """Widen, choose, add."""
        m = Module()
        p, wide = self.parameters, Value.cast(self.narrow)
        m.submodules.add = add = FloatAdd(number_format=p.cache_format, stages=p.cache_stages)
        if p.cache_format != BINARY16:
            m.submodules.widen = widen = FloatConvert(source=BINARY16, target=p.cache_format)
            m.d.comb += Value.cast(widen.a).eq(self.narrow)
            wide = Value.cast(widen.result)
        augend, addend = Signal(Augend), Signal(Addend)
        m.d.sync += [augend.eq(self.augend), addend.eq(self.addend)]
        # A choice is a bit each, and none is 0: no code has to be looked at. What comes out goes
        # round again, so that a sum a stage is kept without a register of its own.
        for operand, choice, sources in (
            (add.a, augend, (self.result, self.word)),
            (add.b, addend, (wide, self.other)),
        ):
            gates = (bit.replicate(len(wide)) for bit in Value.cast(choice))
            parts = [gate & source for gate, source in zip(gates, sources, strict=True)]
            m.d.comb += Value.cast(operand).eq(parts[0] | parts[1])
        m.d.comb += self.result.eq(Value.cast(add.result))
        return m


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
        To what is added in the next cycle.
    addend : In(Addend)
        What is added in the next cycle.
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
        """Give each adder its elements."""
        m = Module()
        p, size = self.parameters, self.parameters.vector.head_size
        # Vector and scalars are one word: all d + 2 columns are added in the same way.
        narrow = [*(self.product[index] for index in range(size)), *self.scalars]
        for index, code in enumerate(narrow):
            m.submodules[f"element_{index}"] = element = CacheElement(parameters=p)
            m.d.comb += [
                element.augend.eq(self.augend),
                element.addend.eq(self.addend),
                element.narrow.eq(code),
                element.word.eq(self.word[index]),
                element.other.eq(self.other[index]),
                self.result[index].eq(element.result),
            ]
        return m
