"""Execution of the tokens of LAD with the AXI shell: slices in order, and bursts of weights."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.memory.burst_port import BurstReadPort
from hdl.shell.lad_axi_parameters import LadAxiParameters
from hdl.unit import Unit


class LadTokens(Unit):
    """Give LAD the slices of one token after another, and request the weights of all layers.

    The slices of a token's angles and hidden states are those of the program; those of the norms
    follow from memory. The weights do not depend on the token: they are requested as soon as the
    ports accept them, those of the next token during the last part of this one.

    **Latency** 0 cycles. **Throughput** one slice per cycle.

    Parameters
    ----------
    parameters : LadAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    tokens : In(stream)
        See `LadAxiParameters.token_layout`; transferred when all slices of the token are.
    slices : In(stream)
        The slices of the program.
    norms : Out(BurstReadPort)
        The port of the norms' weights.
    given : Out(stream)
        As `slices` of `Lad`.
    requests : Out(stream)
        Bursts of the weights of a vector unit.
    written : In(1)
        All rows that earlier tokens wrote are visible.
    begins, begun, ends : Out(1)
        The first slice of a token is transferred in this cycle; it was in an earlier one; the token
        is transferred.
    grouped : In(1)
        All other requests of the token are transferred.
    illegal : Out(1)
        A length of a token is 0 or above the capacity; it and all later ones are not executed.
    clear_flags : In(1)
        Clear `illegal`.
    """

    def __init__(self, *, parameters: LadAxiParameters) -> None:
        self.parameters = p = parameters
        vector = p.lad.tile.vector.vector_layout.size
        norms = BurstReadPort(address_bits=p.address_bits, word_shape=vector, longest=p.longest)
        super().__init__(
            {
                "tokens": In(stream.Signature(p.token_layout)),
                "slices": In(stream.Signature(vector)),
                "norms": Out(norms),
                "given": Out(stream.Signature(p.lad.slice_layout)),
                "requests": Out(stream.Signature(norms.request_layout)),
                "written": In(1),
                "begins": Out(1),
                "begun": Out(1),
                "ends": Out(1),
                "grouped": In(1),
                "illegal": Out(1),
                "clear_flags": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the slices of a token; request its weights in parallel."""
        m = Module()
        p, lad, token = self.parameters, self.parameters.lad, self.tokens.payload
        slots, bits = lad.tile.slots, lad.tile.length_shape.width
        lengths = [token.lengths[sample] for sample in range(lad.batch)]
        # With some capacities, no number of so many bits is above them.
        fits = [one <= slots if slots + 1 < 1 << bits else Const(1) for one in lengths]
        legal = Cat((one != 0) & fit for one, fit in zip(lengths, fits, strict=True)).all()
        offered = self.tokens.valid & legal
        predicts = token.predicts if lad.vocabulary_size else 0

        # The slices of the program, then those of the norms.
        number, sample = Signal(range(p.token_slices + 1)), Signal(range(lad.batch))
        given, complete, transfers = self.given, Signal(), Signal()
        of_norms = number == p.token_slices
        m.d.comb += [
            given.payload.length.eq(Array(lengths)[sample]),
            transfers.eq(given.valid & given.ready),
            self.begun.eq(number != 0),
            self.begins.eq(transfers & ~self.begun),
        ]
        if lad.vocabulary_size:
            m.d.comb += given.payload.predicts.eq(token.predicts)
        values = Value.cast(given.payload["values"])
        with m.If(of_norms):
            # The slices of a complete token are transferred; its requests may be not.
            m.d.comb += [
                values.eq(Value.cast(self.norms.words.payload.word)),
                given.valid.eq(self.norms.words.valid & ~complete),
                self.norms.words.ready.eq(given.ready & ~complete),
            ]
        with m.Else():
            # A step of a token reads the rows that the tokens before it wrote.
            permit = offered & (self.begun | self.written)
            m.d.comb += [
                values.eq(self.slices.payload),
                given.valid.eq(self.slices.valid & permit),
                self.slices.ready.eq(given.ready & permit),
            ]
        # For each slice index all samples: the sample changes with each slice.
        with m.If(transfers & ~of_norms):
            m.d.sync += [
                number.eq(number + 1),
                sample.eq(Mux(sample == lad.batch - 1, 0, sample + 1)),
            ]
        with m.If(transfers & of_norms & self.norms.words.payload.last):
            m.d.sync += complete.eq(1)

        requested = self._request(m, offered, predicts)
        m.d.comb += [
            self.ends.eq(complete & requested & self.grouped),
            self.tokens.ready.eq(self.ends),
        ]
        with m.If(self.ends):
            m.d.sync += [number.eq(0), complete.eq(0)]
        with m.If(self.clear_flags):
            m.d.sync += self.illegal.eq(0)
        with m.Elif(self.tokens.valid & ~legal):
            m.d.sync += self.illegal.eq(1)
        return m

    def _request(self, m: Module, offered: Value, predicts: Value | int) -> Value:
        """Request the norms' weights and all matrices of a token; return whether it is done."""
        p, lad = self.parameters, self.parameters.lad
        norms, weights = self.norms.requests, self.requests
        normed, all_layers, requested = Signal(), Signal(), Signal()
        layer, place = Signal(range(max(lad.layers, 2))), Signal(range(p.unit_words))
        m.d.comb += [
            norms.payload.length.eq((2 * lad.layers + predicts) * lad.hidden_slices),
            norms.valid.eq(offered & ~normed),
            weights.payload.address.eq(place),
            weights.payload.length.eq(
                Mux(all_layers, lad.vocabulary_transfers, lad.layer_transfers)
            ),
            weights.valid.eq(offered & ~requested),
        ]
        with m.If(norms.valid & norms.ready):
            m.d.sync += normed.eq(1)
        # The weights of all layers are consecutive, and those of the LM head follow them.
        with m.If(weights.valid & weights.ready):
            m.d.sync += [layer.eq(layer + 1), place.eq(place + lad.layer_transfers)]
            with m.If(layer == lad.layers - 1):
                m.d.sync += [all_layers.eq(1), requested.eq(~predicts)]
            with m.If(all_layers):
                m.d.sync += requested.eq(1)
        with m.If(self.ends):
            m.d.sync += [
                normed.eq(0),
                all_layers.eq(0),
                requested.eq(0),
                layer.eq(0),
                place.eq(0),
            ]
        return requested
