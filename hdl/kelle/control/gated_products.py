"""SwiGLU product between the feed-forward block's matrices: activation(gate) * up."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.arith.multiply_add import divided_product
from hdl.arith.requantiser import Requantiser
from hdl.kelle.control.slice_pieces import collect_pieces, count_pieces, piece_of
from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory import Memory
from hdl.nonlinear.activation_functions import VALUE, ActivationFunctions, ActivationLane
from hdl.unit import Unit

PRODUCT_BITS = 32
PRODUCT_STAGES = 2
ROUNDING_STAGES = 2


class GatedProducts(Unit):
    """Multiply slices of `up_proj` by the activated slices of `gate_proj`, element by element.

    There is no handshake. The slices of up are held until the same channels' gates arrive; at most
    one head of up is ahead of its gates. The gates of all tokens may arrive back to back; they
    are held, because a slice passes the activation in `product_pieces` pieces.

    **Latency** ``9 + product_pieces`` cycles from a gate to its product, if no other gate is ahead
    of it. **Throughput** one slice per `product_pieces` cycles.

    **Numerics** gates in Q6.10, activated as in `ActivationFunctions`; the product with up drops
    the gate's 10 fraction bits, rounded to nearest, ties to even, and saturates at 16 bits.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions, with `gated`.

    Members
    -------
    ups, gates : In
        Writes of slices of up and of gates, in the order of their addresses; with several
        tokens, the same slice of each token before the next slice.
    last_token : In
        Index of the step's last token.
    products : Out
        Writes of products, in the order of the gates.
    of_last_token : Out(1)
        The slice on `products` is that of the last token.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        slices = p.slice_write(p.step_tokens * p.intermediate_slices)
        super().__init__(
            {
                "ups": In(slices),
                "gates": In(slices),
                "last_token": In(p.token_shape),
                "products": Out(slices),
                "of_last_token": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read slices of gates and of up piece by piece; activate, multiply and collect them."""
        m = Module()
        p = self.parameters
        # Room for the head being written and the head being read: consecutive heads use different
        # addresses.
        places = ceil_log2(2 * p.head_slices * p.step_tokens)
        waiting = Signal(range((1 << places) + 1))
        reads = waiting != 0
        piece, ends = count_pieces(m, reads, p.product_pieces)
        m.d.sync += waiting.eq(waiting + self.gates.strobe - (reads & ends))
        place, _last = self._place(m, "read", reads & ends)
        operands = []
        for name, port, address in (
            ("gates_held", self.gates, place[:places]),
            ("ups_held", self.ups, place[:places]),
        ):
            m.submodules[name] = held = Memory(depth=1 << places, width=p.slice_layout.size)
            m.d.comb += [
                held.write_enable.eq(port.strobe),
                held.write_address.eq(port.address[:places]),
                held.write_data.eq(port["values"]),
                held.read_enable.eq(reads),
                held.read_address.eq(address),
            ]
            operands.append(piece_of(m, held.read_data, piece, p.product_pieces))

        m.submodules.activation = activation = ActivationFunctions(parameters=p.functions)
        inputs, outputs = activation.inputs, activation.outputs
        stages = ActivationLane.STAGES
        latency = 1 + stages + PRODUCT_STAGES + ROUNDING_STAGES
        valid = delay_line(m, reads, latency, name="valid", reset=True)
        m.d.comb += [
            inputs.valid.eq(valid[1]),
            inputs.payload.function.eq(p.activation.value),
            inputs.payload["values"].eq(operands[0]),
            outputs.ready.eq(1),
        ]
        up_piece = data.View(outputs.payload["values"].shape(), operands[1])
        ups = delay_line(m, up_piece, stages, name="up")[-1]
        results = []
        for i in range(p.functions.lanes):
            rounding = Requantiser(width=PRODUCT_BITS, scale_width=1, stages=ROUNDING_STAGES)
            m.submodules[f"rounding_{i}"] = rounding
            product = Signal(rounding.a.shape(), name=f"product_{i}", reset_less=True)
            activated = outputs.payload["values"][i]
            m.d.sync += product.eq(divided_product(m, f"gated_{i}", activated, ups[i], enable=1))
            m.d.comb += [
                rounding.a.eq(product),
                rounding.scale.eq(1),
                rounding.shift.eq(VALUE.fraction_bits),
            ]
            results.append(rounding.result)
        complete, slice_ = collect_pieces(
            m, valid[-1], Cat(results), p.slice_layout, p.product_pieces
        )
        product_place, last = self._place(m, "product", complete)
        m.d.comb += [
            self.products.strobe.eq(complete),
            self.products.address.eq(product_place),
            self.products["values"].eq(slice_),
        ]
        m.d.comb += self.of_last_token.eq(self.products.strobe & last)
        return m

    def _place(self, m: Module, name: str, moves: Value) -> tuple[Signal, Value]:
        """Return the address of a slice, to which each move adds, and whether it is a last token's.

        Each slice is computed for all tokens before the next slice. The addresses of the tokens
        that a step has not are skipped.
        """
        p = self.parameters
        slices = p.step_tokens * p.intermediate_slices
        place = Signal(range(slices), name=f"{name}_place")
        token = Signal(p.token_shape, name=f"{name}_token")
        last = token == self.last_token
        following = Mux(last, place - token + p.step_tokens, place + 1)
        with m.If(moves):
            m.d.sync += [
                token.eq(Mux(last, 0, token + 1)),
                place.eq(Mux(following == slices, 0, following)),
            ]
        return place, last
