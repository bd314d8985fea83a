"""What becomes of a linear layer's results: kept, added to the hidden state, or activated."""

from typing import Annotated, Any

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.multiply_add import multiply_add
from hdl.arith.rounding import Rounding, rounded_right
from hdl.arith.saturating_add import saturate
from hdl.meadow.attention_parameters import RESULT
from hdl.meadow.parameters import GATE_DROP, MOST_LIFT, STATE, Combine
from hdl.meadow.tile.element_parameters import OPERAND, SCALE_BITS
from hdl.nonlinear.activation_functions import (
    VALUE,
    Activation,
    ActivationFunctionsParameters,
    ActivationLane,
)
from hdl.parameters import Parameters, Range, parameter_object
from hdl.unit import Unit

PRODUCT = signed(2 * RESULT.width)


@parameter_object
class CombinerParameters(Parameters):
    """Dimensions of the combiner; they also drive its testbench.

    Parameters
    ----------
    size : int
        Elements of a word.
    activation : Activation
        The function between a layer's feed-forward matrices.
    gated : bool
        Whether its output multiplies the results, or is multiplied by a constant.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    size: Annotated[int, Range(1, 256, "elements")] = 64
    activation: Activation = Activation.SILU
    gated: bool = True

    @property
    def result_layout(self) -> data.ArrayLayout:
        """A word of results."""
        return data.ArrayLayout(RESULT, self.size)

    @property
    def state_layout(self) -> data.ArrayLayout:
        """A word of hidden states, or of what stands in their place."""
        return data.ArrayLayout(STATE, self.size)

    @property
    def latency(self) -> int:
        """Cycles from a word's results to what it becomes."""
        return 2 + (0 if self.activation is Activation.RELU else ActivationLane.STAGES)


class Combiner(Unit):
    """Combine results with what was in their place, a word a cycle.

    **Latency** 6 cycles, 2 with ReLU. **Throughput** a word a cycle.

    **Numerics** `KEEP`: the result. `ADD`: ``old + result * 2**lift``, clamped to 24 bits.
    `ACTIVATE` with a gate: the activation of the old value, times the result; without one the
    activation of the result, times `scale`; over ``2**GATE_DROP``, rounded half to even and clamped
    to INT8. SiLU and GeLU are those of `ActivationFunctions`, in and out Q6.10; ReLU keeps the
    steps that its input has.

    Parameters
    ----------
    parameters : CombinerParameters
        Dimensions.

    Members
    -------
    combine, lift : In
        Stand while there is work.
    scale : In(16)
        Without a gate: what an activated result is multiplied by. Stands.
    results : In(stream)
        A word of 16-bit results.
    old : In(stream)
        What was in its place, unless results are kept; what is to be activated has 16 bits.
    combined : Out(stream)
        What takes the place.

    Raises
    ------
    ValueError
        By `CombinerParameters`.
    """

    def __init__(self, *, parameters: CombinerParameters) -> None:
        self.parameters = p = parameters
        scale = {} if p.gated else {"scale": In(SCALE_BITS)}
        super().__init__(
            {
                "combine": In(Combine),
                "lift": In(range(MOST_LIFT + 1)),
                **scale,
                "results": In(stream.Signature(p.result_layout)),
                "old": In(stream.Signature(p.state_layout)),
                "combined": Out(stream.Signature(p.state_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Let all elements move together."""
        m = Module()
        p = self.parameters
        kept, activates = self.combine == Combine.KEEP, self.combine == Combine.ACTIVATE
        # What needs nothing of what was there.
        alone = kept if p.gated else kept | activates
        move, taken = Signal(), Signal()
        m.d.comb += [
            move.eq(~self.combined.valid | self.combined.ready),
            taken.eq(self.results.valid & (alone | self.old.valid)),
            self.results.ready.eq(move & (alone | self.old.valid)),
            self.old.ready.eq(move & ~alone & self.results.valid),
        ]
        # The activation, the product, the rounding.
        waits = p.latency - 2
        valid = delay_line(m, taken, p.latency, name="valid", enable=move, reset=True)[-1]
        m.d.comb += self.combined.valid.eq(valid)
        for i in range(p.size):
            result, old = self.results.payload[i], self.old.payload[i]
            activated = self._activated(m, i, (old if p.gated else result)[: VALUE.width], move)
            total, _saturated = saturate(old + (result << self.lift), STATE)
            # What is added, or passes as it is, waits beside the activation.
            beside = Mux(kept | activates, result, total)
            beside = delay_line(m, beside, waits, name=f"beside_{i}", enable=move)[-1]
            factor = beside[: RESULT.width].as_signed() if p.gated else self.scale
            multiplied = multiply_add(m, f"multiply_{i}", Value.cast(activated), factor)
            # One multiplier's register serves all three: two of them pass it as they are.
            product = Signal(PRODUCT, name=f"product_{i}", reset_less=True)
            narrow, _saturated = saturate(
                rounded_right(product, GATE_DROP, Rounding.HALF_EVEN), OPERAND
            )
            with m.If(move):
                m.d.sync += [
                    product.eq(Mux(activates, multiplied, beside)),
                    self.combined.payload[i].eq(Mux(activates, narrow, product)),
                ]
        return m

    def _activated(self, m: Module, number: int, value: Value, move: Signal) -> Any:
        """Return the activation of a value, with ReLU at once."""
        activation = self.parameters.activation
        if activation is Activation.RELU:
            return Mux(value[-1], 0, value[:-1])
        pieces = ActivationFunctionsParameters().pieces
        m.submodules[f"activation_{number}"] = lane = ActivationLane(pieces=pieces)
        m.d.comb += [
            lane.enable.eq(move),
            lane.value.eq(value.as_signed()),
            lane.function.eq(activation.value),
        ]
        return lane.result
