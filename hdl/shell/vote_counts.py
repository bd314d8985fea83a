"""Address generator of VEDA's vote counts."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import enum, stream
from amaranth.lib.wiring import In, Out

from hdl.memory.burst_port import BurstReadPort, BurstWritePort
from hdl.shell.veda_axi_parameters import VedaAxiParameters
from hdl.stream.connect import connect_handshake
from hdl.unit import Unit


class _State(enum.Enum, shape=2):
    READ = 0
    REQUEST = 1
    WRITE = 2


class VoteCounts(Unit):
    """Read and write the vote counts of one step after the other.

    The counts of a step are requested when those of all earlier steps are visible, since the next
    step may be one of the same layer. They are written as a burst that begins with the first count:
    no request at the port of writes waits for its words.

    **Latency** 0 cycles. **Throughput** one count per cycle; a step costs the latency of a write
    and of a read in addition.

    Parameters
    ----------
    parameters : VedaAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    steps : In(stream)
        Places of the counts of each step, see `VedaAxiParameters.step_layout`.
    counts_in, counts_out : Out(stream), In(stream)
        The counts to and from VEDA.
    reads, writes : Out(BurstReadPort), Out(BurstWritePort)
        The ports.
    written : In(1)
        All written counts are visible.
    idle : Out(1)
        No step is in progress.
    """

    def __init__(self, *, parameters: VedaAxiParameters) -> None:
        self.parameters = p = parameters
        bits = p.veda.voting.count_bits
        port = {"address_bits": p.address_bits, "word_shape": bits, "longest": p.longest}
        super().__init__(
            {
                "steps": In(stream.Signature(p.step_layout)),
                "counts_in": Out(stream.Signature(bits)),
                "counts_out": In(stream.Signature(bits)),
                "reads": Out(BurstReadPort(**port)),
                "writes": Out(BurstWritePort(**port)),
                "written": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Request the counts of a step, then write as many as it outputs."""
        m = Module()
        state = Signal(_State)
        step, left = self.steps.payload, Signal(self.parameters.veda.length_shape)
        reads, writes = self.reads, self.writes
        connect_handshake(m, reads.words, self.counts_in)
        m.d.comb += [
            self.counts_in.payload.eq(reads.words.payload.word),
            reads.requests.payload.address.eq(step.read_address),
            reads.requests.payload.length.eq(step.reads),
            writes.requests.payload.address.eq(step.write_address),
            writes.requests.payload.length.eq(step.writes),
            writes.words.payload.word.eq(self.counts_out.payload),
            writes.words.payload.last.eq(left == 1),
            self.idle.eq(state == _State.READ),
        ]
        # The stream holds a step until both of its requests are accepted.
        with m.Switch(state):
            with m.Case(_State.READ):
                m.d.comb += reads.requests.valid.eq(self.steps.valid & self.written)
                with m.If(reads.requests.valid & reads.requests.ready):
                    m.d.sync += state.eq(_State.REQUEST)
            with m.Case(_State.REQUEST):
                # A step whose tokens are all evicted outputs no count.
                none = step.writes == 0
                m.d.comb += [
                    writes.requests.valid.eq(self.counts_out.valid & ~none),
                    self.steps.ready.eq(none | (self.counts_out.valid & writes.requests.ready)),
                ]
                m.d.sync += left.eq(step.writes)
                with m.If(self.steps.ready):
                    m.d.sync += state.eq(Mux(none, _State.READ, _State.WRITE))
            with m.Case(_State.WRITE):
                connect_handshake(m, self.counts_out, writes.words)
                with m.If(writes.words.valid & writes.words.ready):
                    m.d.sync += left.eq(left - 1)
                    with m.If(left == 1):
                        m.d.sync += state.eq(_State.READ)
        return m
