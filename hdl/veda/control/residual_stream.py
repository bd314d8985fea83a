"""VEDA's hidden states (residual stream), to which the layers' results are added serially."""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_format import BINARY16
from hdl.memory.memory import Memory
from hdl.stream.connect import buffered
from hdl.stream.fifo import Fifo
from hdl.unit import Unit
from hdl.veda.parameters import VedaParameters

ADD_STAGES = 2
"""Pipeline stages of the adder."""

OFFERED = 2
"""Entries of the output FIFO: the minimum for one element per cycle."""


@dataclass(frozen=True, kw_only=True)
class _Total:
    """An updated element at the adder's output.

    Parameters
    ----------
    valid : Value
        The adder outputs an element in this cycle.
    last : Value
        It is the last element of its matrix.
    address, value : Value
        Its address in the memory, and its FP16 code.
    """

    valid: Value
    last: Value
    address: Value
    value: Value


@dataclass(frozen=True, kw_only=True)
class _Place:
    """The element to which the next sum is added.

    Parameters
    ----------
    address : Value
        Its address in the memory.
    last : Value
        It is the last element of its matrix.
    """

    address: Value
    last: Value


class ResidualStream(Unit):
    """Add the serial results of a matrix to the hidden states, and stream them to the next norm.

    The states of a block of tokens are held in a memory, which is written in rounds. In the first
    round the states enter from outside. In every other round each element is replaced by its sum
    with a result of a matrix. The elements are read in the order of their addresses, for the norm
    or for output, as soon as they and all elements before them are written; the round need not be
    complete. After reset, and after states have been output, new states enter: as many as the block
    has tokens, regardless of `last`.

    **Latency** 5 cycles from a sum to its element. **Throughput** one element per cycle; the sums
    of all arrays in a beat are added sequentially. The next round begins after all elements have
    been read.

    **Numerics** one addition in FP16, rounded to nearest, ties to even.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.

    Members
    -------
    blocks : In(stream)
        Index of the last token of each block whose states enter.
    states_in : In(stream)
        Elements of the states of a block that enters; `last` marks the block's last element.
    sums : In(stream)
        One sum of each array: output ``i`` of the matrix is the sum of array ``i mod copies``. For
        each block of outputs (as many as an array has partial sums) the sums of one token precede
        those of the next.
    leave, predict : In(1)
        The sums are the last ones added to these states: the states are output, or sent to the
        final norm. Constant for all sums of a matrix.
    finished : Out(1)
        The last sum of a matrix is transferred.
    elements : Out(stream)
        To the norm: `value` in FP16, `last` with a state's last element, `final` with the block's
        last.
    states_out : Out(stream)
        Output states; `last` marks the last element of each.
    misplaced : Out(1)
        `last` of `states_in` was absent from a block's last element, or present at another element.
        Held until reset.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        state = stream.Signature(p.state_layout)
        super().__init__(
            {
                "blocks": In(stream.Signature(p.token_shape)),
                "states_in": In(state),
                "sums": In(stream.Signature(data.ArrayLayout(BINARY16.layout, p.copies))),
                "leave": In(1),
                "predict": In(1),
                "finished": Out(1),
                "elements": Out(stream.Signature(p.element_layout)),
                "states_out": Out(state),
                "misplaced": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Write entering or updated elements, and read those that are complete."""
        m = Module()
        p = self.parameters
        m.submodules.states = states = Memory(depth=p.state_elements, width=16)
        # State of the round: its kind, whether all elements are written, whether the last sum is
        # taken.
        entering, leaving, complete, summed = Signal(init=1), Signal(), Signal(), Signal()
        closing = Signal()
        # Elements of the block, known once it has entered; length of the prefix written so far.
        size, prefix = Signal(range(p.state_elements + 1)), Signal(range(p.state_elements + 1))
        reads = Signal()
        place = self._place(m, reads, size)
        total = self._add(m, states.read_data, place, reads=reads, accepts=~entering & ~summed)
        m.d.comb += self.finished.eq(reads & place.last)
        with m.If(reads):
            m.d.sync += [leaving.eq(self.leave), closing.eq(self.leave | self.predict)]

        enters, enters_last = Signal(), self._enter(m, entering & ~complete)
        m.d.comb += [
            enters.eq(self.states_in.valid & self.states_in.ready),
            states.write_enable.eq(total.valid | enters),
            states.write_address.eq(Mux(entering, prefix, total.address)),
            states.write_data.eq(
                Mux(entering, self.states_in.payload.value.as_value(), total.value)
            ),
        ]
        # Sums arrive per block of outputs, token by token: the prefix ends at the first element
        # that is not yet written.
        with m.If(states.write_enable & (states.write_address == prefix)):
            m.d.sync += prefix.eq(prefix + 1)
        with m.If(enters & enters_last):
            m.d.sync += [size.eq(prefix + 1), complete.eq(1)]
        with m.If(self.finished):
            m.d.sync += summed.eq(1)
        with m.If(total.valid & total.last):
            m.d.sync += complete.eq(1)

        # Read the next element if it is written and the output has room. The memory has one read
        # port; sums have priority, because the arrays wait for them.
        element, ends, leaves, gives = Signal(range(p.state_elements)), Signal(), Signal(), Signal()
        room = self._give(m, gives, ends, leaves, states.read_data)
        m.d.comb += [
            gives.eq((complete | (element != prefix)) & room & ~reads),
            ends.eq(complete & (element + 1 == size)),
            leaves.eq(leaving & ~entering),
            states.read_enable.eq(reads | gives),
            states.read_address.eq(Mux(reads, place.address, element)),
        ]
        with m.If(gives):
            m.d.sync += element.eq(element + 1)
            with m.If(ends):
                m.d.sync += [
                    *(signal.eq(0) for signal in (element, prefix, complete, summed)),
                    entering.eq(closing & ~entering),
                ]
        return m

    def _enter(self, m: Module, accepts: Value) -> Value:
        """Accept a block's states; return whether the element is the block's last."""
        p = self.parameters
        blocks = buffered(m, "blocks_ahead", self.blocks, depth=1)
        place, token = Signal(range(p.hidden_size)), Signal(p.token_shape)
        ends, last = place == p.hidden_size - 1, Signal()
        m.d.comb += [
            last.eq(ends & (token == blocks.payload)),
            self.states_in.ready.eq(accepts & blocks.valid),
            blocks.ready.eq(accepts & self.states_in.valid & last),
        ]
        with m.If(self.states_in.valid & self.states_in.ready):
            m.d.sync += [
                place.eq(Mux(ends, 0, place + 1)),
                self.misplaced.eq(self.misplaced | (last != self.states_in.payload.last)),
            ]
            with m.If(ends):
                m.d.sync += token.eq(Mux(last, 0, token + 1))
        return last

    def _add(
        self, m: Module, read: Value, place: _Place, *, reads: Signal, accepts: Value
    ) -> _Total:
        """Take the arrays' sums sequentially and add each to its element."""
        p = self.parameters
        m.submodules.add = add = FloatAdd(stages=ADD_STAGES)
        copy = Signal(range(p.copies))
        last_copy = copy == p.copies - 1
        m.d.comb += [
            reads.eq(self.sums.valid & accepts),
            self.sums.ready.eq(accepts & last_copy),
        ]
        with m.If(reads):
            m.d.sync += copy.eq(Mux(last_copy, 0, copy + 1))
        # The state's element is read from the memory with one cycle of latency; delay its sum
        # equally.
        addend = Signal(16, reset_less=True)
        m.d.sync += addend.eq(Array(Value.cast(part) for part in self.sums.payload)[copy])
        m.d.comb += [Value.cast(add.a).eq(addend), Value.cast(add.b).eq(read)]
        valid = Signal(1 + ADD_STAGES)
        m.d.sync += valid.eq(Cat(reads, valid))
        # The place of the sum moves in parallel with the adder.
        along = Cat(place.last, place.address)
        along = delay_line(m, along, 1 + ADD_STAGES, name="place")[-1]
        return _Total(
            valid=valid[-1], last=along[0], address=along[1:], value=add.result.as_value()
        )

    def _place(self, m: Module, moves: Value, size: Value) -> _Place:
        """Return the place of the next sum."""
        p = self.parameters
        most = min(p.array.partial_sums * p.copies, p.hidden_size)
        # First address of the token's state, first output of the block of outputs, offset in the
        # block.
        state, block, offset = (
            Signal(range(p.state_elements)),
            Signal(range(p.hidden_size)),
            Signal(range(most)),
        )
        # Incremented, not multiplied: block by block of outputs, in each block token by token.
        index, address = Signal(range(p.hidden_size)), Signal(range(p.state_elements))
        closes, block_ends, token_ends = Signal(), Signal(), Signal()
        m.d.comb += [
            index.eq(block + offset),
            address.eq(state + index),
            closes.eq(index == p.hidden_size - 1),
            block_ends.eq(closes | (offset == most - 1)),
            token_ends.eq(state + p.hidden_size == size),
        ]
        with m.If(moves):
            m.d.sync += offset.eq(Mux(block_ends, 0, offset + 1))
            with m.If(block_ends):
                m.d.sync += state.eq(Mux(token_ends, 0, state + p.hidden_size))
                with m.If(token_ends):
                    m.d.sync += block.eq(Mux(closes, 0, block + most))
        return _Place(address=address, last=closes & token_ends)

    def _give(self, m: Module, moves: Value, ends: Value, leaves: Value, read: Value) -> Value:
        """Output each element a cycle after its read; return whether there is room for another."""
        p = self.parameters
        marks = data.StructLayout({"last": 1, "final": 1, "leaves": 1})
        offered = data.StructLayout({"value": BINARY16.layout, "marks": marks})
        m.submodules.offers = offers = Fifo(shape=offered, depth=OFFERED)
        place, coming, mark = Signal(range(p.hidden_size)), Signal(), Signal(marks, reset_less=True)
        last = place == p.hidden_size - 1
        # The marks are registered in parallel with the memory's read.
        m.d.sync += [
            coming.eq(moves),
            mark.last.eq(last),
            mark.final.eq(ends),
            mark.leaves.eq(leaves),
        ]
        with m.If(moves):
            m.d.sync += place.eq(Mux(last, 0, place + 1))
        sink, given = offers.sink, offers.sink.payload
        inside, outside = self.elements, self.states_out
        m.d.comb += [
            offers.source.valid.eq(coming),
            Value.cast(offers.source.payload.value).eq(read),
            offers.source.payload.marks.eq(mark),
            inside.valid.eq(sink.valid & ~given.marks.leaves),
            inside.payload.value.eq(given.value),
            inside.payload.last.eq(given.marks.last),
            inside.payload.final.eq(given.marks.final),
            outside.valid.eq(sink.valid & given.marks.leaves),
            outside.payload.value.eq(given.value),
            outside.payload.last.eq(given.marks.last),
            sink.ready.eq(Mux(given.marks.leaves, outside.ready, inside.ready)),
        ]
        # One more element may be in flight from the memory.
        return offers.waiting + coming < OFFERED
