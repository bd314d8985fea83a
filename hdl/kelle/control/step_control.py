"""Control of a decode step: its tokens, its combined matrix, and the load of its inputs.

Section 4.1 and Figure 11 (b) of the paper: the arriving token's input and those of the recomputed
tokens form one matrix. The inputs of recomputed tokens are read from the KV eDRAM.
"""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.edram.kv_edram import SIDES, channels_of
from hdl.kelle.eviction.eviction_parameters import vector_layout
from hdl.kelle.parameters import KelleParameters
from hdl.unit import Unit


class State(enum.Enum, shape=3):
    """State of a step, named for the event that it waits for or the data that it moves."""

    TOKEN = 0
    INPUT = 1
    MEMBERS = 2
    READ = 3
    ROW = 4
    SLICES = 5
    ATTENTION = 6
    FEED_FORWARD = 7


@dataclass(frozen=True)
class Course:
    """Registers of the position in a step."""

    state: enum.EnumView
    member: Signal  # Member whose input is loaded.
    slice: Signal  # Slice of this input.
    side: Signal  # Side of the eDRAM, as in `SIDES`.
    word: Signal  # Word of the vector's entries on that side.
    part: Signal  # Slice of the held row.


class StepControl(Unit):
    """Take a token of each sequence, list the combined matrix, and load its input vectors.

    **Latency** 1 + ``width / rows`` cycles from a token to its complete input, if the input does
    not wait; `vectors` cycles to list the stored vectors; then for each recomputed token 2 cycles
    per row of the eDRAM and 1 per slice. **Throughput** one step at a time.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    layer : In
        Layer of the step.
    tokens : In(stream)
        Positions of the arriving tokens, sequence by sequence.
    hidden : In(stream)
        Inputs of the attention block, slice by slice; then those of the feed-forward block, which
        overwrite them.
    may_start : In(1)
        The previous step has completely finished.
    accepts : Out(1)
        The last token of a step is transferred in this cycle.
    predicts : In(1)
        Valid with `accepts`: the step computes the LM head, from the arriving inputs only.
    vectors : In
        Stored input vectors of the layer, from the eviction controller.
    members, count : Out
        Combined matrix: the arriving tokens, then those recomputed in this step; number of rows.
    arrived, renewed : Out
        Number of slices of the last sequence's input that are held: of the attention block's, and
        of the feed-forward block's.
    loaded : Out(1)
        All inputs of the attention block are held.
    finished : In(1)
        The results of the step are complete.
    inputs : Out
        Writes of slices of inputs.
    rests : Out(1)
        No step is in progress.
    reading : Out(1)
        The unit uses the read ports of the eDRAM.
    keys_read, values_read : Out(stream)
        Addresses of the eDRAM.
    keys, values : In
        Rows read, in the cycle after the address.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        edram = p.memory.edram
        ports: dict[str, Any] = {
            "layer": In(p.layer_bits),
            "tokens": In(stream.Signature(p.position_bits)),
            "hidden": In(stream.Signature(p.slice_layout)),
            "may_start": In(1),
            "accepts": Out(1),
            "predicts": In(1),
            "vectors": In(data.ArrayLayout(vector_layout(p.eviction), p.stored)),
            "members": Out(data.ArrayLayout(p.member_layout, p.members)),
            "count": Out(bits_for(p.members)),
            "arrived": Out(bits_for(p.inputs)),
            "loaded": Out(1),
            "renewed": Out(bits_for(p.inputs)),
            "finished": In(1),
            "inputs": Out(p.slice_write(p.members * p.inputs)),
            "reading": Out(1),
            "rests": Out(1),
        }
        for side in SIDES:
            ports |= {
                f"{side}_read": Out(stream.Signature(edram.address_bits)),
                side: In(edram.row_layout),
            }
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        """Take tokens and inputs, list and load the members, and wait for the end of the step."""
        m = Module()
        p = self.parameters
        edram = p.memory.edram
        course = Course(
            state=Signal(State),
            member=Signal(range(p.members)),
            slice=Signal(range(p.inputs)),
            side=Signal(),
            word=Signal(range(edram.vector_entries * edram.entry_words + 1)),
            part=Signal(range(max(p.row_slices, 2))),
        )
        members = [
            Signal(p.member_layout, name=f"member_{i}", reset_less=True) for i in range(p.members)
        ]
        current = Array(members)[course.member]
        row = Signal(data.ArrayLayout(p.slice_layout, p.row_slices), reset_less=True)
        # A held row is delivered one slice per cycle, during which the eDRAM may refresh.
        looked = Signal(range(max(p.stored, 2)))
        self._connect_ports(m, course, members, current, row)
        predicts = Signal(reset_less=True)
        with m.If(self.accepts):
            m.d.sync += predicts.eq(self.predicts)
        with m.Switch(course.state):
            # The registers of a token are written in every cycle until the token is transferred.
            with m.Case(State.TOKEN):
                self._begin(m, course, current, looked)
            # The arriving inputs are loaded first, so that the queries can begin.
            with m.Case(State.INPUT):
                self._take_inputs(m, course, Mux(predicts, State.FEED_FORWARD, State.MEMBERS))
            # The set of recomputed tokens is stable: no token is promoted or freed in this state.
            with m.Case(State.MEMBERS):
                self._list_members(m, course, members, looked)
            # The fetch has priority at the ports, and an urgent refresh has priority over both.
            with m.Case(State.READ):
                ready = Mux(course.side, self.values_read.ready, self.keys_read.ready)
                with m.If(ready):
                    m.d.sync += course.state.eq(State.ROW)
            # The row is valid one cycle after its address, for one cycle.
            with m.Case(State.ROW):
                self._hold_row(m, course, row)
            # A row has several slices, and the memory of inputs takes one slice per cycle.
            with m.Case(State.SLICES):
                self._deliver_row(m, course)
            # The blocks need no control here. The normalised input of the feed-forward block
            # overwrites that of the attention block, which is no longer needed.
            with m.Case(State.ATTENTION):
                self._take_inputs(m, course, State.FEED_FORWARD)
            with m.Case(State.FEED_FORWARD):
                with m.If(self.finished):
                    m.d.sync += [course.state.eq(State.TOKEN), course.member.eq(0)]
        return m

    def _connect_ports(
        self, m: Module, course: Course, members: list[Any], current: Any, row: data.View
    ) -> None:
        """Drive the outputs of each state."""
        p = self.parameters
        edram, state = p.memory.edram, course.state
        # The entries of the input vectors follow those of all slots.
        vector = self.layer * p.stored + current.vector if p.layers > 1 else current.vector
        first = (edram.kv_heads * p.slots + vector * edram.vector_entries) * edram.entry_words
        for number, name in enumerate(SIDES):
            read = getattr(self, f"{name}_read")
            m.d.comb += [
                read.valid.eq((state == State.READ) & (course.side == number)),
                read.payload.eq(first + course.word),
            ]
        # The queries need the arriving inputs only. They start while the last input is transferred,
        # and continue while the inputs of other members are read. Up and gate start likewise.
        last_arriving = course.member == p.batch - 1
        for count, taking in ((self.arrived, State.INPUT), (self.renewed, State.ATTENTION)):
            with m.If(state == taking):
                m.d.comb += count.eq(Mux(last_arriving, course.slice, 0))
            with m.Elif(state.as_value() > taking.value):
                m.d.comb += count.eq(p.inputs)
        m.d.comb += [
            *(self.members[i].eq(members[i]) for i in range(p.members)),
            self.tokens.ready.eq((state == State.TOKEN) & self.may_start),
            self.accepts.eq(self.tokens.valid & self.tokens.ready & last_arriving),
            self.hidden.ready.eq((state == State.INPUT) | (state == State.ATTENTION)),
            self.rests.eq(state == State.TOKEN),
            self.reading.eq((state == State.READ) | (state == State.ROW)),
            self.loaded.eq(state.as_value() >= State.ATTENTION.value),
            self.inputs.address.eq(current.vector * p.inputs + course.slice),
            self.inputs.strobe.eq(
                (self.hidden.valid & self.hidden.ready) | (state == State.SLICES)
            ),
            self.inputs["values"].eq(
                Mux(
                    state == State.SLICES,
                    Array(row[i].as_value() for i in range(p.row_slices))[course.part],
                    self.hidden.payload.as_value(),
                )
            ),
        ]

    def _begin(self, m: Module, course: Course, arriving: Any, looked: Signal) -> None:
        """Make the arriving tokens the first members; their vectors follow all stored vectors."""
        p = self.parameters
        m.d.sync += [
            arriving.vector.eq(p.stored + course.member),
            arriving.position.eq(self.tokens.payload),
            self.count.eq(p.batch),
            looked.eq(0),
            course.slice.eq(0),
        ]
        with m.If(self.tokens.valid & self.tokens.ready):
            m.d.sync += course.member.eq(Mux(self.accepts, 0, course.member + 1))
        with m.If(self.accepts):
            m.d.sync += course.state.eq(State.INPUT)

    def _list_members(self, m: Module, course: Course, members: list[Any], looked: Signal) -> None:
        """Check one stored vector per cycle, and list those in use without gaps."""
        p = self.parameters
        # The list has no gaps, so that `count` is the number of vectors per tile of W_K and W_V.
        stored = Array(self.vectors[v] for v in range(p.stored))[looked]
        with m.If(stored.valid):
            new = Array(members)[self.count]
            m.d.sync += [
                new.vector.eq(looked),
                new.position.eq(stored.position),
                self.count.eq(self.count + 1),
            ]
        m.d.sync += looked.eq(looked + 1)
        with m.If(looked == p.stored - 1):
            nobody = (self.count == p.batch) & ~stored.valid
            m.d.sync += [
                course.member.eq(Mux(nobody, 0, p.batch)),
                course.state.eq(Mux(nobody, State.ATTENTION, State.READ)),
            ]

    def _take_inputs(self, m: Module, course: Course, following: Any) -> None:
        """Store the attention block's inputs, or overwrite them by the feed-forward block's."""
        p = self.parameters
        with m.If(self.hidden.valid):
            m.d.sync += course.slice.eq(course.slice + 1)
            with m.If(course.slice == p.inputs - 1):
                last = course.member == p.batch - 1
                m.d.sync += [course.slice.eq(0), course.member.eq(Mux(last, 0, course.member + 1))]
                with m.If(last):
                    m.d.sync += course.state.eq(following)

    def _hold_row(self, m: Module, course: Course, row: data.View) -> None:
        """Hold a row of the eDRAM, which is valid for one cycle: a refresh may follow it."""
        p = self.parameters
        edram = p.memory.edram
        keys, values = (channels_of(edram, getattr(self, name)) for name in SIDES)
        for c in range(edram.row_channels):
            m.d.sync += row[c // p.rows][c % p.rows].eq(Mux(course.side, values[c], keys[c]))
        m.d.sync += [
            course.part.eq(0),
            course.word.eq(course.word + 1),
            course.state.eq(State.SLICES),
        ]

    def _deliver_row(self, m: Module, course: Course) -> None:
        """Deliver the held row slice by slice; each side of the eDRAM has half of a vector."""
        p = self.parameters
        slice_, side, member = course.slice, course.side, course.member
        half_ends = (slice_ == p.inputs // 2 - 1) | (slice_ == p.inputs - 1)
        m.d.sync += [slice_.eq(slice_ + 1), course.part.eq(course.part + 1)]
        with m.If(course.part == p.row_slices - 1):
            m.d.sync += course.state.eq(State.READ)
        # The keys' side has the first half; the last row of a side may be used in part.
        with m.If(half_ends):
            m.d.sync += [side.eq(~side), course.word.eq(0), course.state.eq(State.READ)]
            with m.If(side):
                m.d.sync += [slice_.eq(0), member.eq(member + 1)]
                with m.If(member == self.count - 1):
                    m.d.sync += [member.eq(0), course.state.eq(State.ATTENTION)]
