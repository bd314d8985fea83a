"""SwiGLU product between the feed-forward block's matrices: activation(gate) * up."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.arith.requantiser import Requantiser
from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory import Memory
from hdl.nonlinear.activation_functions import VALUE, ActivationFunctions, ActivationLane
from hdl.unit import Unit

PRODUCT_BITS = 32
ROUNDING_STAGES = 2


class GatedProducts(Unit):
    """Multiply slices of `up_proj` by the activated slices of `gate_proj`, element by element.

    There is no handshake. The slices of up are held until the same channels' gates arrive; at most
    one head of up is ahead of its gates.

    **Latency** 7 cycles from a gate to its product. **Throughput** one slice per cycle.

    **Numerics** gates in Q6.10, activated as in `ActivationFunctions`; the product with up drops
    the gate's 10 fraction bits, rounded to nearest, ties to even, and saturates at 16 bits.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions, with `gated`.

    Members
    -------
    ups, gates : In
        Writes of slices of up and of gates; with several sequences, the same slice of each sequence
        before the next slice.
    products : Out
        Writes of products, in the order of the gates.
    last_sequence : Out(1)
        The slice on `products` is that of the last sequence.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        slices = p.slice_write(p.batch * p.intermediate_slices)
        super().__init__(
            {
                "ups": In(slices),
                "gates": In(slices),
                "products": Out(slices),
                "last_sequence": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read a slice of up when its activated gate is valid."""
        m = Module()
        p = self.parameters
        # Room for the head being written and the head being read: consecutive heads use different
        # addresses.
        places = ceil_log2(2 * p.head_slices * p.batch)
        m.submodules.held = held = Memory(depth=1 << places, width=p.slice_layout.size)
        m.submodules.activation = activation = ActivationFunctions(parameters=p.functions)
        came = Signal(data.StructLayout({"strobe": 1, "address": self.gates.address.shape()}))
        stages = ActivationLane.STAGES
        flags = delay_line(m, came, stages + 1 + ROUNDING_STAGES, name="came", reset=True)
        reads = flags[stages - 1]
        m.d.comb += [
            came.strobe.eq(self.gates.strobe),
            came.address.eq(self.gates.address),
            activation.inputs.valid.eq(self.gates.strobe),
            activation.inputs.payload.function.eq(p.activation.value),
            activation.outputs.ready.eq(1),
            held.write_enable.eq(self.ups.strobe),
            held.write_address.eq(self.ups.address[:places]),
            held.write_data.eq(self.ups["values"]),
            held.read_enable.eq(reads.strobe),
            held.read_address.eq(reads.address[:places]),
            self.products.strobe.eq(flags[-1].strobe),
            self.products.address.eq(flags[-1].address),
        ]
        # Each slice is computed for all sequences before the next slice.
        sequence = Signal(range(p.batch))
        last = sequence == p.batch - 1
        with m.If(self.products.strobe):
            m.d.sync += sequence.eq(Mux(last, 0, sequence + 1))
        m.d.comb += self.last_sequence.eq(self.products.strobe & last)
        ups = data.View(p.slice_layout, held.read_data)
        for i in range(p.rows):
            rounding = Requantiser(width=PRODUCT_BITS, scale_width=1, stages=ROUNDING_STAGES)
            m.submodules[f"rounding_{i}"] = rounding
            product = Signal(rounding.a.shape(), name=f"product_{i}", reset_less=True)
            m.d.sync += product.eq(activation.outputs.payload["values"][i] * ups[i])
            m.d.comb += [
                activation.inputs.payload["values"][i].eq(self.gates["values"][i]),
                rounding.a.eq(product),
                rounding.scale.eq(1),
                rounding.shift.eq(VALUE.fraction_bits),
                self.products["values"][i].eq(rounding.result),
            ]
        return m
