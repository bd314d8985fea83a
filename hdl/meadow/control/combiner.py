"""What becomes of a linear layer's results: kept, added to the hidden state, or gated."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.rounding import Rounding, rounded_right
from hdl.arith.saturating_add import saturate
from hdl.meadow.attention_parameters import RESULT
from hdl.meadow.parameters import GATE_DROP, MOST_LIFT, STATE, Combine, MeadowParameters
from hdl.meadow.tile.element_parameters import OPERAND
from hdl.nonlinear.activation_functions import VALUE, ActivationFunctionsParameters, ActivationLane
from hdl.unit import Unit

PRODUCT = signed(2 * RESULT.width)


class Combiner(Unit):
    """Combine results with what was in their place, a word a cycle.

    **Latency** 6 cycles. **Throughput** a word a cycle.

    **Numerics** `ADD`: ``old + result * 2**lift``, clamped to 24 bits. `GATE`: SiLU of the old
    value's Q6.10 as `ActivationFunctions` has it, times the result, over ``2**GATE_DROP``, rounded
    half to even and clamped to INT8.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions.

    Members
    -------
    combine, lift : In
        Stand while there is work.
    results : In(stream)
        A word of 16-bit results.
    old : In(stream)
        What was in its place, unless results are kept.
    combined : Out(stream)
        What takes the place.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "combine": In(Combine),
                "lift": In(range(MOST_LIFT + 1)),
                "results": In(stream.Signature(p.attention.result_word_layout)),
                "old": In(stream.Signature(p.state_layout)),
                "combined": Out(stream.Signature(p.state_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Let all elements move together."""
        m = Module()
        p = self.parameters
        kept, gates = self.combine == Combine.KEEP, self.combine == Combine.GATE
        move, taken = Signal(), Signal()
        m.d.comb += [
            move.eq(~self.combined.valid | self.combined.ready),
            taken.eq(self.results.valid & (kept | self.old.valid)),
            self.results.ready.eq(move & (kept | self.old.valid)),
            self.old.ready.eq(move & ~kept & self.results.valid),
        ]
        # The activation, the product, the rounding.
        stages = ActivationLane.STAGES + 2
        valid = delay_line(m, taken, stages, name="valid", enable=move, reset=True)[-1]
        m.d.comb += self.combined.valid.eq(valid)
        pieces = ActivationFunctionsParameters().pieces
        for i in range(p.head_size):
            result, old = self.results.payload[i], self.old.payload[i]
            m.submodules[f"activation_{i}"] = activation = ActivationLane(pieces=pieces)
            m.d.comb += [
                activation.enable.eq(move),
                activation.value.eq(old[: VALUE.width].as_signed()),
                activation.function.eq(0),
            ]
            total, _saturated = saturate(old + (result << self.lift), STATE)
            # What is added, or passes as it is, waits beside the activation.
            beside = Mux(kept | gates, result, total)
            beside = delay_line(m, beside, ActivationLane.STAGES, name=f"beside_{i}", enable=move)[
                -1
            ]
            # One multiplier's register serves all three: two of them pass it as they are.
            product = Signal(PRODUCT, name=f"product_{i}", reset_less=True)
            gated, _saturated = saturate(
                rounded_right(product, GATE_DROP, Rounding.HALF_EVEN), OPERAND
            )
            with m.If(move):
                m.d.sync += [
                    product.eq(
                        Mux(gates, activation.result * beside[: RESULT.width].as_signed(), beside)
                    ),
                    self.combined.payload[i].eq(Mux(gates, gated, product)),
                ]
        return m
