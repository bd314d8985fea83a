"""Scores of all positions from the scores of their key centres, and their maximum."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.lad.eas.eas_parameters import AttentionScoreModuleParameters
from hdl.lad.eas.running_maximum import LOWEST, RunningMaximum
from hdl.lad.fp16 import FP16
from hdl.lad.group_walk import count_groups, large_modes
from hdl.memory.memory import Memory
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit


class ScoreRescaler(Unit):
    """Look up the score of each position's centre, multiply it by dnorm, track the maximum (EAS.2).

    Computed scores (the paper's sc) are written at their position into one half of the tables,
    while the other half serves the previous step. Each lane has its own copy of the tables, so that
    a group is looked up in one cycle. A position of M has its own score in the tables; EAS.3 needs
    no second pass.

    **Latency** 2 + `multiply_stages` cycles from a group to its scores; the maximum is output
    ``ceil(log2(lanes)) + 2`` cycles after the last scores. **Throughput** `lanes` positions per
    cycle.

    **Numerics** one rounding; the maximum is that of IEEE 754: a NaN if any score is a NaN.

    Parameters
    ----------
    parameters : AttentionScoreModuleParameters
        Lanes, slots, intervals and register stages.

    Members
    -------
    lengths : In(stream)
        The number of positions of each step, when it begins.
    write : In(1)
        A computed score is valid.
    position, score : In
        The score in FP16 and its position.
    last : In(1)
        The score is the last one of its step.
    groups : In(stream)
        `lanes` positions of G; those of a step are accepted when its scores are complete.
    steps : Out(stream)
        To APID: `length` and `maximum` of a step.
    scores : Out(stream)
        To APID: `scores`, `modes` and `counts` of `lanes` positions.
    """

    def __init__(self, *, parameters: AttentionScoreModuleParameters) -> None:
        self.parameters = p = parameters
        length = p.apid.step_layout.members["length"]
        super().__init__(
            {
                "lengths": In(stream.Signature(data.StructLayout({"length": length}))),
                "write": In(1),
                "position": In(p.position_bits),
                "score": In(FP16),
                "last": In(1),
                "groups": In(stream.Signature(p.group_layout)),
                "steps": Out(stream.Signature(p.apid.step_layout)),
                "scores": Out(stream.Signature(p.apid.group_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Select the table addresses; look up, multiply, and compare the products."""
        m = Module()
        p, apid = self.parameters, self.parameters.apid
        levels = ceil_log2(apid.lanes)
        # Room for the step that APID reads and for the next one, and for groups still being
        # compared.
        depth = max(2 * apid.groups, apid.groups + levels + 5)
        m.submodules.fifo = fifo = MemoryFifo(shape=apid.group_layout, depth=depth)
        m.submodules.headers = headers = Fifo(shape=apid.step_layout, depth=2)
        m.submodules.begun = begun = Fifo(shape=self.lengths.payload.shape(), depth=2)
        connect_streams(m, fifo.sink, self.scores)
        connect_streams(m, headers.sink, self.steps)
        connect_streams(m, self.lengths, begun.source)

        move, taken, ends = Signal(), Signal(), Signal()
        # Halves of the tables with the complete scores of a step.
        filled = Signal(range(3))
        m.d.comb += [
            # Both `ready` are outputs of registers: either one stalls tables, multipliers and
            # maximum together.
            move.eq(fifo.source.ready & headers.source.ready),
            taken.eq(self.groups.valid & (filled != 0) & move),
            self.groups.ready.eq((filled != 0) & move),
            begun.sink.ready.eq(taken & ends),
        ]
        m.d.sync += filled.eq(filled + (self.write & self.last) - (taken & ends))
        length = begun.sink.payload.length
        cursor = count_groups(m, apid, length=length, taken=taken)
        precise = large_modes(apid, cursor, self.groups.payload.modes)
        m.d.comb += ends.eq(cursor.ends)
        products = self._products(m, move, taken & ends, cursor.base, precise)

        late = 1 + p.multiply_stages
        group = self.groups.payload
        # Delayed in parallel with the products: present lanes, the step's end, and the fields for
        # APID.
        beside = Cat(
            cursor.present, ends, length, Value.cast(group.modes), Value.cast(group.counts)
        )
        waited = delay_line(m, beside, late, name="beside", enable=move)[-1]
        valid = delay_line(m, taken, late, name="valid", enable=move, reset=True)[-1]
        # Bit positions of the step's end and length in the delayed word.
        header, modes = apid.lanes + 1 + len(length), len(Value.cast(group.modes))
        m.d.comb += [
            fifo.source.valid.eq(valid & move),
            Value.cast(fifo.source.payload.scores).eq(Cat(products)),
            Value.cast(fifo.source.payload.modes).eq(waited[header : header + modes]),
            Value.cast(fifo.source.payload.counts).eq(waited[header + modes :]),
        ]
        m.submodules.maximum = maximum = RunningMaximum(parameters=p)
        m.d.comb += [
            maximum.enable.eq(move),
            maximum.valid.eq(valid),
            Cat(maximum.ends, maximum.length).eq(waited[apid.lanes : header]),
            headers.source.valid.eq(maximum.found & move),
            headers.source.payload.eq(maximum.result),
        ]
        for lane, product in enumerate(products):
            # Lanes at or above the length must not affect the maximum.
            m.d.comb += maximum.scores[lane].eq(Mux(waited[lane], product, LOWEST))
        return m

    def _products(
        self, m: Module, move: Value, ends: Value, base: Value, precise: list[Value]
    ) -> list[Value]:
        """Return the lanes' scores; the tables' halves alternate between steps."""
        p = self.parameters
        reads, writes = Signal(), Signal()
        m.d.sync += [reads.eq(reads ^ ends), writes.eq(writes ^ (self.write & self.last))]
        products, group = [], self.groups.payload
        for lane, exact in enumerate(precise):
            # One copy per lane: all lanes may address any centre in one cycle.
            table = Memory(depth=2 << p.position_bits, width=16)
            m.submodules[f"table_{lane}"] = table
            m.submodules[f"multiply_{lane}"] = multiply = FloatMultiply(
                stages=p.multiply_stages, enable=True
            )
            # A position in M has its own score in the table, and the factor 1.
            own = Signal(p.position_bits, name=f"own_{lane}")
            one = Const(BINARY16.one, FP16)
            factor = Mux(exact, one, group.ratios[lane])
            m.d.comb += [
                own.eq(base + lane),
                table.write_enable.eq(self.write),
                table.write_address.eq(Cat(self.position, writes)),
                table.write_data.eq(self.score),
                table.read_enable.eq(move),
                table.read_address.eq(
                    Cat(Mux(exact, own, group.centres[lane][: p.position_bits]), reads)
                ),
                multiply.enable.eq(move),
                Value.cast(multiply.a).eq(table.read_data),
                Value.cast(multiply.b).eq(
                    delay_line(m, factor, 1, name=f"factor_{lane}", enable=move)[-1]
                ),
            ]
            products.append(Value.cast(multiply.result))
        return products
