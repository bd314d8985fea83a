"""VEDA's hidden states: an element after the other, to which the layers' results are added."""

from dataclasses import dataclass
from typing import Any

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
"""Elements that may wait at the output: as many as it takes to read one a cycle."""


@dataclass(frozen=True, kw_only=True)
class _Total:
    """An element with its sum added, as it leaves the adder.

    Parameters
    ----------
    valid : Value
        There is one.
    last : Value
        It is its matrix's last.
    address, value : Value
        Where it belongs, and its FP16 code.
    """

    valid: Value
    last: Value
    address: Value
    value: Value


class ResidualStream(Unit):
    """Add the serial results of a matrix to the hidden states, which thereby enter the next norm.

    The states of a block of tokens stand in a memory. They are written in rounds: in the first they
    enter from outside; in each of the others every element is replaced by its sum with a matrix's
    result. What is written is read again in its order, for the norm or to leave, while the round
    still goes on as far as all elements up to there are written. After reset states enter, and
    again behind those that leave: as many as the block has tokens, whatever `last` says.

    **Latency** 5 cycles from a sum to its element. **Throughput** one element a cycle; the arrays'
    sums of a beat follow each other. The next round begins when all elements have been read.

    **Numerics** one addition in FP16, rounded to nearest, ties to even.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions.

    Members
    -------
    blocks : In(stream)
        The last token of each block whose states enter.
    states_in : In(stream)
        Elements of the states of a block that enters; `last` with the last of all.
    sums : In(stream)
        One sum of each array: output ``i`` of the matrix is array ``i mod copies``'s. As many
        outputs as an array has partial sums come for one token after the other, then the next.
    leave, predict : In(1)
        The sums are the last that the states meet: they leave, or go to the norm for the last time.
        Constant for all sums of a matrix.
    finished : Out(1)
        A matrix's last sum is taken.
    elements : Out(stream)
        To the norm: `value` in FP16, `last` with a state's last, `final` with the block's last.
    states_out : Out(stream)
        States that leave, and the `last` element of each.
    misplaced : Out(1)
        `last` did not come with the last element of a block, or with another one. Until reset.
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

    def elaborate(self, platform: Any) -> Module:
        """Write what enters or what is summed; read behind it."""
        m = Module()
        p = self.parameters
        m.submodules.states = states = Memory(depth=p.state_elements, width=16)
        # Of the round: what it is, whether all is written, and whether the last sum is taken.
        entering, leaving, complete, summed = Signal(init=1), Signal(), Signal(), Signal()
        closing = Signal()
        # Elements of the block, known once it has entered, and those written from the first one on.
        size, prefix = Signal(range(p.state_elements + 1)), Signal(range(p.state_elements + 1))
        reads = Signal()
        address, last = self._address(m, reads, size)
        accepts = ~entering & ~summed
        total = self._add(m, states.read_data, reads=reads, accepts=accepts, beside=(last, address))
        m.d.comb += self.finished.eq(reads & last)
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
        # Sums come in blocks of outputs, token by token: the prefix stops in front of the first
        # element that is still missing.
        with m.If(states.write_enable & (states.write_address == prefix)):
            m.d.sync += prefix.eq(prefix + 1)
        with m.If(enters & enters_last):
            m.d.sync += [size.eq(prefix + 1), complete.eq(1)]
        with m.If(self.finished):
            m.d.sync += summed.eq(1)
        with m.If(total.valid & total.last):
            m.d.sync += complete.eq(1)

        # What is read next, if it is written, and if the output has room for it. The memory has
        # one read port: sums have priority, since the arrays wait for them.
        element, ends, leaves, gives = Signal(range(p.state_elements)), Signal(), Signal(), Signal()
        room = self._give(m, gives, element, ends, leaves, states.read_data)
        m.d.comb += [
            gives.eq((complete | (element != prefix)) & room & ~reads),
            ends.eq(complete & (element + 1 == size)),
            leaves.eq(leaving & ~entering),
            states.read_enable.eq(reads | gives),
            states.read_address.eq(Mux(reads, address, element)),
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
        """Take a block's states in; return whether the element is their last."""
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
        self, m: Module, read: Value, *, reads: Signal, accepts: Value, beside: tuple[Value, Value]
    ) -> _Total:
        """Take the arrays' sums one after the other, and add each to its element.

        `beside` is whether the sum is its matrix's last, and its element's address.
        """
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
        # The state's element comes from the memory a cycle later, and so does its sum.
        addend = Signal(16, reset_less=True)
        m.d.sync += addend.eq(Array(Value.cast(part) for part in self.sums.payload)[copy])
        m.d.comb += [Value.cast(add.a).eq(addend), Value.cast(add.b).eq(read)]
        valid, along = Signal(1 + ADD_STAGES), Cat(*beside)
        m.d.sync += valid.eq(Cat(reads, valid))
        along = delay_line(m, along, 1 + ADD_STAGES, name="beside")[-1]
        return _Total(
            valid=valid[-1], last=along[0], address=along[1:], value=add.result.as_value()
        )

    def _address(self, m: Module, moves: Value, size: Value) -> tuple[Value, Value]:
        """Return which element the next sum belongs to, and whether it is a matrix's last."""
        p = self.parameters
        most = min(p.array.partial_sums * p.copies, p.hidden_size)
        # The first element of the token's state, the first of the outputs' block in it, and those
        # between.
        state, block, offset = (
            Signal(range(p.state_elements)),
            Signal(range(p.hidden_size)),
            Signal(range(most)),
        )
        # Counted up, not multiplied: block by block of outputs, in each block token by token.
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
        return address, closes & token_ends

    def _give(
        self, m: Module, moves: Value, element: Value, ends: Value, leaves: Value, read: Value
    ) -> Value:
        """Offer what is read, in the cycle behind; return whether there is room for more."""
        p = self.parameters
        marks = data.StructLayout({"last": 1, "final": 1, "leaves": 1})
        offered = data.StructLayout({"value": BINARY16.layout, "marks": marks})
        m.submodules.offers = offers = Fifo(shape=offered, depth=OFFERED)
        place, coming, mark = Signal(range(p.hidden_size)), Signal(), Signal(marks, reset_less=True)
        last = place == p.hidden_size - 1
        # The marks wait for the memory's word, which comes in the next cycle.
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
        # One more may be on its way out of the memory.
        return offers.waiting + coming < OFFERED
