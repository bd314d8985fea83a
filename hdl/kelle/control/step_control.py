"""The course of a decode step: its tokens, its combined matrix, and what it still has to wait for.

Section 4.1 and Figure 11 (b) of the paper: the arriving token's input and those of the tokens that
are recomputed become one matrix. The latter come from the KV eDRAM.
"""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.edram.kv_edram import SIDES, channels_of
from hdl.kelle.eviction.eviction_parameters import vector_layout
from hdl.kelle.layouts import member_layout, slice_write
from hdl.kelle.parameters import KelleParameters
from hdl.unit import Unit


class State(enum.Enum, shape=3):
    """What the step waits for."""

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
    """Where the control is in a step."""

    state: enum.EnumView
    member: Signal  # The member whose input is loaded.
    slice: Signal  # Of this input.
    side: Signal  # Of the eDRAM, as in `SIDES`.
    word: Signal  # Of the vector's entries on that side.
    part: Signal  # Which slice of the row held.


class StepControl(Unit):
    """Take a token of each sequence, list the combined matrix, and load its input vectors.

    **Latency** 1 + ``width / rows`` cycles from a token to its input's arrival, if the input does
    not wait; `vectors` to list those that are stored; then for each recomputed token 2 cycles a row
    of the eDRAM and 1 a slice. **Throughput** one step at a time.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions.

    Members
    -------
    layer : In
        The step's layer.
    tokens : In(stream)
        Positions of the arriving tokens, sequence by sequence.
    hidden : In(stream)
        Their inputs, slice by slice; then, in their places, those of the feed-forward block.
    may_start : In(1)
        Nothing of the step before is left.
    accepts : Out(1)
        The last token is taken in this cycle.
    predicts : In(1)
        With it: the step is the vocabulary's, which meets the arriving inputs only.
    vectors : In
        The layer's stored input vectors, as the eviction controller shows them.
    members, count : Out
        The combined matrix: the arriving tokens, then those recomputed in this step.
    arrived, renewed : Out
        How many slices of the last arriving input are held, and of the feed-forward block's.
    loaded : Out(1)
        All inputs are held.
    finished : In(1)
        The step's results are complete.
    inputs : Out
        Slices on their way.
    rests : Out(1)
        No step is under way.
    reading : Out(1)
        The eDRAM's read ports are needed here.
    keys_read, values_read : Out(stream)
        Addresses.
    keys, values : In
        Rows.
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
            "members": Out(data.ArrayLayout(member_layout(p), p.members)),
            "count": Out(bits_for(p.members)),
            "arrived": Out(bits_for(p.inputs)),
            "loaded": Out(1),
            "renewed": Out(bits_for(p.inputs)),
            "finished": In(1),
            "inputs": Out(slice_write(p, p.members * p.inputs)),
            "reading": Out(1),
            "rests": Out(1),
        }
        for side in SIDES:
            ports |= {
                f"{side}_read": Out(stream.Signature(edram.address_bits)),
                side: In(edram.row_layout),
            }
        super().__init__(ports)

    def elaborate(self, platform: Any) -> Module:
        """List, load, read, and wait for the end."""
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
            Signal(member_layout(p), name=f"member_{i}", reset_less=True) for i in range(p.members)
        ]
        current = Array(members)[course.member]
        row = Signal(data.ArrayLayout(p.slice_layout, p.row_slices), reset_less=True)
        # Slices of a row are delivered one a cycle, while the eDRAM may refresh.
        looked = Signal(range(max(p.stored, 2)))
        self._connect_ports(m, course, members, current, row)
        predicts = Signal(reset_less=True)
        with m.If(self.accepts):
            m.d.sync += predicts.eq(self.predicts)
        with m.Switch(course.state):
            # Until a token comes its registers are set over and over, which costs nothing.
            with m.Case(State.TOKEN):
                self._begin(m, course, current, looked)
            # The arriving inputs are first, so that the queries can begin.
            with m.Case(State.INPUT):
                self._take_inputs(m, course, Mux(predicts, State.FEED_FORWARD, State.MEMBERS))
            # Which tokens are recomputed is known: nobody is promoted or freed meanwhile.
            with m.Case(State.MEMBERS):
                self._list_members(m, course, members, looked)
            # The fetch may have the ports first, and a refresh before either.
            with m.Case(State.READ):
                ready = Mux(course.side, self.values_read.ready, self.keys_read.ready)
                with m.If(ready):
                    m.d.sync += course.state.eq(State.ROW)
            # The row is there a cycle after its address, and for that cycle only.
            with m.Case(State.ROW):
                self._hold_row(m, course, row)
            # A row is several slices, and the memory of inputs takes one a cycle.
            with m.Case(State.SLICES):
                self._deliver_row(m, course)
            # The blocks run by themselves; what the attention has added comes back normalised, and
            # takes the place of what nobody needs any more.
            with m.Case(State.ATTENTION):
                self._take_inputs(m, course, State.FEED_FORWARD)
            with m.Case(State.FEED_FORWARD):
                with m.If(self.finished):
                    m.d.sync += [course.state.eq(State.TOKEN), course.member.eq(0)]
        return m

    def _connect_ports(
        self, m: Module, course: Course, members: list[Any], current: Any, row: data.View
    ) -> None:
        """Say what each state offers, asks for, and lets others know."""
        p = self.parameters
        edram, state = p.memory.edram, course.state
        # Behind the entries of all slots lie those of the input vectors.
        vector = self.layer * p.stored + current.vector if p.layers > 1 else current.vector
        first = (edram.heads * p.slots + vector * edram.vector_entries) * edram.entry_words
        for number, name in enumerate(SIDES):
            read = getattr(self, f"{name}_read")
            m.d.comb += [
                read.valid.eq((state == State.READ) & (course.side == number)),
                read.payload.eq(first + course.word),
            ]
        # The queries need the arriving inputs only; they begin while the last one comes, and go on
        # while the others are read. Up and gate begin likewise.
        last_arriving = course.member == p.sequences - 1
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
        """Make the arriving tokens the first members; their vectors are behind all stored ones."""
        p = self.parameters
        m.d.sync += [
            arriving.vector.eq(p.stored + course.member),
            arriving.position.eq(self.tokens.payload),
            self.count.eq(p.sequences),
            looked.eq(0),
            course.slice.eq(0),
        ]
        with m.If(self.tokens.valid & self.tokens.ready):
            m.d.sync += course.member.eq(Mux(self.accepts, 0, course.member + 1))
        with m.If(self.accepts):
            m.d.sync += course.state.eq(State.INPUT)

    def _list_members(self, m: Module, course: Course, members: list[Any], looked: Signal) -> None:
        """Look at one stored vector a cycle, and list those in use without gaps."""
        p = self.parameters
        # The list is dense: the count says how many vectors meet each tile of keys and values.
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
            nobody = (self.count == p.sequences) & ~stored.valid
            m.d.sync += [
                course.member.eq(Mux(nobody, 0, p.sequences)),
                course.state.eq(Mux(nobody, State.ATTENTION, State.READ)),
            ]

    def _take_inputs(self, m: Module, course: Course, following: Any) -> None:
        """Hold the arriving tokens' inputs, or in their places the feed-forward block's."""
        p = self.parameters
        with m.If(self.hidden.valid):
            m.d.sync += course.slice.eq(course.slice + 1)
            with m.If(course.slice == p.inputs - 1):
                last = course.member == p.sequences - 1
                m.d.sync += [course.slice.eq(0), course.member.eq(Mux(last, 0, course.member + 1))]
                with m.If(last):
                    m.d.sync += course.state.eq(following)

    def _hold_row(self, m: Module, course: Course, row: data.View) -> None:
        """Hold a row of the eDRAM: a refresh may follow at once, it is there for one cycle."""
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
        """Deliver the row held, slice by slice; half of a vector lies on either side."""
        p = self.parameters
        slice_, side, member = course.slice, course.side, course.member
        half_ends = (slice_ == p.inputs // 2 - 1) | (slice_ == p.inputs - 1)
        m.d.sync += [slice_.eq(slice_ + 1), course.part.eq(course.part + 1)]
        with m.If(course.part == p.row_slices - 1):
            m.d.sync += course.state.eq(State.READ)
        # The keys' side has the first half; its last row may be in use in part.
        with m.If(half_ends):
            m.d.sync += [side.eq(~side), course.word.eq(0), course.state.eq(State.READ)]
            with m.If(side):
                m.d.sync += [slice_.eq(0), member.eq(member + 1)]
                with m.If(member == self.count - 1):
                    m.d.sync += [member.eq(0), course.state.eq(State.ATTENTION)]
