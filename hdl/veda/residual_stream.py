"""VEDA's hidden state: an element after the other, to which the layers' results are added."""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_add import FloatAdd
from hdl.arith.float_format import BINARY16
from hdl.stream.memory_fifo import MemoryFifo
from hdl.unit import Unit
from hdl.veda.veda_parameters import VedaParameters

ADD_STAGES = 2
"""Register ranks of the adder."""


class ResidualStream(Unit):
    """Add the serial results of a matrix to the hidden state, which thereby enters the next norm.

    The state goes round: each of its elements meets its sum, goes to the norm, and waits for the
    next matrix. After reset a state enters from outside, and again behind each that leaves.

    **Latency** 2 cycles from a sum to its element. **Throughput** one element a cycle; the arrays'
    sums of a beat follow each other.

    **Numerics** one addition in FP16, rounded to nearest, ties to even.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions.

    Members
    -------
    states_in : In(stream)
        Elements of a state that enters; `last` is not looked at.
    sums : In(stream)
        One sum of each array: output ``i`` of the matrix is array ``i mod copies``'s. They wait
        for the whole state.
    leave : In(1)
        The sums are the last that the state meets: it leaves. Constant for all sums of a matrix.
    finished : Out(1)
        A matrix's last sum is taken.
    elements : Out(stream)
        To the norm: `value` in FP16, and `last`.
    states_out : Out(stream)
        The same of states that leave.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        state = stream.Signature(p.state_layout)
        super().__init__(
            {
                "states_in": In(state),
                "sums": In(stream.Signature(data.ArrayLayout(BINARY16.layout, p.copies))),
                "leave": In(1),
                "finished": Out(1),
                "elements": Out(state),
                "states_out": Out(state),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Add what meets, and pass on what enters."""
        m = Module()
        p = self.parameters
        m.submodules.state = state = MemoryFifo(shape=BINARY16.layout, depth=p.hidden_size)
        m.submodules.add = add = FloatAdd(stages=ADD_STAGES, enable=True)

        entering, entered = Signal(init=1), Signal(range(p.hidden_size))
        # Which array's sum is next, and which element it belongs to.
        copy, place = Signal(range(p.copies)), Signal(range(p.hidden_size))
        move, meets, last = Signal(), Signal(), Signal()
        turned = copy == p.copies - 1
        m.d.comb += [
            meets.eq(self.sums.valid & state.sink.valid & move & ~entering),
            state.sink.ready.eq(self.sums.valid & move & ~entering),
            self.sums.ready.eq(state.sink.valid & move & ~entering & turned),
            last.eq(place == p.hidden_size - 1),
            self.finished.eq(meets & last),
            add.enable.eq(move),
            add.a.eq(Array(Value.cast(total) for total in self.sums.payload)[copy]),
            add.b.eq(state.sink.payload),
        ]
        with m.If(meets):
            m.d.sync += [copy.eq(Mux(turned, 0, copy + 1)), place.eq(Mux(last, 0, place + 1))]

        there, beside = Signal(ADD_STAGES), Cat(self.leave, last)
        with m.If(move):
            m.d.sync += there.eq(Cat(meets, there))
        for rank in range(ADD_STAGES):
            behind = Signal(2, name=f"beside_{rank}", reset_less=True)
            with m.If(move):
                m.d.sync += behind.eq(beside)
            beside = behind
        summed = there[-1]
        leaves, ends = beside[0], beside[1]

        closes = entered == p.hidden_size - 1
        enters = self.states_in.valid & self.states_in.ready
        stays = summed & ~leaves
        with m.If(enters):
            m.d.sync += entered.eq(Mux(closes, 0, entered + 1))
        with m.If(self.finished & self.leave):
            m.d.sync += entering.eq(1)
        with m.Elif(enters & closes):
            m.d.sync += entering.eq(0)

        element, leaving = self.elements.payload, self.states_out.payload
        passes = stays | (self.states_in.valid & entering)
        both = state.source.ready & self.elements.ready
        m.d.comb += [
            self.states_out.valid.eq(summed & leaves),
            leaving.value.eq(add.result),
            leaving.last.eq(ends),
            self.elements.valid.eq(passes & state.source.ready),
            state.source.valid.eq(passes & self.elements.ready),
            state.source.payload.eq(Mux(stays, add.result, self.states_in.payload.value)),
            element.value.eq(state.source.payload),
            element.last.eq(Mux(stays, ends, closes)),
            self.states_in.ready.eq(entering & ~stays & both),
            move.eq(~summed | Mux(leaves, self.states_out.ready, both)),
        ]
        return m
