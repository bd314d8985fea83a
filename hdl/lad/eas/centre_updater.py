"""The centre of a new key: norm, cosines, and the largest of them (Algorithm 1)."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
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


class CentreUpdater(Unit):
    """Take the new key's dot products, with itself first, and find its centre.

    Nothing here waits: who feeds it leaves a cycle free in which the divider takes the two norms.

    **Latency** `cosine_stages` + `divide_stages` + 1 cycles from the last dot product to the
    centre. **Throughput** one dot product a cycle, but `bubble` cycles behind a step's last.

    **Numerics** FP16, each operation rounded once: ``norm = sqrt(<k, k>)``, the least normal number
    if that is 0; ``cos = <k, c> / (norm * norm_c)``. Of equal |cos| the first centre is taken, and
    none that is not above 0.98; a NaN is not.

    Parameters
    ----------
    parameters : AttentionScoreModuleParameters
        Dimensions.

    Members
    -------
    valid : In(1)
        There is a dot product.
    product : In(16)
        It.
    item : In(item_layout)
        Whether it is the `newest` key's with itself; else the position, the `norm` and whether it
        is a `centre`; the `last` of the step.
    found : Out(1)
        The step's centre is here.
    result : Out(centre_layout)
        It.
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

    def elaborate(self, platform: Any) -> Module:
        """Norm, cosines, largest cosine, one behind the other."""
        m = Module()
        p = self.parameters
        # The newest key's norm is known when the first centre's product leaves this line.
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
            # A key of length 0 has no direction; some norm keeps the quotients defined.
            m.d.comb += measured.norm.eq(Mux(length[:-1].any(), length, LEAST_NORM))
        with m.If(valid & item.newest):
            m.d.sync += norm.eq(measured.norm)

        m.submodules.multiply = multiply = FloatMultiply(stages=p.multiply_stages)
        m.submodules.divide = divide = FloatDivide(stages=p.divide_stages)
        # The product of both norms is the divisor; the dot product waits for it.
        dividend = delay_line(m, product, p.multiply_stages, name="dividend")[-1]
        stages = p.multiply_stages + p.divide_stages
        item = delay_line(m, measured, stages, name="measured")[-1]
        valid = delay_line(m, valid, stages, name="divided", reset=True)[-1]
        best = self._best(m, valid, item, Value.cast(divide.result))
        decides = delay_line(m, valid & item.last, 1, name="decides", reset=True)[-1]
        m.d.comb += [
            Value.cast(multiply.a).eq(measured.norm),
            Value.cast(multiply.b).eq(norm),
            # Port 1 of the paper's multiplexers: dnorm, in the cycle that was left free.
            Value.cast(divide.a).eq(Mux(decides, best["own_norm"], dividend)),
            Value.cast(divide.b).eq(Mux(decides, best["centre_norm"], Value.cast(multiply.result))),
        ]
        self._decide(m, decides, best, Value.cast(divide.result))
        return m

    def _best(self, m: Module, valid: Value, item: Any, cosine: Value) -> dict[str, Signal]:
        """Return the registers that follow the largest cosine since the newest key passed."""
        p = self.parameters
        position = p.position_bits
        shapes = {"cosine": FP16, "centre": position, "centre_norm": FP16}
        shapes |= {"own": position, "own_norm": FP16}
        best = {name: Signal(shape, name=name, reset_less=True) for name, shape in shapes.items()}
        m.submodules.compare = compare = FloatCompare()
        m.d.comb += [
            Value.cast(compare.a).eq(best["cosine"][:-1]),
            Value.cast(compare.b).eq(cosine[:-1]),
        ]
        with m.If(valid & item.newest):
            m.d.sync += [
                best["cosine"].eq(0),
                best["own"].eq(item.position),
                best["own_norm"].eq(item.norm),
            ]
        # Strictly larger: the first of equal ones stays.
        with m.Elif(valid & item.centre & compare.less):
            m.d.sync += [
                best["cosine"].eq(cosine),
                best["centre"].eq(item.position),
                best["centre_norm"].eq(item.norm),
            ]
        return best

    def _decide(self, m: Module, decides: Value, best: dict[str, Signal], ratio: Value) -> None:
        """Lines 10 to 17 of Algorithm 1, while the quotient of the norms is on its way."""
        p = self.parameters
        m.submodules.near = near = FloatCompare()
        m.d.comb += [
            Value.cast(near.a).eq(THRESHOLD),
            Value.cast(near.b).eq(best["cosine"][:-1]),
        ]
        decision = Cat(near.less, best["cosine"][-1], best["own"], best["centre"], best["own_norm"])
        waited = delay_line(m, decision, p.divide_stages, name="decision")[-1]
        bits = p.position_bits
        # The decision waits for the quotient that goes with it.
        own, centre = waited[2 : 2 + bits], waited[2 + bits : 2 + 2 * bits]
        one = Const(BINARY16.one, FP16)
        # A negative cosine's ratio is negative; both norms' quotient is not.
        signed = Cat(ratio[:-1], ratio[-1] ^ waited[1])
        m.d.comb += [
            self.found.eq(delay_line(m, decides, p.divide_stages, name="found", reset=True)[-1]),
            self.result.position.eq(own),
            self.result.centre.eq(Mux(waited[0], centre, own)),
            self.result.norm.eq(waited[2 + 2 * bits :]),
            self.result.ratio.eq(Mux(waited[0], signed, one)),
        ]
