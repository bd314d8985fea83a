"""Activation between the matrices of a feed-forward block without a gate.

Section 2.1 of the paper: a standard feed-forward block, with an activation such as GeLU. OPT, which
Section 7 also measures, has ReLU.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.kelle.parameters import KelleParameters
from hdl.nonlinear.activation_functions import Activation, ActivationFunctions, ActivationLane
from hdl.unit import Unit


class ActivatedProducts(Unit):
    """Apply the activation function to the output of the first feed-forward matrix.

    There is no handshake: each slice is processed in the cycle in which it arrives.

    **Latency** 4 cycles, or 1 with ReLU. **Throughput** one slice per cycle.

    **Numerics** as in `ActivationFunctions`, with inputs and outputs in Q6.10. ReLU works with any
    quantisation step and does not round.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions, without `gated`.

    Members
    -------
    ups : In
        Writes of slices; with several tokens, the same slice of each token before the next slice.
    last_token : In
        Index of the step's last token.
    products : Out
        Writes of activated slices, in the same order.
    of_last_token : Out(1)
        The slice on `products` is that of the last token.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        slices = p.slice_write(p.step_tokens * p.intermediate_slices)
        super().__init__(
            {
                "ups": In(slices),
                "last_token": In(p.token_shape),
                "products": Out(slices),
                "of_last_token": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Delay the addresses by the latency of the activation."""
        m = Module()
        p = self.parameters
        relu = p.activation is Activation.RELU
        stages = 1 if relu else ActivationLane.STAGES
        strobe = delay_line(m, self.ups.strobe, stages, name="strobe", reset=True)[-1]
        address = delay_line(m, self.ups.address, stages, name="address")[-1]
        m.d.comb += [self.products.strobe.eq(strobe), self.products.address.eq(address)]
        # Each slice is computed for all tokens before the next slice.
        token = Signal(p.token_shape)
        last = token == self.last_token
        with m.If(strobe):
            m.d.sync += token.eq(Mux(last, 0, token + 1))
        m.d.comb += self.of_last_token.eq(strobe & last)
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
