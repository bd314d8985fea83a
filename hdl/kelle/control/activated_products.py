"""Between the feed-forward block's matrices where there is no gate: an activation alone.

Section 2.1 of the paper: a standard feed-forward block, with an activation such as GeLU. OPT, which
Section 7 measures as well, has ReLU.
"""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.kelle.layouts import slice_write
from hdl.kelle.parameters import KelleParameters
from hdl.nonlinear.activation_functions import Activation, ActivationFunctions, ActivationLane
from hdl.unit import Unit


class ActivatedProducts(Unit):
    """Give what the first feed-forward matrix makes through the activation.

    Nothing here can wait, and nothing has to.

    **Latency** 4 cycles, or 1 with ReLU. **Throughput** one slice a cycle.

    **Numerics** as in `ActivationFunctions`, in Q6.10 before and behind; ReLU takes and gives
    whatever the step is, and rounds nothing.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions.

    Members
    -------
    ups : In
        Slices; where there are several sequences, of all of them in turn.
    products : Out
        Slices on their way, in the same order.
    last_sequence : Out(1)
        A slice is on its way that all other sequences have already.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        slices = slice_write(p, p.sequences * p.products)
        super().__init__({"ups": In(slices), "products": Out(slices), "last_sequence": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        """Let places wait beside the values."""
        m = Module()
        p = self.parameters
        relu = p.activation is Activation.RELU
        stages = 1 if relu else ActivationLane.STAGES
        strobe = delay_line(m, self.ups.strobe, stages, name="strobe", reset=True)[-1]
        address = delay_line(m, self.ups.address, stages, name="address")[-1]
        m.d.comb += [self.products.strobe.eq(strobe), self.products.address.eq(address)]
        # Of each slice the sequences come in turn.
        sequence = Signal(range(p.sequences))
        last = sequence == p.sequences - 1
        with m.If(strobe):
            m.d.sync += sequence.eq(Mux(last, 0, sequence + 1))
        m.d.comb += self.last_sequence.eq(strobe & last)
        if relu:
            for value, product in zip(self.ups["values"], self.products["values"], strict=True):
                held = Signal.like(value, name="held", reset_less=True)
                m.d.sync += held.eq(Mux(value < 0, 0, value))
                m.d.comb += product.eq(held)
            return m
        m.submodules.activation = activation = ActivationFunctions(parameters=p.functions)
        m.d.comb += [
            activation.inputs.valid.eq(self.ups.strobe),
            activation.inputs.payload.function.eq(p.activation.value),
            activation.inputs.payload["values"].eq(self.ups["values"]),
            activation.outputs.ready.eq(1),
            self.products["values"].eq(activation.outputs.payload["values"]),
        ]
        return m
