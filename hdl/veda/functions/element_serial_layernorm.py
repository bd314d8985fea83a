"""VEDA's element-serial layernorm or RMSNorm: one element in and out per cycle, Section V."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, Signature

from hdl.arith.carry_save_sum import product
from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.memory.memory_fifo import MemoryFifo
from hdl.memory.vector_fifo import VectorFifo
from hdl.unit import Unit
from hdl.veda.functions.deviation_reciprocal import DeviationReciprocal
from hdl.veda.functions.element_sums import ElementSums
from hdl.veda.functions.layernorm_parameters import ElementSerialLayernormParameters
from hdl.veda.functions.shared_operator import (
    BINARY,
    EXACT_PRODUCT,
    EXTRA_BITS,
    LONGER_PRODUCT,
    SharedOperators,
    from_fp16,
    private_operators,
    shared_operators,
)


def layernorm_operators(parameters: ElementSerialLayernormParameters) -> Signature:
    """Return the signature of a layernorm's operators: RMSNorm needs no subtractor."""
    subtractor = {} if parameters.rms else {"add": BINARY}
    return shared_operators(multiply=LONGER_PRODUCT, last_multiply=EXACT_PRODUCT, **subtractor)


class SignificandProduct(Unit):
    """Multiply two significands as integers: the part of a multiplier that a square needs.

    **Latency** 0 cycles. **Throughput** one product per cycle. **Numerics** exact.

    Members
    -------
    enable : In(1)
        Unused; for a uniform interface of shared operators.
    a, b : In(FP16)
        Two numbers below 2**-13, whose codes equal their significands.
    product : Out(22)
        The product of the two codes.
    """

    def __init__(self) -> None:
        fp16 = BINARY16.layout
        super().__init__({"enable": In(1), "a": In(fp16), "b": In(fp16), "product": Out(22)})

    def elaborate(self, platform: object) -> Module:
        """Multiply the codes."""
        m = Module()
        a, b = (Value.cast(code)[: BINARY16.significand_bits] for code in (self.a, self.b))
        m.d.comb += self.product.eq(product(m, a, b))
        return m


class ElementSerialLayernorm(Unit):
    """Normalise vectors of FP16 elements: ``(x - mean) / sigma``, or RMSNorm.

    The elements are accumulated while they are written to the buffer (the paper's reduction). When
    a vector is complete, its mean and the reciprocal of its deviation are computed digit by digit.
    Then its elements are read and normalised, while the next vector is reduced. The next matrix
    must include the weight of the norm.

    **Latency** at most ``cycles + subtract_stages + multiply_stages + 9`` from a vector's last
    element to its first result; ``cycles`` is that of `DeviationReciprocal`, and the subtractor
    exists only without `rms`. **Throughput** one element and one result per cycle, also from
    vector to vector; a vector with fewer elements takes ``cycles + 7``.

    **Numerics** the sum of elements is exact; each square is truncated below 2**-28. ``variance =
    max(0, squares / n - mean**2)``, ``scale = 1 / sqrt(variance + 1e-5)`` is rounded to FP16, to
    nearest except for its 14th bit; with `rms`, the mean is 0. The mean, its difference from the
    element and the product are each rounded to FP16. The error relative to the exact result q is at
    most ``2**-9 * abs(q) + 2**-24``; without `rms` add ``(2**-10 * abs(mean) + 2**-23) * scale``,
    and the effect of an error of ``2**-22 * abs(mean)`` in the variance.

    **Special values** a vector with an infinity or a NaN yields the quiet NaN for all its elements,
    and sets `undefined`.

    Parameters
    ----------
    parameters : ElementSerialLayernormParameters
        Dimensions of the layernorm.
    shared : bool
        Use operators outside the unit, which other functions share; adds `operators`.

    Members
    -------
    elements : In(stream)
        `value` in FP16, `last` with a vector's last element. A vector has at most `width`
        elements. Its last element waits while another vector's scale is computed, or while
        `vectors` complete vectors are not yet normalised.
    normalised : Out(stream)
        `value` in FP16, in the order of the elements; `last`.
    undefined : Out(1)
        A vector had an infinity or a NaN. Held until `clear_undefined`.
    clear_undefined : In(1)
        Clears `undefined`, unless a vector sets it in the same cycle.
    operators : Out(layernorm_operators(parameters))
        With `shared`: the operators. No element is reduced or normalised unless they are granted.

    Raises
    ------
    ValueError
        If `parameters` are illegal, see `ElementSerialLayernormParameters`.
    """

    def __init__(
        self, *, parameters: ElementSerialLayernormParameters, shared: bool = False
    ) -> None:
        self.parameters = parameters
        self.shared = shared
        super().__init__(
            {
                "elements": In(stream.Signature(parameters.element_layout)),
                "normalised": Out(stream.Signature(parameters.element_layout)),
                "undefined": Out(1),
                "clear_undefined": In(1),
            }
            | ({"operators": Out(layernorm_operators(parameters))} if shared else {})
        )

    def elaborate(self, platform: object) -> Module:
        """Reduce, buffer, normalise."""
        m = Module()
        p = self.parameters
        operators = self.operators if self.shared else self._private_operators(m)
        m.submodules.sums = sums = ElementSums(parameters=p)
        m.submodules.deviation = deviation = DeviationReciprocal(parameters=p)
        m.submodules.buffer = buffer = VectorFifo(
            shape=BINARY16.layout, longest=p.width, vectors=p.vectors
        )
        m.submodules.scales = scales = MemoryFifo(shape=p.scale_layout, depth=max(p.vectors, 2))

        # Complete vectors that are not yet normalised; the scale of at most one of them is being
        # computed. Only a vector's last element waits for that.
        complete = Signal(range(p.vectors + 1))
        reducing = Signal()
        element = self.elements.payload
        room = ~element.last | ((complete != p.vectors) & ~reducing)
        ready = buffer.source.ready & room & operators.grant
        take = self.elements.valid & ready
        ends = take & element.last
        squares = Signal()
        m.d.sync += squares.eq(take)
        used = scales.sink.valid & scales.sink.ready
        with m.If(deviation.strobe_out):
            m.d.sync += reducing.eq(0)
        with m.If(ends):
            m.d.sync += reducing.eq(1)
        # Sticky, and set has priority: a clear in the same cycle loses no vector.
        spoilt = deviation.strobe_out & deviation.undefined
        m.d.sync += [
            complete.eq(complete + ends - used),
            self.undefined.eq((self.undefined & ~self.clear_undefined) | spoilt),
        ]
        m.d.comb += [
            self.elements.ready.eq(ready),
            sums.strobe.eq(take),
            sums.element.eq(element),
            # Only the integer part of the shared multiplier is used: it squares the significand.
            operators.last_multiply.valid.eq(squares),
            Value.cast(operators.last_multiply.a).eq(sums.significand),
            Value.cast(operators.last_multiply.b).eq(sums.significand),
            sums.square.eq(operators.last_multiply.product),
            deviation.strobe.eq(sums.strobe_out),
            deviation.sums.eq(sums.sums),
            buffer.source.valid.eq(self.elements.valid & room & operators.grant),
            buffer.source.payload.eq(element),
            scales.source.valid.eq(deviation.strobe_out),
            scales.source.payload.eq(deviation.scale),
        ]
        moving = self._normalise(m, operators, buffer.sink, scales.sink)
        reduces = self.elements.valid & buffer.source.ready & room
        m.d.comb += [
            operators.request.eq(reduces | (buffer.sink.valid & scales.sink.valid)),
            operators.end.eq(ends | used),
            # An element is squared in the cycle after it arrives, before the owner of the operators
            # changes.
            operators.busy.eq(moving),
        ]
        return m

    def _private_operators(self, m: Module) -> SharedOperators:
        """Return operators of the unit's own."""
        p = self.parameters
        operators: dict[str, Unit] = {
            "multiply": FloatMultiply(extra_bits=EXTRA_BITS, stages=p.multiply_stages, enable=True),
            "last_multiply": SignificandProduct(),
        }
        if not p.rms:
            operators["add"] = FloatAdd(stages=p.subtract_stages, enable=True)
        return private_operators(m, layernorm_operators(p), **operators)

    def _normalise(
        self,
        m: Module,
        operators: SharedOperators,
        elements: stream.Interface,
        scales: stream.Interface,
    ) -> Value:
        """Subtract the mean and multiply; the whole pipeline stalls together.

        Returns whether any stage is occupied.
        """
        p = self.parameters
        output = self.normalised
        move, accept = Signal(), Signal()
        m.d.comb += [
            move.eq(~output.valid | output.ready),
            accept.eq(move & operators.grant),
            operators.enable.eq(move),
            # A scale serves all elements of its vector, and is transferred with the last of them.
            elements.ready.eq(scales.valid & accept),
            scales.ready.eq(elements.valid & elements.payload.last & accept),
        ]
        stages = p.multiply_stages + (0 if p.rms else p.subtract_stages)
        # A register upstream of the operators cuts the path from the buffer's memory; these bits
        # are delayed in parallel with it and with the operators' stages.
        valid, last = Signal(1 + stages), Signal(1 + stages, reset_less=True)
        difference, scale = Signal(BINARY16.layout, reset_less=True), Signal(16, reset_less=True)
        with m.If(move):
            m.d.sync += [
                valid.eq(Cat(elements.valid & scales.valid & operators.grant, valid)),
                last.eq(Cat(elements.payload.last, last)),
                difference.eq(elements.payload.value),
                scale.eq(Value.cast(scales.payload.scale)),
            ]
        if not p.rms:
            mean = Signal(BINARY16.layout, reset_less=True)
            # x - mean is x + (-mean): a subtractor is an adder with one sign bit inverted.
            m.d.comb += [
                operators.add.valid.eq(valid[0]),
                operators.add.a.eq(difference),
                operators.add.b.eq(mean),
                operators.add.b.sign.eq(~mean.sign),
            ]
            with m.If(move):
                m.d.sync += mean.eq(scales.payload.mean)
            difference = operators.add.result
            # The scale is delayed in parallel with the subtractor.
            scale = delay_line(m, scale, p.subtract_stages, name="scale", enable=move)[-1]
        m.d.comb += [
            operators.multiply.valid.eq(valid[stages - p.multiply_stages]),
            operators.multiply.a.eq(difference),
            Value.cast(operators.multiply.b).eq(from_fp16(scale)),
            output.valid.eq(valid[-1]),
            output.payload.last.eq(last[-1]),
            output.payload.value.eq(operators.multiply.result),
        ]
        return valid.any()
