"""Conversion of words into the beats of AXI4 write data."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.shell.lane_counter import LaneCounter
from hdl.unit import Unit


class WritePacker(Unit):
    """Cut words into beats, or collect the words of a beat.

    **Latency** 0 cycles from the word that completes a beat. **Throughput** one beat or one word
    per cycle, whichever is narrower.

    Parameters
    ----------
    parameters : AxiMasterParameters
        Dimensions of the master.

    Members
    -------
    bursts : In(stream)
        The bursts to fill; a burst is transferred with its last beat.
    words : In(stream)
        Words of the burst port; no word is accepted without a burst.
    flush : In(1)
        Accept no words, and fill bursts with beats that write no byte.
    beats : Out(stream)
        Beats of the write channel: `data`, `strobe`, and `last` with the last beat of a burst.
        `flush` may replace a beat that is not transferred yet.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `AxiMasterParameters`.
    """

    def __init__(self, *, parameters: AxiMasterParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "bursts": In(p.bursts),
                "words": In(stream.Signature(p.writes.word_layout)),
                "flush": In(1),
                "beats": Out(stream.Signature(p.write_beat_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the beats of the oldest burst, and the beats or words inside it."""
        m = Module()
        p = self.parameters
        count = Signal(range(p.block_beats))
        last, present, moves = Signal(), Signal(), Signal()
        m.d.comb += [
            last.eq(count == self.bursts.payload.more),
            present.eq(self.bursts.valid & self.words.valid & ~self.flush),
            moves.eq(self.beats.valid & self.beats.ready),
            self.beats.payload.last.eq(last),
            self.bursts.ready.eq(moves & last),
        ]
        with m.If(moves):
            m.d.sync += count.eq(Mux(last, 0, count + 1))
        if p.lanes == 1:
            self._cut(m, present, moves)
        else:
            self._collect(m, present, last)
        return m

    def _cut(self, m: Module, present: Value, moves: Value) -> None:
        """Output the parts of the offered word; accept it with its last part."""
        p = self.parameters
        number = Signal(range(p.beats))
        final = number == p.beats - 1
        m.d.comb += [
            self.beats.payload.data.eq(
                self.words.payload.word.word_select(number, 8 * p.data_bytes)
            ),
            self.beats.payload.strobe.eq((~self.flush).replicate(p.data_bytes)),
            self.beats.valid.eq(present | (self.bursts.valid & self.flush)),
            self.words.ready.eq(self.bursts.valid & ~self.flush & final & self.beats.ready),
        ]
        with m.If(moves):
            m.d.sync += number.eq(Mux(final, 0, number + 1))
        with m.If(self.flush):
            m.d.sync += number.eq(0)

    def _collect(self, m: Module, present: Value, last: Value) -> None:
        """Store the first words of a beat; output it with its last word."""
        p = self.parameters
        burst = self.bursts.payload
        m.submodules.lanes = lanes = LaneCounter(lanes=p.lanes)
        width = 8 * p.word_bytes
        stored = Signal(8 * p.data_bytes, reset_less=True)
        filled = Signal(p.lanes)
        merged, used = Signal.like(stored), Signal.like(filled)
        m.d.comb += [
            lanes.first.eq(burst.first_lane),
            lanes.end.eq(Mux(last, burst.last_lane, p.lanes - 1)),
            lanes.burst_ends.eq(last),
            lanes.step.eq(self.words.valid & self.words.ready),
            lanes.restart.eq(self.flush),
            merged.eq(stored),
            merged.word_select(lanes.lane, width).eq(self.words.payload.word),
            # Lanes of the present word and of all words before it in this beat.
            used.eq(filled | (1 << lanes.lane)),
            self.beats.payload.data.eq(merged),
            self.beats.valid.eq((present & lanes.ends) | (self.bursts.valid & self.flush)),
            self.words.ready.eq(self.bursts.valid & ~self.flush & (~lanes.ends | self.beats.ready)),
        ]
        for byte in range(p.data_bytes):
            m.d.comb += self.beats.payload.strobe[byte].eq(used[byte // p.word_bytes] & ~self.flush)
        with m.If(self.words.valid & self.words.ready):
            m.d.sync += [stored.eq(merged), filled.eq(Mux(lanes.ends, 0, used))]
        with m.If(self.flush):
            m.d.sync += filled.eq(0)
