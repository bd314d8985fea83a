"""Control of a decode step: its tokens, its combined matrix, and the load of its inputs.

Section 4.1 and Figure 11 (b) of the paper: the arriving token's input and those of the recomputed
tokens form one matrix. The inputs of recomputed tokens are read from the KV eDRAM.
"""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.control.vector_reader import VectorReader
from hdl.kelle.edram.kv_edram import SIDES
from hdl.kelle.eviction.eviction_parameters import vector_layout
from hdl.kelle.parameters import KelleParameters
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class StepControl(Unit):
    """Take the tokens of a step, list the combined matrix, and load its input vectors.

    A member of the combined matrix is one of its rows. The arriving tokens' inputs are loaded
    first, so that the queries can begin while the inputs of the recomputed tokens are read. Several
    tokens may name the same sequence. The stored vectors of the sequences that a token names are
    members.

    A vector of which the matrix has the token's row is `listed`. When a token becomes popular in
    the middle of a step, its vector is not: the later tokens of the step read its keys and values
    from the eDRAM, which still holds the same values that a recomputation gives.

    **Latency** 1 + ``inputs`` cycles from a token to its complete input, if the input does not
    wait; 2 cycles per stored vector to list them; then for each recomputed token those of
    `VectorReader`. **Throughput** one step at a time.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    layer : In
        Layer of the step.
    positions : In(stream)
        The arriving tokens; `last`, or the last place of a step, ends the list. A sequence that
        does not exist counts as the last one.
    hidden : In(stream)
        Inputs of the attention block, slice by slice; then those of the feed-forward block, which
        overwrite them.
    may_start : In(1)
        The previous step has completely finished.
    accepts : Out(1)
        The last token of a step is transferred in this cycle.
    predicts : In(1)
        Valid with `accepts`: the step computes the LM head for one token, from its input only.
    promoted, promoted_sequence : In
        While `promoted.valid` is 1: a token of this sequence became popular in this step.
    vector_request : Out(stream), vector_response : In
        Lookups of the stored input vectors of a layer and sequence, as in `EvictionController`.
    members, count : Out
        Combined matrix: the arriving tokens, then those recomputed in this step; number of rows.
    last_token : Out
        Index of the last arriving token.
    sequences : Out
        Sequence of each arriving token.
    listed : Out(layer_vectors)
        For each stored vector of the layer, sequence by sequence, whether it is a member.
    arrived, renewed : Out
        Number of slices of the last token's input that are held: of the attention block's, and
        of the feed-forward block's.
    loaded : Out(1)
        All inputs of the attention block are held.
    finished : In(1)
        The results of the step are complete.
    inputs : Out
        Writes of slices of inputs.
    rests : Out(1)
        No step is in progress.
    keys_read, values_read : Out(stream)
        Addresses of the eDRAM.
    keys, values : In
        Rows read, in the cycle after the address.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        edram = p.memory.edram
        super().__init__(
            {
                "layer": In(p.layer_bits),
                "positions": In(stream.Signature(p.arriving_layout)),
                "hidden": In(stream.Signature(p.slice_layout)),
                "may_start": In(1),
                "accepts": Out(1),
                "predicts": In(1),
                "promoted": In(p.eviction.promoted_layout),
                "promoted_sequence": In(max(p.sequence_bits, 1)),
                "vector_request": Out(stream.Signature(p.eviction.layer_bits)),
                "vector_response": In(data.ArrayLayout(vector_layout(p.eviction), p.vectors)),
                "members": Out(data.ArrayLayout(p.member_layout, p.members)),
                "count": Out(bits_for(p.members)),
                "last_token": Out(p.token_shape),
                "sequences": Out(p.sequences_layout),
                "listed": Out(p.layer_vectors),
                "arrived": Out(bits_for(p.hidden_slices)),
                "loaded": Out(1),
                "renewed": Out(bits_for(p.hidden_slices)),
                "finished": In(1),
                "inputs": Out(p.slice_write(p.members * p.hidden_slices)),
                "rests": Out(1),
                **{f"{side}_read": Out(stream.Signature(edram.address_bits)) for side in SIDES},
                **{side: In(edram.row_layout) for side in SIDES},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Take tokens and inputs, list and load the members, and wait for the end of the step."""
        m = Module()
        p = self.parameters
        m.submodules.reader = reader = self._reader(m)
        members = Array(
            Signal(p.member_layout, name=f"member_{i}", reset_less=True) for i in range(p.members)
        )
        m.d.comb += [port.eq(held) for port, held in zip(self.members, members, strict=True)]
        # The member and the slice of its input that are taken next.
        member, slice_ = Signal(range(p.members)), Signal(range(p.hidden_slices))
        last_arriving, last_slice = member == self.last_token, slice_ == p.hidden_slices - 1
        token = self.positions.payload
        ends_list = token.last | self.predicts | (member == p.step_tokens - 1)
        stored = Signal(range(max(p.layer_vectors, 2)))
        # `stored` counts the vectors of all sequences, `place` those of `sequence`.
        sequence, place = Signal(range(max(p.batch, 2))), Signal(range(max(p.vectors, 2)))
        vector = Array(self.vector_response)[place]
        last_place = place == p.vectors - 1
        m.d.comb += self.vector_request.payload.eq(p.cache(self.layer, sequence))
        predicts = Signal(reset_less=True)
        # A vector is a member if a token of the step is of its sequence.
        uses, named = Signal(), Signal(p.step_tokens)
        m.d.comb += uses.eq(vector.valid & (named.any() if p.batch > 1 else 1))
        for number, own in enumerate(self.sequences):
            arrives = number <= self.last_token if number else 1
            m.d.comb += named[number].eq((own == sequence) & arrives)

        m.d.comb += [
            self.arrived.eq(p.hidden_slices),
            reader.vectors.payload.eq(members[member].vector),
            self.inputs.address.eq(members[member].vector * p.hidden_slices + slice_),
            self.inputs["values"].eq(self.hidden.payload),
        ]
        with m.If(self.inputs.strobe):
            m.d.sync += slice_.eq(Mux(last_slice, 0, slice_ + 1))
            with m.If(last_slice):
                m.d.sync += member.eq(member + 1)

        if p.step_tokens > 1:
            # The vector may be that of a member, whose last slot was evicted in this step.
            place_of_promoted = self.promoted_sequence * p.vectors + self.promoted.vector
            with m.If(self.promoted.valid):
                m.d.sync += self.listed.bit_select(place_of_promoted, 1).eq(0)

        with m.FSM():
            # The registers of a token are written in every cycle until the token is transferred,
            # but not while the previous step has not finished.
            with m.State("TOKENS"):
                m.d.comb += [
                    self.rests.eq(1),
                    self.arrived.eq(0),
                    self.positions.ready.eq(self.may_start),
                    self.accepts.eq(self.positions.valid & self.positions.ready & ends_list),
                ]
                m.d.sync += [stored.eq(0), sequence.eq(0), predicts.eq(self.predicts)]
                with m.If(self.may_start):
                    m.d.sync += [
                        # The arriving tokens' vectors follow all stored vectors.
                        members[member].vector.eq(p.layer_vectors + member),
                        members[member].position.eq(token.position),
                        self.count.eq(member + 1),
                    ]
                    if p.batch > 1:
                        number = token.sequence
                        if p.batch < 1 << p.sequence_bits:
                            number = Mux(number < p.batch, number, p.batch - 1)
                        m.d.sync += Array(self.sequences)[member].eq(number)
                # Other parts refer to the last token until the next step begins.
                if p.step_tokens > 1:
                    with m.If(self.accepts):
                        m.d.sync += self.last_token.eq(member)
                with m.If(self.positions.valid & self.positions.ready):
                    m.d.sync += member.eq(Mux(ends_list, 0, member + 1))
                with m.If(self.accepts):
                    m.next = "ARRIVING_INPUTS"
            with m.State("ARRIVING_INPUTS"):
                m.d.comb += [
                    self.hidden.ready.eq(1),
                    self.inputs.strobe.eq(self.hidden.valid),
                    # The queries start while the last input is transferred.
                    self.arrived.eq(Mux(last_arriving, slice_, 0)),
                ]
                with m.If(self.hidden.valid & last_slice & last_arriving):
                    m.d.sync += member.eq(0)
                    m.next = "LOOK_UP"
                    with m.If(predicts):
                        m.next = "FEED_FORWARD"
            # Other lookups may follow, so that each vector has a request of its own.
            with m.State("LOOK_UP"):
                m.d.comb += self.vector_request.valid.eq(1)
                with m.If(self.vector_request.ready):
                    m.next = "LIST_VECTOR"
            # The list has no gaps, so that `count` is the number of vectors per tile of W_K and
            # W_V. No token is promoted or freed in this state.
            with m.State("LIST_VECTOR"):
                m.d.sync += [
                    stored.eq(stored + 1),
                    place.eq(Mux(last_place, 0, place + 1)),
                    sequence.eq(sequence + last_place),
                    # The inputs of recomputed tokens follow those of the arriving ones.
                    member.eq(self.last_token + 1),
                ]
                if p.step_tokens > 1:
                    m.d.sync += self.listed.bit_select(stored, 1).eq(uses)
                m.next = "LOOK_UP"
                with m.If(uses):
                    m.d.sync += [
                        members[self.count].vector.eq(stored),
                        members[self.count].position.eq(vector.position),
                        self.count.eq(self.count + 1),
                    ]
                with m.If(stored == p.layer_vectors - 1):
                    m.next = "RECOMPUTED_INPUTS"
                    with m.If((self.count == self.last_token + 1) & ~uses):
                        m.d.sync += member.eq(0)
                        m.next = "ATTENTION"
            with m.State("RECOMPUTED_INPUTS"):
                m.d.comb += [
                    reader.vectors.valid.eq(1),
                    reader.slices.ready.eq(1),
                    self.inputs.strobe.eq(reader.slices.valid),
                    self.inputs["values"].eq(reader.slices.payload),
                ]
                with m.If(reader.vectors.ready & (member == self.count - 1)):
                    m.d.sync += member.eq(0)
                    m.next = "ATTENTION"
            # The normalised inputs of the feed-forward block overwrite those of the attention
            # block, which are no longer needed. Up and gate start while the last is transferred.
            with m.State("ATTENTION"):
                m.d.comb += [
                    self.loaded.eq(1),
                    self.hidden.ready.eq(1),
                    self.inputs.strobe.eq(self.hidden.valid),
                    self.renewed.eq(Mux(last_arriving, slice_, 0)),
                ]
                with m.If(self.hidden.valid & last_slice & last_arriving):
                    m.d.sync += member.eq(0)
                    m.next = "FEED_FORWARD"
            with m.State("FEED_FORWARD"):
                m.d.comb += [self.loaded.eq(1), self.renewed.eq(p.hidden_slices)]
                with m.If(self.finished):
                    m.next = "TOKENS"
        return m

    def _reader(self, m: Module) -> VectorReader:
        """Return the reader of stored vectors, connected to the eDRAM."""
        reader = VectorReader(parameters=self.parameters)
        m.d.comb += reader.layer.eq(self.layer)
        for side in SIDES:
            connect_streams(m, getattr(reader, f"{side}_read"), getattr(self, f"{side}_read"))
            m.d.comb += getattr(reader, side).eq(getattr(self, side))
        return reader
