"""One softmax for each of VEDA's lanes, which process different heads in lock-step."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.stream.connect import connect_streams, fork_handshake, join_handshake
from hdl.stream.fifo import Fifo
from hdl.unit import Unit
from hdl.veda.functions.element_serial_softmax import ElementSerialSoftmax
from hdl.veda.functions.normalization_unit import OPERATORS
from hdl.veda.functions.softmax_parameters import ElementSerialSoftmaxParameters

HEADS_IN_FLIGHT = 4
"""Heads whose length may be known before their last score arrives."""


class LaneSoftmax(Unit):
    """Mark the ends of heads, and convert the scores of all lanes to probabilities.

    **Latency**, **throughput** and **numerics** as in `ElementSerialSoftmax`; the slowest lane
    determines the first two.

    Parameters
    ----------
    parameters : ElementSerialSoftmaxParameters
        Dimensions of a lane's softmax.
    lanes : int
        Heads in lock-step, 1 or more.
    shared : bool
        Use operators outside the unit for the first lane's normalisation; adds `operators`.

    Members
    -------
    lengths : In(stream)
        The number of scores of each head, in order.
    scores : In(stream)
        One score for each lane.
    probabilities : Out(stream)
        One probability for each lane, and `last` with a head's last.
    flags : Out(struct)
        Flags of all lanes, combined by OR.
    clear_flags : In(1)
        As in `ElementSerialSoftmax`.
    operators : Out(OPERATORS)
        With `shared`: the operators.
    """

    def __init__(
        self, *, parameters: ElementSerialSoftmaxParameters, lanes: int = 1, shared: bool = False
    ) -> None:
        self.parameters = p = parameters
        self.lanes = lanes
        self.shared = shared
        super().__init__(
            {
                "lengths": In(stream.Signature(p.length_shape)),
                "scores": In(stream.Signature(p.lanes_layout(lanes))),
                "probabilities": Out(stream.Signature(p.beat_layout(lanes))),
                "flags": Out(p.flags_layout),
                "clear_flags": In(1),
            }
            | ({"operators": Out(OPERATORS)} if shared else {})
        )

    def elaborate(self, platform: object) -> Module:
        """Count scores, fork them to the lanes, join the probabilities."""
        m = Module()
        p = self.parameters
        lanes = [
            ElementSerialSoftmax(parameters=p, shared=self.shared and lane == 0)
            for lane in range(self.lanes)
        ]
        # Only the first lane's normalisation shares its operators; the other lanes have their own.
        if self.shared:
            connect(m, lanes[0].operators, flipped(self.operators))
        m.submodules.heads = heads = Fifo(shape=p.length_shape, depth=HEADS_IN_FLIGHT)
        connect_streams(m, self.lengths, heads.source)

        # The arrays' scores carry no end mark: the head's length, which arrives earlier, gives it.
        # The number of a score counts from 1, so that its comparison needs no increment: `ready`
        # of the arrays' dot products depends on it.
        number = Signal(p.length_shape, init=1)
        last, moves = Signal(), Signal()
        offered = self.scores.valid & heads.sink.valid
        ready = fork_handshake(m, offered, [lane.scores for lane in lanes])
        m.d.comb += [
            last.eq(number == heads.sink.payload),
            moves.eq(offered & ready),
            self.scores.ready.eq(heads.sink.valid & ready),
            heads.sink.ready.eq(moves & last),
        ]
        with m.If(moves):
            m.d.sync += number.eq(Mux(last, 1, number + 1))

        # In lock-step: a score enters all lanes or none, and so does a probability at the output.
        results = [lane.probabilities for lane in lanes]
        valid = join_handshake(m, results, self.probabilities.ready)
        m.d.comb += [
            self.probabilities.valid.eq(valid),
            self.probabilities.payload.last.eq(results[0].payload.last),
        ]
        # A flag of any lane sets the common flag.
        flags = 0
        for index, lane in enumerate(lanes):
            m.submodules[f"lane_{index}"] = lane
            m.d.comb += [
                lane.scores.payload.value.eq(self.scores.payload[index]),
                lane.scores.payload.last.eq(last),
                lane.clear_flags.eq(self.clear_flags),
                self.probabilities.payload.values[index].eq(results[index].payload.value),
            ]
            flags = lane.flags.as_value() | flags
        m.d.comb += self.flags.eq(flags)
        return m
