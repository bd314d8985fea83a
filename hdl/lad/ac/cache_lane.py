"""The adders of one lane: they update a column of the caches or accumulate corrections."""

from amaranth.hdl import Module, Signal, Value, unsigned
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.fp16 import FP16
from hdl.unit import Unit


class Augend(enum.Enum, shape=unsigned(2)):
    """First operand of a lane's adders.

    Members
    -------
    NOTHING : int
        Zero: the first addition of a sum.
    RESULT : int
        The result of the adders in this cycle.
    WORD : int
        A word of the intermediate caches.
    """

    NOTHING = 0
    RESULT = 1
    WORD = 2


class Addend(enum.Enum, shape=unsigned(2)):
    """Second operand of a lane's adders.

    Members
    -------
    NOTHING : int
        Zero.
    PRODUCT : int
        A vector and two scalars in FP16, widened to the format of the caches.
    OTHER : int
        A word from another lane or from the mode-based part.
    """

    NOTHING = 0
    PRODUCT = 1
    OTHER = 2


class CacheElement(Unit):
    """One adder of a lane with its operand selection.

    Each adder registers its own copy of the selection, because the lane's selection would drive
    hundreds of bits.

    **Latency** `cache_stages` cycles. **Throughput** one sum per cycle. **Numerics** one rounding.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Format and register stages of the adder.

    Members
    -------
    augend, addend : In
        Operands of the next cycle's addition.
    word, other : In
        Elements of the words, in the format of the caches.
    narrow : In(16)
        An element of the product, in FP16, one cycle before the addition.
    result : Out
        The sum, in the format of the caches.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = parameters
        code = unsigned(parameters.cache_format.width)
        super().__init__(
            {"augend": In(Augend), "addend": In(Addend), "narrow": In(FP16)}
            | {"word": In(code), "other": In(code), "result": Out(code)}
        )

    def elaborate(self, platform: object) -> Module:
        """Widen the product; one cycle later select the operands and add."""
        m = Module()
        p, wide = self.parameters, Value.cast(self.narrow)
        m.submodules.add = add = FloatAdd(number_format=p.cache_format, stages=p.cache_stages)
        if p.cache_format != BINARY16:
            m.submodules.widen = widen = FloatConvert(source=BINARY16, target=p.cache_format)
            m.d.comb += Value.cast(widen.a).eq(self.narrow)
            wide = Value.cast(widen.result)
        wide = delay_line(m, wide, 1, name="wide")[-1]
        augend, addend = Signal(Augend), Signal(Addend)
        m.d.sync += [augend.eq(self.augend), addend.eq(self.addend)]
        # Each choice has one bit per source, and no bit selects 0, so that no decoder is needed.
        # The adder's result is fed back: each of its stages holds one partial sum without a further
        # register.
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
    """``head_size + 2`` adders in the caches' format: a lane of the paper's reduction module.

    The sums are the paper's acc. With `RESULT` as first operand, the pipeline of each adder holds
    as many partial sums as it has stages.

    **Latency** `cache_stages` cycles. **Throughput** one word per cycle. **Numerics** one rounding.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Vector size, format and register stages.

    Members
    -------
    augend : In(Augend)
        First operand of the next cycle's addition.
    addend : In(Addend)
        Second operand of the next cycle's addition.
    word, other : In(word_layout)
        Words, in the format of the caches.
    product : In(ArrayLayout(16, head_size))
        The vector, the paper's rv, in FP16, one cycle before the addition.
    scalars : In(16).array(2)
        Addends of the last two elements, with the vector; the first one is the paper's rs in AC.3.
    result : Out(word_layout)
        The sums, in the format of the caches.
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

    def elaborate(self, platform: object) -> Module:
        """Distribute the elements to the adders."""
        m = Module()
        p, size = self.parameters, self.parameters.vector.head_size
        # Vector and scalars form one word, so that all d + 2 elements are added alike.
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
