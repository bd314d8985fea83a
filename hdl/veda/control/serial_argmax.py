"""The token that VEDA predicts: the largest of the vocabulary's sums, one after the other."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_compare import FloatCompare
from hdl.memory.memory import Memory
from hdl.unit import Unit
from hdl.veda.parameters import VedaParameters


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where in the vocabulary a sum stands, and for which token of the block.

    Parameters
    ----------
    first, lane, token : Signal
        The row's first token of the vocabulary, the sum in the row, the token of the block.
    row_ends, lane_ends, token_ends : Value
        It is the last one.
    """

    first: Signal
    lane: Signal
    token: Signal
    row_ends: Value
    lane_ends: Value
    token_ends: Value


class SerialArgmax(Unit):
    """Find the token with the largest sum, before rounding makes several sums equal.

    The arrays show a row's sums in one cycle; they are taken there, and compared one by one while
    the next row is computed. Of a block of tokens each row comes for one token after the other:
    what each has found so far waits in a memory.

    **Latency** ``row + 3`` cycles from a row's sums to its end, one more to the prediction.
    **Throughput** a row in as many; the arrays need ``hidden_size`` for the next one, and wait if
    that is less.

    **Numerics** exact comparisons in the format of the sums. Of equal sums the first one's token is
    taken. A NaN is below all numbers; of nothing but NaNs the first token is taken, with a NaN.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions, with a vocabulary.

    Members
    -------
    row_ends : In(1)
        `row_sums` are those of a row.
    row_sums : In(array)
        The sums of all arrays, one token's each.
    rows : In(stream)
        The row whose sums came last is one of the vocabulary's; the last token of its block.
    predictions : Out(stream)
        For each token of a block, in order, the `token` that follows it, and its `sum`.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "row_ends": In(1),
                "row_sums": In(p.row_sums_layout),
                "rows": In(stream.Signature(p.token_shape)),
                "predictions": Out(stream.Signature(p.prediction_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Fetch what the token has found so far, compare, put it back."""
        m = Module()
        p = self.parameters
        place = self._place(m)
        width = p.prediction_layout.size
        m.submodules.found = found = Memory(depth=max(2, p.block), width=width)
        best = Signal(p.prediction_layout, reset_less=True)
        sums = Signal(p.row_sums_layout, reset_less=True)
        # Sums leave at the low end; those of a row of another kind are never looked at.
        shifts, better = Signal(), self._better(m, sums[0], best.sum)
        sum_bits = p.array.sum_format.width
        with m.If(self.row_ends):
            m.d.sync += sums.eq(self.row_sums)
        with m.Elif(shifts):
            m.d.sync += Value.cast(sums).eq(Value.cast(sums) >> sum_bits)
        # Behind the last token the row is filled with zeros.
        number = Signal(range(p.vocabulary_rows * p.row))
        exists = number < p.vocabulary
        m.d.comb += [
            number.eq(place.first + place.lane),
            found.read_address.eq(place.token),
            found.write_address.eq(place.token),
            found.write_data.eq(Value.cast(best)),
            self.predictions.payload.eq(best),
        ]
        nothing = Const(p.array.sum_format.quiet_nan or 0, sum_bits)
        with m.FSM(name="phase"):
            with m.State("WAIT"):
                m.d.comb += found.read_enable.eq(self.rows.valid)
                with m.If(self.rows.valid):
                    m.next = "FETCH"
            with m.State("FETCH"):
                m.d.sync += Value.cast(best).eq(found.read_data)
                with m.If(place.first == 0):
                    m.d.sync += [best.token.eq(0), Value.cast(best.sum).eq(nothing)]
                m.next = "COMPARE"
            with m.State("COMPARE"):
                m.d.comb += shifts.eq(1)
                with m.If(better & exists):
                    m.d.sync += [best.token.eq(number), best.sum.eq(sums[0])]
                with m.If(place.lane_ends):
                    m.next = "KEEP"
            with m.State("KEEP"):
                m.d.comb += [
                    found.write_enable.eq(1),
                    self.predictions.valid.eq(place.row_ends),
                    self.rows.ready.eq(self.predictions.ready | ~place.row_ends),
                ]
                with m.If(self.rows.ready):
                    m.next = "WAIT"
        self._move(m, place, shifts)
        return m

    def _place(self, m: Module) -> _Place:
        """Return the registers that say where a sum stands."""
        p = self.parameters
        last_row = (p.vocabulary_rows - 1) * p.row
        first = Signal(range(last_row + 1))
        lane, token = Signal(range(p.row)), Signal(p.token_shape)
        return _Place(
            first=first,
            lane=lane,
            token=token,
            row_ends=first == last_row,
            lane_ends=lane == p.row - 1,
            token_ends=token == self.rows.payload,
        )

    def _move(self, m: Module, place: _Place, shifts: Value) -> None:
        """Go from sum to sum, and behind a row to the next token's, or to the next row."""
        with m.If(shifts):
            m.d.sync += place.lane.eq(Mux(place.lane_ends, 0, place.lane + 1))
        with m.If(self.rows.valid & self.rows.ready):
            m.d.sync += place.token.eq(Mux(place.token_ends, 0, place.token + 1))
            with m.If(place.token_ends):
                row = self.parameters.row
                m.d.sync += place.first.eq(Mux(place.row_ends, 0, place.first + row))

    def _better(self, m: Module, candidate: Any, best: Any) -> Value:
        """Return whether a sum is larger than the best, or the first that is a number."""
        sum_format = self.parameters.array.sum_format
        m.submodules.compare = compare = FloatCompare(number_format=sum_format)
        m.d.comb += [compare.a.eq(best), compare.b.eq(candidate)]
        number = ~(Cat(candidate.exponent).all() & Cat(candidate.mantissa).any())
        return compare.less | (compare.unordered & number)
