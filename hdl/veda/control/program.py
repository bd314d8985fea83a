"""The sequence of matrices of a decoder layer: some precede its attention, the others follow it."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit
from hdl.veda.instructions import Leave, PassKind, Space
from hdl.veda.parameters import VedaParameters

BEFORE = (PassKind.ANGLES, PassKind.QUERY_KEY_VALUE)
AFTER = (PassKind.OUTPUT_PROJECTION, PassKind.GATE_UP, PassKind.DOWN)
PREDICTING = (*AFTER, PassKind.VOCABULARY)


class LayerSequencer(Unit):
    """Issue the weights of a layer's matrices, each as one burst.

    A layer's matrices are stored back to back, in the order in which the arrays use their lines:
    every address is a constant, and each matrix is one burst. The LM head follows a layer that has
    `leave` equal to `Leave.PREDICT`.

    **Latency** 0 cycles. **Throughput** one burst per cycle.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.

    Members
    -------
    halves : In(stream)
        A task and which of its matrices to issue: those after its attention if `after` is 1,
        otherwise those before it. Transferred with the last burst.
    reads : Out(stream)
        Bursts of weights or rotary angles.
    passes : Out(stream)
        What the arrays compute with each burst; transferred together with it.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        half = data.StructLayout({"task": p.task_layout, "after": 1})
        super().__init__(
            {
                "halves": In(stream.Signature(half)),
                "reads": Out(stream.Signature(p.read_layout)),
                "passes": Out(stream.Signature(p.pass_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Step through the matrices of one half of a layer."""
        m = Module()
        p = self.parameters
        half, task = self.halves.payload, self.halves.payload.task
        burst, header = self.reads.payload, self.passes.payload
        predicts = task.leave == Leave.PREDICT.value
        last_after = Mux(predicts, len(PREDICTING) - 1, len(AFTER) - 1)
        # A burst and its pass are transferred in the same cycle.
        after = PREDICTING if p.vocabulary_size else AFTER
        before = BEFORE if p.rotary else BEFORE[1:]
        step = Signal(range(max(len(before), len(after))))
        ends, moves = Signal(), Signal()
        m.d.comb += [
            ends.eq(step == Mux(half.after, last_after, len(before) - 1)),
            moves.eq(self.halves.valid & self.reads.ready & self.passes.ready),
            self.reads.valid.eq(self.halves.valid & self.passes.ready),
            self.passes.valid.eq(self.halves.valid & self.reads.ready),
            self.halves.ready.eq(moves & ends),
            burst.beats.eq(header.beats),
            header.final.eq(half.after),
            *(header[name].eq(task[name]) for name in ("vote", "operation", "leave", "last_token")),
        ]
        with m.If(moves):
            m.d.sync += step.eq(Mux(ends, 0, step + 1))
        # The first line of a matrix is known at elaboration: matrices are stored in this order.
        line = 0
        with m.Switch(half.after):
            for half_number, kinds in enumerate((before, after)):
                with m.Case(half_number), m.Switch(step):
                    for number, kind in enumerate(kinds):
                        with m.Case(number):
                            m.d.comb += header.kind.eq(kind)
                            self._address(m, kind, line)
                            line += p.beats.get(kind, 0)
        return m

    def _address(self, m: Module, kind: PassKind, line: int) -> None:
        """Assign the addresses and the length of a burst."""
        p = self.parameters
        task, burst = self.halves.payload.task, self.reads.payload
        for channel in range(p.channels):
            address = burst.addresses[channel]
            # Each channel has its own lines of weights; rotary angles are the same for all heads.
            if kind == PassKind.ANGLES:
                part = Const(channel % p.vector_lines, p.angle_line["part"].width)
                m.d.comb += [
                    address.space.eq(Space.ANGLES),
                    address.line.eq(Cat(task.position, part)),
                ]
            elif kind == PassKind.VOCABULARY:
                place = channel << p.vocabulary_line["channel"].offset
                m.d.comb += [
                    address.space.eq(Space.VOCABULARY),
                    Cat(address.line, address.layer).eq(place),
                ]
            else:
                m.d.comb += [
                    address.space.eq(Space.WEIGHTS),
                    address.layer.eq(task.layer),
                    address.line.eq(line | channel << p.weight_line["channel"].offset),
                ]
        lines = {PassKind.ANGLES: task.last_token + 1, PassKind.VOCABULARY: p.vocabulary_beats}
        m.d.comb += self.passes.payload.beats.eq((p.beats | lines)[kind])
