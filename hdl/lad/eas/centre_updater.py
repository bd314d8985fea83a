"""Key centre of a new key: norm, cosines and their maximum (Algorithm 1)."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_compare import FloatCompare
from hdl.arith.float_divide import FloatDivide
from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.arith.float_sqrt import FloatSqrt
from hdl.lad.eas.eas_parameters import LEAST_NORM, THRESHOLD, AttentionScoreModuleParameters
from hdl.lad.fp16 import FP16
from hdl.unit import Unit


@dataclass(frozen=True)
class _Best:
    """Registers of a step: the new key, and the centre with the largest |cos| so far.

    Members
    -------
    cosine : Signal
        The cosine in FP16.
    centre, centre_norm : Signal
        Position of the centre, and its norm in FP16.
    own, own_norm : Signal
        Position of the new key, and its norm in FP16.
    """

    cosine: Signal
    centre: Signal
    centre_norm: Signal
    own: Signal
    own_norm: Signal


class CentreUpdater(Unit):
    """Find the key centre of the new key from its dot products, that with itself first.

    The unit, the paper's center updater, cannot stall. Upstream keeps one cycle free of dot
    products, in which the divider divides the two norms.

    **Latency** `cosine_stages` + `divide_stages` + 1 cycles from the last dot product to the
    centre. **Throughput** one dot product per cycle; one free cycle per step.

    **Numerics** FP16, each operation rounded once: ``norm = sqrt(<k, k>)``, or the smallest normal
    number if that is 0; ``cos = <k, c> / (norm * norm_c)``. The centre with the largest |cos| is
    selected; ties resolve to the first one. A |cos| that is not above 0.98, or a NaN, selects none:
    the key then becomes a centre itself.

    Parameters
    ----------
    parameters : AttentionScoreModuleParameters
        Width of a position and register stages.

    Members
    -------
    valid : In(1)
        A dot product is valid.
    product : In(16)
        The dot product in FP16.
    item : In(item_layout)
        What accompanies the dot product: `newest` if it is that of the new key with itself;
        otherwise `position`, `norm` and `centre` of the other key; `last` of the step.
    found : Out(1)
        `result` is valid in this cycle.
    result : Out(centre_layout)
        The new key's `position`, `centre` (the paper's cid), `norm`, and `ratio` (dnorm).
    """

    def __init__(self, *, parameters: AttentionScoreModuleParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "valid": In(1),
                "product": In(FP16),
                "item": In(p.item_layout),
                "found": Out(1),
                "result": Out(p.centre_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Compute norm, cosines and their maximum in one pipeline."""
        m = Module()
        p = self.parameters
        # The new key's norm is valid when the first centre's product is at the end of this delay
        # line.
        m.submodules.root = root = FloatSqrt(stages=p.root_stages)
        m.d.comb += Value.cast(root.a).eq(self.product)
        product = delay_line(m, self.product, p.root_stages, name="product")[-1]
        item = delay_line(m, self.item, p.root_stages, name="item")[-1]
        valid = delay_line(m, self.valid, p.root_stages, name="valid", reset=True)[-1]
        length, norm = Signal(FP16), Signal(FP16, reset_less=True)
        measured = Signal(p.item_layout)
        m.d.comb += [
            length.eq(Value.cast(root.result)),
            measured.eq(item),
        ]
        with m.If(item.newest):
            # A key of norm 0 has no direction; the smallest normal number keeps the quotients
            # defined.
            m.d.comb += measured.norm.eq(Mux(length[:-1].any(), length, LEAST_NORM))
        with m.If(valid & item.newest):
            m.d.sync += norm.eq(measured.norm)

        m.submodules.multiply = multiply = FloatMultiply(stages=p.multiply_stages)
        m.submodules.divide = divide = FloatDivide(stages=p.divide_stages)
        # The divisor is the product of both norms; the dot product is delayed to match.
        dividend = delay_line(m, product, p.multiply_stages, name="dividend")[-1]
        stages = p.multiply_stages + p.divide_stages
        item = delay_line(m, measured, stages, name="measured")[-1]
        valid = delay_line(m, valid, stages, name="divided", reset=True)[-1]
        best = self._best(m, valid, item, Value.cast(divide.result))
        decides = delay_line(m, valid & item.last, 1, name="decides", reset=True)[-1]
        m.d.comb += [
            Value.cast(multiply.a).eq(measured.norm),
            Value.cast(multiply.b).eq(norm),
            # Port 1 of the paper's multiplexers: dnorm, in the free cycle.
            Value.cast(divide.a).eq(Mux(decides, best.own_norm, dividend)),
            Value.cast(divide.b).eq(Mux(decides, best.centre_norm, Value.cast(multiply.result))),
        ]
        self._decide(m, decides, best, Value.cast(divide.result))
        return m

    def _best(self, m: Module, valid: Value, item: data.View, cosine: Value) -> _Best:
        """Return the registers of the largest |cos| of the step so far, and of its centre."""
        position = self.parameters.position_bits
        best = _Best(
            cosine=Signal(FP16, name="cosine", reset_less=True),
            centre=Signal(position, name="centre", reset_less=True),
            centre_norm=Signal(FP16, name="centre_norm", reset_less=True),
            own=Signal(position, name="own", reset_less=True),
            own_norm=Signal(FP16, name="own_norm", reset_less=True),
        )
        m.submodules.compare = compare = FloatCompare()
        m.d.comb += [
            Value.cast(compare.a).eq(best.cosine[:-1]),
            Value.cast(compare.b).eq(cosine[:-1]),
        ]
        with m.If(valid & item.newest):
            m.d.sync += [
                best.cosine.eq(0),
                best.own.eq(item.position),
                best.own_norm.eq(item.norm),
            ]
        # Strictly larger, so that ties resolve to the first centre.
        with m.Elif(valid & item.centre & compare.less):
            m.d.sync += [
                best.cosine.eq(cosine),
                best.centre.eq(item.position),
                best.centre_norm.eq(item.norm),
            ]
        return best

    def _decide(self, m: Module, decides: Value, best: _Best, ratio: Value) -> None:
        """Implement lines 10 to 17 of Algorithm 1 while the norms are divided."""
        p = self.parameters
        m.submodules.near = near = FloatCompare()
        m.d.comb += [
            Value.cast(near.a).eq(THRESHOLD),
            Value.cast(near.b).eq(best.cosine[:-1]),
        ]
        decision = Cat(near.less, best.cosine[-1], best.own, best.centre, best.own_norm)
        waited = delay_line(m, decision, p.divide_stages, name="decision")[-1]
        bits = p.position_bits
        # The decision is delayed until the quotient of the norms is valid.
        own, centre = waited[2 : 2 + bits], waited[2 + bits : 2 + 2 * bits]
        one = Const(BINARY16.one, FP16)
        # The ratio has the sign of the cosine; the quotient of the norms has none.
        signed = Cat(ratio[:-1], ratio[-1] ^ waited[1])
        m.d.comb += [
            self.found.eq(delay_line(m, decides, p.divide_stages, name="found", reset=True)[-1]),
            self.result.position.eq(own),
            self.result.centre.eq(Mux(waited[0], centre, own)),
            self.result.norm.eq(waited[2 + 2 * bits :]),
            self.result.ratio.eq(Mux(waited[0], signed, one)),
        ]
