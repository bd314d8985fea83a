"""Argmax over the logits, one logit per cycle: the token that VEDA predicts."""

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
    """Position of a logit in the vocabulary, and its token of the block.

    Parameters
    ----------
    first, lane, token : Signal
        First vocabulary index of the row, index of the logit in the row, index of the token in the
        block.
    row_ends, lane_ends, token_ends : Value
        The row, the lane or the token is the last one.
    """

    first: Signal
    lane: Signal
    token: Signal
    row_ends: Value
    lane_ends: Value
    token_ends: Value


class SerialArgmax(Unit):
    """Compute the argmax of the logits before rounding, which could make several of them equal.

    The arrays present a row of sums in one cycle. They are captured and compared serially while the
    next row is computed. For a block of tokens each row arrives for one token after the other; a
    memory holds the running maximum of each token.

    **Latency** ``row + 3`` cycles from a row's sums to its end, one more to the prediction.
    **Throughput** one row in as many cycles. The arrays take ``hidden_size`` cycles per row, and
    wait if that is less.

    **Numerics** exact comparisons in the format of the sums. Ties resolve to the lowest index. A
    NaN is below all numbers; if all logits are NaN, the result is token 0 with a NaN.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator, with a vocabulary.

    Members
    -------
    row_ends : In(1)
        `row_sums` are valid in this cycle.
    row_sums : In(array)
        Sums of all arrays, one logit each.
    rows : In(stream)
        The latest sums are a row of logits; the payload is the last token of its block.
    predictions : Out(stream)
        For each token of a block, in order: the predicted next `token`, and its logit `sum`.
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
        """Read the token's running maximum, compare a row of logits, write it back."""
        m = Module()
        p = self.parameters
        place = self._place(m)
        width = p.prediction_layout.size
        m.submodules.found = found = Memory(depth=max(2, p.block), width=width)
        best = Signal(p.prediction_layout, reset_less=True)
        sums = Signal(p.row_sums_layout, reset_less=True)
        # Logits are shifted out at the low end; rows of other kinds are loaded but not used.
        shifts, better = Signal(), self._better(m, sums[0], best.sum)
        sum_bits = p.array.sum_format.width
        with m.If(self.row_ends):
            m.d.sync += sums.eq(self.row_sums)
        with m.Elif(shifts):
            m.d.sync += Value.cast(sums).eq(Value.cast(sums) >> sum_bits)
        # After the vocabulary's last token the row is padded with zeros.
        number = Signal(range(p.vocabulary_rows * p.row))
        exists = number < p.vocabulary_size
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
        """Return the registers of the position of a logit."""
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
        """Advance from logit to logit, then to the next token's row, then to the next row."""
        with m.If(shifts):
            m.d.sync += place.lane.eq(Mux(place.lane_ends, 0, place.lane + 1))
        with m.If(self.rows.valid & self.rows.ready):
            m.d.sync += place.token.eq(Mux(place.token_ends, 0, place.token + 1))
            with m.If(place.token_ends):
                row = self.parameters.row
                m.d.sync += place.first.eq(Mux(place.row_ends, 0, place.first + row))

    def _better(self, m: Module, candidate: Any, best: Any) -> Value:
        """Return whether a logit is larger than the maximum so far, or is the first number."""
        sum_format = self.parameters.array.sum_format
        m.submodules.compare = compare = FloatCompare(number_format=sum_format)
        m.d.comb += [compare.a.eq(best), compare.b.eq(candidate)]
        number = ~(Cat(candidate.exponent).all() & Cat(candidate.mantissa).any())
        return compare.less | (compare.unordered & number)
