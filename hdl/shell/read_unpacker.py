"""Conversion of the beats of AXI4 read data into words."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.shell.axi import Cause, Response, error_layout
from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.shell.error_latch import ErrorLatch
from hdl.shell.lane_counter import LaneCounter
from hdl.unit import Unit


class ReadUnpacker(Unit):
    """Assemble words of several beats, or output a beat's words one by one.

    The number of beats follows from the queue of bursts, not from `last`: a subordinate that breaks
    AXI4's rules corrupts data, but neither the number of words nor their ends.

    **Latency** 0 cycles. **Throughput** one beat or one word per cycle, whichever is narrower.

    Parameters
    ----------
    parameters : AxiMasterParameters
        Dimensions of the master.

    Members
    -------
    bursts : In(stream)
        The bursts in flight; a burst is transferred with its last beat.
    beats : In(stream)
        Beats of the read channel, in the order of the bursts.
    words : Out(stream)
        Each `word`; `last` with the last word of a burst at the burst port.
    flush : In(1)
        Consume beats, and output no words.
    error, clear_error
        As in `AxiReadMaster`.

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
                "beats": In(stream.Signature(p.read_beat_layout)),
                "words": Out(stream.Signature(p.reads.word_layout)),
                "flush": In(1),
                "error": Out(error_layout(p.axi_address_bits)),
                "clear_error": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the beats of the oldest burst, and the beats or words inside it."""
        m = Module()
        p = self.parameters
        burst, beat, word = self.bursts.payload, self.beats.payload, self.words.payload
        count = Signal(range(p.block_beats))
        last, present, moves = Signal(), Signal(), Signal()
        m.d.comb += [
            last.eq(count == burst.more),
            present.eq(self.bursts.valid & self.beats.valid),
            moves.eq(self.beats.valid & self.beats.ready),
            self.bursts.ready.eq(moves & last),
        ]
        with m.If(moves):
            m.d.sync += count.eq(Mux(last, 0, count + 1))
        if p.lanes == 1:
            self._assemble(m, present, moves)
            m.d.comb += word.last.eq(burst.final & last)
        else:
            self._select(m, present, last)
        self._latch_errors(m, moves & ((beat.last != last) | beat.id), count)
        return m

    def _assemble(self, m: Module, present: Value, moves: Value) -> None:
        """Store the first beats of a word; output it with its last beat."""
        p = self.parameters
        number = Signal(range(p.beats))
        stored = Signal(8 * p.data_bytes * (p.beats - 1), reset_less=True)
        complete = number == p.beats - 1
        assembled = Cat(stored, self.beats.payload.data)
        m.d.comb += [
            self.words.payload.word.eq(assembled),
            self.words.valid.eq(present & complete & ~self.flush),
            self.beats.ready.eq(self.bursts.valid & (~complete | self.words.ready | self.flush)),
        ]
        with m.If(moves):
            # Words continue across AXI4 bursts, which may end inside a word.
            m.d.sync += [
                number.eq(Mux(complete, 0, number + 1)),
                stored.eq(assembled[8 * p.data_bytes :]),
            ]
        with m.If(self.flush):
            m.d.sync += number.eq(0)

    def _select(self, m: Module, present: Value, last: Value) -> None:
        """Output the lanes of a beat; the first and the last beat of a request may be partial."""
        p = self.parameters
        burst = self.bursts.payload
        m.submodules.lanes = lanes = LaneCounter(lanes=p.lanes)
        m.d.comb += [
            lanes.first.eq(burst.first_lane),
            lanes.end.eq(Mux(last, burst.last_lane, p.lanes - 1)),
            lanes.burst_ends.eq(last),
            lanes.step.eq(self.words.valid & self.words.ready),
            lanes.restart.eq(self.flush),
            self.words.payload.word.eq(
                self.beats.payload.data.word_select(lanes.lane, 8 * p.word_bytes)
            ),
            self.words.payload.last.eq(burst.final & last & lanes.ends),
            self.words.valid.eq(present & ~self.flush),
            self.beats.ready.eq(self.bursts.valid & ((self.words.ready & lanes.ends) | self.flush)),
        ]

    def _latch_errors(self, m: Module, unexpected: Value, count: Value) -> None:
        """Report the address of a beat with an error."""
        p = self.parameters
        response = Value.cast(self.beats.payload.response)
        moves = self.beats.valid & self.beats.ready
        m.submodules.latch = latch = ErrorLatch(address_bits=p.axi_address_bits)
        cause = Mux(response != Response.OKAY.value, response, Cause.UNEXPECTED.value)
        m.d.comb += [
            latch.occurs.eq(moves & (response != Response.OKAY.value) | unexpected),
            Value.cast(latch.cause).eq(cause),
            latch.address.eq((self.bursts.payload.beat + count) << p.byte_bits),
            latch.clear.eq(self.clear_error),
            self.error.eq(latch.error),
        ]
