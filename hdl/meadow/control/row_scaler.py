"""Scale rows of hidden states to the 16 bits of the norm's input, by a power of two per row."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.meadow.parameters import MOST_LIFT, STATE, MeadowParameters
from hdl.memory.row_buffer import RowBuffer, take_slices
from hdl.nonlinear.row_norm import EPSILON_BITS
from hdl.nonlinear.row_norm import STATE as NORM_STATE
from hdl.unit import Unit

ROWS = 4
"""Maximum rows in flight."""

TURNAROUND = 8
"""Cycles from the last word of a row until the row frees its first entry of the buffer."""


class RowScaler(Unit):
    """Right shift of each row by the smallest amount with which all elements fit 16 bits.

    The scale of a row cancels in the norm, except in epsilon, which is a square and is shifted by
    twice the amount.

    **Latency** 5 cycles from the last input slice of a row to its first output slice.
    **Throughput** one slice per cycle, including from row to row.

    Parameters
    ----------
    parameters : MeadowParameters
        Words of a row.

    Members
    -------
    epsilon : In(EPSILON_BITS)
        Epsilon in squared steps of the hidden state; constant during an instruction.
    states : In(stream)
        `values`, as many as the norm has lanes; `last` ends a row.
    rows : Out(stream)
        Scaled rows, as the norm's `states`.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "epsilon": In(EPSILON_BITS),
                "states": In(stream.Signature(p.norm_row_layout)),
                "rows": Out(stream.Signature(p.norm.slice_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Determine the bits that a row uses while the buffer holds the row."""
        m = Module()
        p, states, rows = self.parameters, self.states.payload, self.rows
        m.submodules.buffer = buffer = RowBuffer(
            data_shape=p.norm_row_layout["values"].shape,
            result_shape=MOST_LIFT,
            depth=p.norm.slices + TURNAROUND,
            rows=ROWS,
        )
        take = take_slices(m, buffer, self.states)
        # Bit positions above the norm's width at which some element differs from its sign.
        low, high = NORM_STATE.width - 1, STATE.width - 1
        used = [
            Cat(value[bit] ^ value[high] for value in states["values"]).any()
            for bit in range(low, high)
        ]
        upper, seen = Signal(MOST_LIFT, reset_less=True), Signal(MOST_LIFT, reset_less=True)
        begins = Signal(init=1)
        m.d.sync += upper.eq(Cat(*used))
        with m.If(take):
            m.d.sync += begins.eq(states.last)
        # The flags are delayed in parallel with the register of used bits.
        strobe, first, last = delay_line(
            m, Cat(take, begins, take & states.last), 1, name="flags", reset=True
        )[-1]
        with m.If(strobe):
            m.d.sync += seen.eq(Mux(first, 0, seen) | upper)
        ended = delay_line(m, last, 1, name="ended", reset=True)[-1]
        m.d.comb += [buffer.results.valid.eq(ended), buffer.results.payload.eq(seen)]
        self._shift(m, buffer, rows)
        return m

    def _shift(self, m: Module, buffer: RowBuffer, rows: stream.Interface) -> None:
        """Shift the buffer's output, whose data arrives one step after the bits of its row."""
        shift, move = Signal(range(MOST_LIFT + 1), reset_less=True), Signal()
        read, last = Signal(), Signal(reset_less=True)
        m.d.comb += [move.eq(~rows.valid | rows.ready), buffer.enable.eq(move)]
        with m.If(move):
            m.d.sync += [read.eq(buffer.valid), last.eq(buffer.last), shift.eq(0)]
            # The highest used bit decides, since later assignments have priority.
            for bit in range(MOST_LIFT):
                with m.If(buffer.result[bit]):
                    m.d.sync += shift.eq(bit + 1)
            m.d.sync += [
                rows.valid.eq(read),
                rows.payload.last.eq(last),
                rows.payload.epsilon.eq(self.epsilon >> (shift << 1)),
                *(
                    narrow.eq(wide >> shift)
                    for narrow, wide in zip(rows.payload["values"], buffer.data, strict=True)
                ),
            ]
