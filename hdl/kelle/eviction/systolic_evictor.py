"""Kelle's systolic evictor (SE), which finds the least important token while scores are computed.

Section 5.3 and Figure 11 (c, d) of the paper. The column S holds the importance scores of the
tokens whose keys are in the systolic array, one token per row. The chain M carries the minimum from
the top row to the bottom row, one row per cycle, one cycle after the array.
"""

from enum import Enum
from typing import Annotated

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit


class ScoreSource(Enum):
    """Scores that are accumulated as a token's importance."""

    RAW = "raw"
    """Scores q.k before softmax, signed (Section 5.3)."""

    PROB = "prob"
    """Attention probabilities after softmax, unsigned (Equation 3)."""


class OnSaturation(Enum):
    """Action when an importance score exceeds its range."""

    CLAMP = "clamp"
    """The score saturates."""

    HALVE = "halve"
    """The score saturates, and all scores of the head are halved before the next step's add."""


@parameter_object
class SystolicEvictorParameters(Parameters):
    """Dimensions of a systolic evictor; they also drive its golden model and its testbench.

    Parameters
    ----------
    rows : int
        Tokens in a tile, the rows of the systolic array.
    slots : int
        Maximum number of cached tokens of a head, a multiple of `rows`.
    index_width : int
        Bits of a slot index; `slots` must be addressable.
    input_width : int
        Bits of a score from the array.
    score_width : int
        Bits of an importance score S, two's complement.
    shift : int
        Bits dropped (arithmetic shift, floor) from a score before it is added to S.
    source : ScoreSource
        Whether the scores are raw (signed) or probabilities (unsigned).
    on_saturation : OnSaturation
        Whether saturated scores are clamped, or clamped and then all halved.
    victims : int
        Maximum number of victims in flight or waiting for the eviction controller.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    rows: Annotated[int, PowerOfTwo(2, 64, "rows")] = 32
    slots: Annotated[int, Range("rows", 4096, "tokens")] = 2048
    index_width: Annotated[int, Range(1, 16, "bits")] = 12
    input_width: Annotated[int, Range(4, 32, "bits")] = 16
    score_width: Annotated[int, Range(4, 32, "bits")] = 16
    shift: Annotated[int, Range(0, 31, "bits")] = 8
    source: ScoreSource = ScoreSource.RAW
    on_saturation: OnSaturation = OnSaturation.CLAMP
    victims: Annotated[int, Range(1, 16, "victims")] = 4

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        require(self.slots % self.rows == 0, "slots must be a multiple of rows", self.slots)
        require(
            1 << self.index_width >= self.slots,
            f"index_width must address {self.slots} slots",
            self.index_width,
        )
        rule = f"shift must be less than input_width = {self.input_width}"
        require(self.shift < self.input_width, rule, self.shift)

    @property
    def halves(self) -> bool:
        """Whether saturation is reported, and followed by halving."""
        return self.on_saturation is OnSaturation.HALVE

    @property
    def row_bits(self) -> int:
        """Bits of a row number."""
        return ceil_log2(self.rows)

    @property
    def input_shape(self) -> Shape:
        """Shape of a score from the array."""
        return Shape(self.input_width, signed=self.source is ScoreSource.RAW)

    @property
    def lane_layout(self) -> data.StructLayout:
        """Inputs of one row: its score and the state of its slot."""
        return data.StructLayout(
            {
                "score": self.input_shape,
                "importance": signed(self.score_width),
                "valid": 1,
                "protect": 1,
            }
        )

    @property
    def wavefront_layout(self) -> data.StructLayout:
        """Header of a wavefront: its controls for every row."""
        flags = {"load": 1, "compare": 1, "last": 1}
        return data.StructLayout(flags | ({"halve": 1} if self.halves else {}))

    @property
    def update_layout(self) -> data.StructLayout:
        """Output of one row: the new importance of its slot."""
        return data.StructLayout({"importance": signed(self.score_width), "valid": 1})

    @property
    def minimum_layout(self) -> data.StructLayout:
        """An element of the chain M: the smallest score so far and the row that holds it."""
        flag = {"saturated": 1} if self.halves else {}
        return data.StructLayout(
            {"importance": signed(self.score_width), "row": self.row_bits, "found": 1} | flag
        )

    @property
    def victim_layout(self) -> data.StructLayout:
        """Result of a search."""
        flag = {"saturated": 1} if self.halves else {}
        return data.StructLayout(
            {"importance": signed(self.score_width), "index": self.index_width, "found": 1} | flag
        )


class EvictorRow(Unit):
    """One row: a register of column S and an element of chain M.

    **Latency** 1 cycle from `lane` and `minimum_in` to all outputs. **Throughput** one wavefront
    per cycle.

    **Numerics** two's complement; `shift` bits of the score are dropped (floor); the sum saturates.

    Parameters
    ----------
    parameters : SystolicEvictorParameters
        Dimensions and policy of the evictor.

    Members
    -------
    row : In
        Number of the row, a constant of the instance.
    lane : In
        The row's score and the state of its slot, in the cycle in which `wavefront_in` holds the
        wavefront.
    wavefront_in, strobe_in : In
        The wavefront from the row above; valid while the strobe is 1.
    wavefront_out, strobe_out : Out
        The same, one cycle later.
    minimum_in : In
        M of the row above.
    minimum_out : Out
        M of this row.
    update : Out
        The new importance of the slot, valid for one cycle.
    """

    def __init__(self, *, parameters: SystolicEvictorParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "row": In(parameters.row_bits),
                "lane": In(parameters.lane_layout),
                "strobe_in": In(1),
                "wavefront_in": In(parameters.wavefront_layout),
                "minimum_in": In(parameters.minimum_layout),
                "strobe_out": Out(1),
                "wavefront_out": Out(parameters.wavefront_layout),
                "minimum_out": Out(parameters.minimum_layout),
                "update": Out(parameters.update_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Add, saturate and compare in one register stage."""
        m = Module()
        p = self.parameters
        lane, wavefront = self.lane, self.wavefront_in

        # Column S: importance of the row's token, accumulated over the wavefronts of its tile.
        held = Signal(signed(p.score_width), reset_less=True)
        preloaded = lane.importance >> wavefront.halve if p.halves else lane.importance
        # An empty slot starts from zero: the importance of its new token is the token's own score,
        # without a special case.
        start = Mux(wavefront.load, Mux(lane.valid, preloaded, 0), held)
        total = Signal(Shape(max(p.score_width, p.input_width - p.shift + 1) + 1, signed=True))
        addend = lane.score >> p.shift
        m.d.comb += total.eq(start + addend)
        # In range, all bits from the sign on are equal. Out of range, the saturated value is the
        # sign, followed by its inverse.
        top = (1 << p.score_width - 1) - 1
        importance = Signal(signed(p.score_width))
        saturated = total[p.score_width - 1 :] != total[-1].replicate(
            len(total) - p.score_width + 1
        )
        m.d.comb += importance.eq(Mux(saturated, total[-1].replicate(p.score_width) ^ top, total))
        with m.If(self.strobe_in):
            m.d.sync += held.eq(importance)

        # Chain M: the minimum so far moves down one row per cycle.
        smallest = Signal(p.minimum_layout)
        minimum = Signal(p.minimum_layout, reset_less=True)
        m.d.comb += smallest.eq(self.minimum_in)
        smaller = self._is_smaller(m, start, addend, len(total))
        with m.If(lane.valid & ~lane.protect & smaller):
            m.d.comb += [
                smallest.importance.eq(importance),
                smallest.row.eq(self.row),
                smallest.found.eq(1),
            ]
        if p.halves:
            self._chain_saturation(m, smallest, saturated)

        passed = Signal(p.wavefront_layout, reset_less=True)
        m.d.sync += [
            minimum.eq(smallest),
            passed.eq(wavefront),
            self.strobe_out.eq(self.strobe_in),
        ]
        m.d.comb += [
            self.minimum_out.eq(minimum),
            self.wavefront_out.eq(passed),
            self.update.importance.eq(held),
            self.update.valid.eq(self.strobe_out),
        ]
        return m

    def _is_smaller(self, m: Module, start: Value, addend: Value, width: int) -> Value:
        """Return whether the row's new score is smaller than all above it.

        The comparison is strict: ties resolve to the row nearest the top, the lowest slot.
        """
        above = self.minimum_in
        # Sum and comparison are computed in parallel: start + addend - above is added in carry-save
        # form, before saturation. Saturation changes the result only if `above` is the lowest score
        # of the range.
        terms = [Signal(width + 1, name=f"term_{i}") for i in range(3)]
        x, y, z = terms
        m.d.comb += [x.eq(start), y.eq(addend), z.eq(~above.importance)]
        difference = (x ^ y ^ z) + Cat(1, (x & y) | (y & z) | (z & x))
        lowest = above.importance == -1 << self.parameters.score_width - 1
        return ~above.found | (difference[width] & ~lowest)

    def _chain_saturation(self, m: Module, smallest: data.View, saturated: Value) -> None:
        """Report to the rows below whether a score of the head has saturated."""
        lane, wavefront = self.lane, self.wavefront_in
        # A token's score is the sum of several wavefronts; any of them may have saturated.
        ever_saturated = Signal()
        earlier = Signal(reset_less=True)
        m.d.comb += ever_saturated.eq(saturated | (earlier & ~wavefront.load))
        with m.If(self.strobe_in):
            m.d.sync += earlier.eq(ever_saturated)
        above = self.minimum_in
        m.d.comb += smallest.saturated.eq(above.saturated | (lane.valid & ever_saturated))


class SystolicEvictor(Unit):
    """Add each token's new score to its importance and find the least important token.

    A *wavefront* is the scores of one vector for the tokens of one tile. It enters at the top row
    when its header is transferred on `wavefronts`, and moves down one row per cycle: lane i is
    sampled i cycles later, when the systolic array outputs it. Each row adds its score to S. The
    wavefront that completes a token's score (`compare`) also searches the minimum. The search
    continues over the tiles of a head, in slot order, until the wavefront marked `last`; then the
    victim is output.

    Scores of several query heads that share a key are wavefronts of the same tile: the first loads
    S, the last compares. An empty slot (`valid` = 0) starts from zero and is no candidate. A
    wavefront without `compare`, outside the search of its tile, can therefore set the importance of
    a new token to its own score.

    **Latency** S of row i is valid i + 1 cycles after the header's transfer, the victim `rows`
    cycles after it: one cycle after the bottom row's score. **Throughput** one wavefront per cycle,
    also from tile to tile and from head to head; a wavefront marked `last` waits while `victims`
    victims are in flight or waiting.

    **Numerics** S = saturate(S + floor(score / 2**shift)), two's complement. The victim is the
    smallest S among valid, unprotected slots; ties resolve to the lowest slot.

    Parameters
    ----------
    parameters : SystolicEvictorParameters
        Dimensions and policy of the evictor.

    Members
    -------
    wavefronts : In(stream)
        Headers: `load` takes S from the lane's `importance` (else S continues), `compare` completes
        the tile's scores, `last` ends the head's search; `halve` halves what `load` takes.
    lanes : In(ArrayLayout(lane, rows))
        For each row: `score`, stored `importance`, `valid`, `protect`, sampled when the wavefront
        is at the row. There is no handshake.
    updates : Out(ArrayLayout(update, rows))
        For each row: the new `importance`, in the cycle in which `valid` is 1.
    victims : Out(stream)
        `index` of the slot, its `importance`, and `found`: 0 if no slot was a candidate;
        `saturated` if a score of the head has saturated.

    Raises
    ------
    ValueError
        If `SystolicEvictorParameters` rejects a dimension.
    """

    def __init__(self, *, parameters: SystolicEvictorParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "wavefronts": In(stream.Signature(parameters.wavefront_layout)),
                "lanes": In(data.ArrayLayout(parameters.lane_layout, parameters.rows)),
                "updates": Out(data.ArrayLayout(parameters.update_layout, parameters.rows)),
                "victims": Out(stream.Signature(parameters.victim_layout)),
            }
        )
        # State of the search at the bottom of the chain, where a proof can name it.
        self.best = Signal(parameters.victim_layout, reset_less=True)
        self.best_found = Signal()
        self.tile = Signal(parameters.index_width - parameters.row_bits)
        self.in_flight = Signal(range(parameters.victims + 1))

    def elaborate(self, platform: object) -> Module:
        """Chain the rows, and hold the minimum of the head after the bottom row."""
        m = Module()
        p = self.parameters

        # Room for a victim is reserved at the top row, since the rows below cannot wait.
        ends = self.wavefronts.payload.compare & self.wavefronts.payload.last
        room = self.in_flight != p.victims
        starts = self.wavefronts.valid & self.wavefronts.ready
        leaves = self.victims.valid & self.victims.ready
        m.d.comb += self.wavefronts.ready.eq(room | ~ends)
        m.d.sync += self.in_flight.eq(self.in_flight + (starts & ends) - leaves)

        # The top row starts with no candidate.
        strobe, wavefront = starts, self.wavefronts.payload
        minimum = data.Const(p.minimum_layout, 0)
        for i in range(p.rows):
            m.submodules[f"row_{i}"] = row = EvictorRow(parameters=p)
            m.d.comb += [
                row.row.eq(i),
                row.lane.eq(self.lanes[i]),
                row.strobe_in.eq(strobe),
                row.wavefront_in.eq(wavefront),
                row.minimum_in.eq(minimum),
                self.updates[i].eq(row.update),
            ]
            strobe, wavefront, minimum = row.strobe_out, row.wavefront_out, row.minimum_out

        # Only a wavefront that completes its tile's scores has a valid minimum.
        compared = strobe & wavefront.compare
        victim = self._end_of_chain(m, compared, wavefront, minimum)

        # A victim that is transferred immediately has no extra latency.
        m.submodules.waiting = waiting = Fifo(shape=p.victim_layout, depth=p.victims)
        m.d.comb += [
            waiting.source.payload.eq(victim),
            waiting.source.valid.eq(compared & wavefront.last),
        ]
        connect_streams(m, waiting.sink, self.victims)
        return m

    def _end_of_chain(
        self, m: Module, compared: Value, wavefront: data.View, minimum: data.View | data.Const
    ) -> data.View:
        """Return the minimum of a head's tiles so far, and hold it until the head's last tile.

        The minimum of the head's earlier tiles is compared here, after the bottom row, rather than
        at the top row, so that a tile need not wait until the previous tile has drained.
        """
        p = self.parameters
        # An earlier tile has the lower slots, to which ties resolve, as they would in the chain.
        victim = Signal(p.victim_layout)
        smaller = ~self.best_found | (minimum.importance < self.best.importance)
        m.d.comb += [victim.eq(self.best), victim.found.eq(self.best_found)]
        with m.If(minimum.found & smaller):
            m.d.comb += [
                victim.importance.eq(minimum.importance),
                victim.index.eq(Cat(minimum.row, self.tile)),
                victim.found.eq(1),
            ]
        if p.halves:
            saturated = Signal()
            m.d.comb += victim.saturated.eq(saturated | minimum.saturated)
            with m.If(compared):
                m.d.sync += saturated.eq(victim.saturated & ~wavefront.last)
        with m.If(compared):
            m.d.sync += [
                self.best.eq(victim),
                self.best_found.eq(victim.found & ~wavefront.last),
                self.tile.eq(Mux(wavefront.last, 0, self.tile + 1)),
            ]
        return victim
