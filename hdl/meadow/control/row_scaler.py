"""Rows of hidden states brought to the 16 bits that the norm takes, each by a power of two."""

from typing import Any

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
"""Rows under way."""

TURNAROUND = 8
"""Cycles from a row's last word to the first place in the buffer that it sets free."""


class RowScaler(Unit):
    """Shift a row to the right until its largest element fits.

    The row's scale cancels out in the norm, but for epsilon, which is shifted twice as far.

    **Latency** 5 cycles from a row's last word to its first. **Throughput** a word a cycle, also
    from row to row.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions.

    Members
    -------
    epsilon : In(EPSILON_BITS)
        In squared steps of the hidden state; stands.
    states : In(stream)
        `values`; `last` ends a row.
    rows : Out(stream)
        As the norm's `states`.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "epsilon": In(EPSILON_BITS),
                "states": In(stream.Signature(p.row_layout)),
                "rows": Out(stream.Signature(p.norm.slice_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Find the row's upper bits while it waits."""
        m = Module()
        p, states, rows = self.parameters, self.states.payload, self.rows
        m.submodules.buffer = buffer = RowBuffer(
            data_shape=p.state_layout,
            result_shape=MOST_LIFT,
            depth=p.state_words + TURNAROUND,
            rows=ROWS,
        )
        take = take_slices(m, buffer, self.states)
        # Bits beyond the norm's, wherever an element's differ from its sign.
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
        # Flags travel beside the register of a word's upper bits.
        strobe, first, last = delay_line(
            m, Cat(take, begins, take & states.last), 1, name="flags", reset=True
        )[-1]
        with m.If(strobe):
            m.d.sync += seen.eq(Mux(first, 0, seen) | upper)
        ended = delay_line(m, last, 1, name="ended", reset=True)[-1]
        m.d.comb += [buffer.results.valid.eq(ended), buffer.results.payload.eq(seen)]
        self._shift(m, buffer, rows)
        return m

    def _shift(self, m: Module, buffer: RowBuffer, rows: Any) -> None:
        """Shift what leaves the buffer; its data comes a step behind its row's bits."""
        shift, move = Signal(range(MOST_LIFT + 1), reset_less=True), Signal()
        read, last = Signal(), Signal(reset_less=True)
        m.d.comb += [move.eq(~rows.valid | rows.ready), buffer.enable.eq(move)]
        with m.If(move):
            m.d.sync += [read.eq(buffer.valid), last.eq(buffer.last), shift.eq(0)]
            # The highest bit that is used decides: later assignments overrule.
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
