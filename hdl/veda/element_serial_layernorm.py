"""VEDA's element-serial layernorm: elements in, normalised elements out, one a cycle each."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_add import FloatAdd
from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.arith.float_normalise import QUIET_NAN
from hdl.stream.memory_fifo import MemoryFifo
from hdl.unit import Unit
from hdl.veda.deviation_reciprocal import DeviationReciprocal
from hdl.veda.element_sums import ElementSums
from hdl.veda.layernorm_parameters import ElementSerialLayernormParameters


class ElementSerialLayernorm(Unit):
    """``(x - mean) / sigma`` of vectors of FP16 elements that come one a cycle; or RMSNorm.

    The elements are summed while they go to the buffer (the reduction); when a vector is complete,
    its mean and the reciprocal of its deviation are computed digit by digit; then its elements are
    read again and normalised, while the next vector is reduced. The weight of the norm belongs into
    the next matrix.

    **Latency** from a vector's last element to its first result ``cycles + subtract_stages +
    multiply_stages + 9`` at most, ``cycles`` as of `DeviationReciprocal` (the subtractor is there
    without `rms` only). **Throughput** one element and one result a cycle, also from vector to
    vector; a vector of fewer elements takes ``cycles + 7``.

    **Numerics** the sum of elements is exact, that of squares drops what is below 2**-28 of each;
    ``variance = max(0, squares / n - mean**2)``, ``scale = 1 / sqrt(variance + 1e-5)`` rounded to
    FP16, to nearest but for its 14th bit; with `rms`, the mean is 0. The mean is rounded to FP16,
    the difference from it once more, and so is the product. To the exact result q the error is at
    most ``2**-9 * abs(q) + 2**-24``; without `rms` plus ``(2**-10 * abs(mean) + 2**-23) * scale``,
    and what a variance wrong by ``2**-22 * abs(mean)`` makes.

    **Special values** a vector with an infinity or a NaN gives the quiet NaN for all its elements,
    and the flag is set.

    Parameters
    ----------
    parameters : ElementSerialLayernormParameters
        Dimensions.

    Members
    -------
    elements : In(stream)
        `value` in FP16, `last` with a vector's last element. A vector has at most `capacity`
        elements. Its last one waits while another's scale is computed, or `vectors` vectors are not
        yet normalised.
    normalised : Out(stream)
        `value` in FP16, in the order of the elements; `last`.
    undefined : Out(1)
        A vector had an infinity or a NaN. It stays.
    clear_undefined : In(1)
        It falls, unless a vector raises it in the same cycle.

    Raises
    ------
    ValueError
        By `ElementSerialLayernormParameters`.
    """

    def __init__(self, *, parameters: ElementSerialLayernormParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "elements": In(stream.Signature(parameters.element_layout)),
                "normalised": Out(stream.Signature(parameters.element_layout)),
                "undefined": Out(1),
                "clear_undefined": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Reduce, buffer, normalise."""
        m = Module()
        p = self.parameters
        m.submodules.sums = sums = ElementSums(parameters=p)
        m.submodules.deviation = deviation = DeviationReciprocal(parameters=p)
        m.submodules.buffer = buffer = MemoryFifo(
            shape=p.element_layout, depth=p.vectors * p.capacity
        )
        m.submodules.scales = scales = MemoryFifo(shape=p.scale_layout, depth=max(p.vectors, 2))

        # Complete vectors that are not yet normalised; one of them may be under way to its scale.
        complete = Signal(range(p.vectors + 1))
        reducing = Signal()
        element = self.elements.payload
        room = ~element.last | ((complete != p.vectors) & ~reducing)
        take = self.elements.valid & buffer.source.ready & room
        ends = take & element.last
        used = scales.sink.valid & scales.sink.ready
        with m.If(deviation.strobe_out):
            m.d.sync += reducing.eq(0)
        with m.If(ends):
            m.d.sync += reducing.eq(1)
        spoilt = deviation.strobe_out & deviation.scale.undefined
        m.d.sync += [
            complete.eq(complete + ends - used),
            self.undefined.eq((self.undefined & ~self.clear_undefined) | spoilt),
        ]
        m.d.comb += [
            self.elements.ready.eq(buffer.source.ready & room),
            sums.strobe.eq(take),
            sums.element.eq(element),
            deviation.strobe.eq(sums.strobe_out),
            deviation.sums.eq(sums.sums),
            buffer.source.valid.eq(self.elements.valid & room),
            buffer.source.payload.eq(element),
            scales.source.valid.eq(deviation.strobe_out),
            scales.source.payload.eq(deviation.scale),
        ]
        self._normalise(m, buffer.sink, scales.sink)
        return m

    def _normalise(self, m: Module, elements: Any, scales: Any) -> None:
        """Subtract the mean and multiply; everything waits together."""
        p = self.parameters
        output = self.normalised
        move = Signal()
        m.d.comb += [
            move.eq(~output.valid | output.ready),
            elements.ready.eq(scales.valid & move),
            scales.ready.eq(elements.valid & elements.payload.last & move),
        ]
        value, scale = Signal(BINARY16.layout, reset_less=True), Signal(16, reset_less=True)
        valid = Signal()
        control = Signal(2, reset_less=True)
        with m.If(move):
            m.d.sync += [
                value.eq(elements.payload.value),
                scale.eq(Value.cast(scales.payload.scale)),
                valid.eq(elements.valid & scales.valid),
                control.eq(Cat(elements.payload.last, scales.payload.undefined)),
            ]
        difference: Any = value
        beside: Value = Cat(valid, control, scale)
        if not p.rms:
            mean = Signal(BINARY16.layout, reset_less=True)
            m.submodules.subtract = subtract = FloatAdd(stages=p.subtract_stages, enable=True)
            with m.If(move):
                m.d.sync += mean.eq(scales.payload.mean)
            m.d.comb += [
                subtract.enable.eq(move),
                subtract.a.eq(value),
                subtract.b.eq(mean),
                subtract.b.sign.eq(~mean.sign),
            ]
            difference = subtract.result
            beside = _delay(m, "subtract", p.subtract_stages, move, beside)
        m.submodules.multiply = multiply = FloatMultiply(stages=p.multiply_stages, enable=True)
        m.d.comb += [
            multiply.enable.eq(move),
            multiply.a.eq(difference),
            Value.cast(multiply.b).eq(beside[3:]),
        ]
        beside = _delay(m, "multiply", p.multiply_stages, move, beside[:3])
        m.d.comb += [
            output.valid.eq(beside[0]),
            output.payload.last.eq(beside[1]),
            Value.cast(output.payload.value).eq(
                Mux(beside[2], Const(QUIET_NAN, 16), Value.cast(multiply.result))
            ),
        ]


def _delay(m: Module, name: str, ranks: int, move: Value, value: Value) -> Value:
    """Register what goes beside an operator; bit 0 says whether it is anything."""
    for rank in range(ranks):
        valid = Signal(name=f"{name}_valid_{rank}")
        rest = Signal(len(value) - 1, name=f"{name}_{rank}", reset_less=True)
        with m.If(move):
            m.d.sync += [valid.eq(value[0]), rest.eq(value[1:])]
        value = Cat(valid, rest)
    return value
