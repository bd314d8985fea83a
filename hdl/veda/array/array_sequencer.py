"""Flow control and element control of VEDA's PE array.

The array's datapath has no stalls. The sequencer alone decides whether a beat may enter: only when
the adders are free, the partial sums are in place, and there is room for the result.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.unit import Unit
from hdl.veda.array.array_parameters import ArrayMode, FlexiblePeArrayParameters
from hdl.veda.array.processing_element import ElementMode

TILE_LAYOUT = data.StructLayout({"valid": 1, "split": 1, "first": 1, "last": 1})
"""Control bits that accompany an inner product through the tree."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """State of the row of an outer product.

    Parameters
    ----------
    accepts : Value
        Its next beat may enter.
    idle : Value
        No row is in flight in the PEs.
    """

    accepts: Value
    idle: Value


class ArraySequencer(Unit):
    """Accept beats and control the processing elements (PEs).

    A beat of an outer product enters when its partial sum is at the adder's output: with A adder
    stages, beat i of a row is added to partial sum ``i mod A``, for any pattern of idle cycles.
    After a row's last beat the array folds the partial sums, oldest first, for ``A * (A - 1)``
    cycles.

    **Latency** 0 cycles from a beat to `load` and `tile`; ``multiply_stages - 1`` to `mode`,
    `valid` and `fold`. **Throughput** one beat per cycle.

    Parameters
    ----------
    parameters : FlexiblePeArrayParameters
        Dimensions of the array.

    Members
    -------
    beats : In(stream)
        Control fields of the operands.
    vector_valid, vector_ready : In(1), Out(1)
        Handshake of the stationary vectors.
    scored : In(1)
        A dot product is transferred at the array's output.
    results_valid, results_ready : Out(1), In(1)
        Handshake of the rows of results.
    load : Out(1)
        The PEs load their second factor: a scalar or an element of the vector.
    mode, valid, fold : Out
        Control of all PEs, see `ProcessingElement`.
    capture : Out(1)
        The PEs' sums are a complete row in this cycle.
    tile : Out(TILE_LAYOUT)
        Control bits of an inner product that enters in this cycle.
    """

    def __init__(self, *, parameters: FlexiblePeArrayParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "beats": In(stream.Signature(parameters.header_layout)),
                "vector_valid": In(1),
                "vector_ready": Out(1),
                "scored": In(1),
                "results_valid": Out(1),
                "results_ready": In(1),
                "load": Out(1),
                "mode": Out(ElementMode),
                "valid": Out(1),
                "fold": Out(1),
                "capture": Out(1),
                "tile": Out(TILE_LAYOUT),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Decide which beat enters, and track rows and dot products in flight."""
        m = Module()
        beat = self.beats.payload
        inner, scalar, dot = Signal(), Signal(), Signal()
        m.d.comb += [
            inner.eq(beat.mode == ArrayMode.INNER),
            scalar.eq(self.beats.valid & self.beats.ready & ~inner),
            dot.eq(self.beats.valid & self.beats.ready & inner),
        ]
        row = self._row(m, scalar, dot)
        tile = row.idle & self._tile(m, dot)
        m.d.comb += [
            self.beats.ready.eq(
                Mux(inner, tile & (~beat.load_vector | self.vector_valid), row.accepts)
            ),
            self.vector_ready.eq(self.beats.valid & inner & beat.load_vector & tile),
            self.load.eq(scalar | (dot & beat.load_vector)),
            self.tile.valid.eq(dot),
            self.tile.split.eq(beat.split),
            self.tile.first.eq(beat.first),
            self.tile.last.eq(beat.last),
        ]
        return m

    def _row(self, m: Module, scalar: Signal, dot: Signal) -> _Row:
        """Track a row from its first beat to its results."""
        p = self.parameters
        beat, stages = self.beats.payload, p.add_stages
        # After an inner product the sums of the tree still occupy the adders.
        draining = Signal(range(p.drain + 1))
        with m.If(dot):
            m.d.sync += draining.eq(p.drain)
        with m.Elif(draining != 0):
            m.d.sync += draining.eq(draining - 1)

        # Cycles until the next beat's partial sum is at the adder's output; cycles since the first
        # beat.
        open_row = Signal()
        away, age = Signal(range(stages)), Signal(range(stages + 1), init=stages)
        with m.If(scalar):
            m.d.sync += [open_row.eq(~beat.last), away.eq(0)]
        with m.Else():
            m.d.sync += away.eq(Mux(away == stages - 1, 0, away + 1))
        starts = scalar & beat.first
        fresh = starts | (age != stages)
        m.d.sync += age.eq(Mux(starts, 1, age + (age != stages)))

        # Cycles since the last beat, until the results are valid.
        ended = Signal(range(p.row_latency + 1))
        with m.If(scalar & beat.last):
            m.d.sync += ended.eq(1)
        with m.Elif(ended == p.row_latency):
            m.d.sync += ended.eq(0)
        with m.Elif(ended != 0):
            m.d.sync += ended.eq(ended + 1)
        folded = (ended == 0) | (ended > p.fold)
        m.d.comb += self.capture.eq(ended == p.row_latency - 1)
        with m.If(self.capture):
            m.d.sync += self.results_valid.eq(1)
        with m.Elif(self.results_ready):
            m.d.sync += self.results_valid.eq(0)

        self._control(m, scalar, dot, fresh=fresh, ended=ended)
        # A row may begin, but not end, while the previous row's results are not yet accepted.
        finishes = ~beat.last | ((ended == 0) & ~self.results_valid)
        in_time = beat.first | (open_row & (away == 0))
        return _Row(accepts=(draining == 0) & folded & in_time & finishes, idle=~open_row & folded)

    def _control(self, m: Module, scalar: Value, dot: Value, *, fresh: Value, ended: Value) -> None:
        """Control the adders, aligned with the factors of the accepted beat."""
        p = self.parameters
        # The partial sum after the one at the adder's output follows a cycle later. It is loaded
        # into the product register, as is each sum of two.
        joins = Cat(
            ended == 2 + number * (p.add_stages + 1) for number in range(p.add_stages - 1)
        ).any()
        outer, mode, was_fresh = Signal(), Signal(ElementMode), Signal()
        m.d.sync += [outer.eq(scalar | (outer & ~dot)), was_fresh.eq(fresh)]
        # Between the beats of a row the partial sums circulate (DISABLE). While the adder's stages
        # still contain sums of an earlier row, its output is discarded (CLEAR), with or without a
        # beat.
        m.d.comb += mode.eq(ElementMode.DISABLE)
        with m.If(dot | (~outer & ~scalar)):
            m.d.comb += mode.eq(ElementMode.TRANSMIT)
        with m.Elif(fresh):
            m.d.comb += mode.eq(ElementMode.CLEAR)
        with m.Elif(scalar):
            m.d.comb += mode.eq(ElementMode.LOCAL)
        control = Cat(mode, scalar | dot, joins & ~was_fresh)
        aligned = delay_line(m, control, p.multiply_stages - 1, name="control")[-1]
        m.d.comb += Cat(self.mode, self.valid, self.fold).eq(aligned)

    def _tile(self, m: Module, dot: Signal) -> Value:
        """Count dot products and partial sums; return whether an inner product may enter."""
        p = self.parameters
        beat = self.beats.payload
        leaves, returns = Signal(), Signal()
        m.d.comb += [leaves.eq(dot & ~beat.last), returns.eq(dot & ~beat.first)]

        # Credits: a dot product enters only when the output FIFO has a free entry for it.
        promised = Signal(range(p.dot_depth + 1))
        m.d.sync += promised.eq(promised + (dot & beat.last) - self.scored)

        # Partial sums in flight or in the memory, and those that can be read from the memory.
        circling = Signal(range(p.partial_sums + 1))
        m.d.sync += circling.eq(circling + leaves - returns)
        waiting = Signal(range(p.partial_sums + 1))
        written = delay_line(m, leaves, p.add_stages + 1, name="written", reset=True)[-1]
        m.d.sync += waiting.eq(waiting + written - returns)

        room = Mux(beat.last, promised != p.dot_depth, 1)
        partial = Mux(beat.first, beat.last | (circling != p.partial_sums), waiting != 0)
        return room & partial
