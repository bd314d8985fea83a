"""Instruction sequencer: issue the tasks of each instruction to the parts of the accelerator."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.instructions import Combine, Kind, Matrix, instruction_layout
from hdl.meadow.parameters import MeadowParameters, Reader
from hdl.meadow.tile.tile_parameters import BlockMode
from hdl.stream.connect import every
from hdl.unit import Unit

TASKS = {
    Kind.LOAD: ("vectors", "write"),
    Kind.STORE: ("store", "read"),
    Kind.NORM: ("vectors", "read", "write"),
    Kind.GEMM: ("command", "read", "keys", "values", "old", "write", "cache"),
    Kind.TPHS: ("vectors", "command", "read", "keys", "values", "write"),
    Kind.PREDICT: ("predict",),
    Kind.SOFTMAX: ("vectors", "command", "keys", "cache"),
}
"""Tasks of each kind of instruction; a GEMM has those that its fields select."""

MODES = {
    Matrix.WEIGHTS: BlockMode.GEMM,
    Matrix.KEYS: BlockMode.SCORES,
    Matrix.VALUES: BlockMode.OUTPUTS,
}
"""Stages of the lanes that a GEMM uses."""


class Sequencer(Unit):
    """Sequencer that issues the tasks of one instruction and waits for its last result.

    **Latency** 2 cycles to the first task, 2 from the last result to the next instruction.
    **Throughput** one instruction at a time; the weights of the next one are fetched meanwhile.

    Parameters
    ----------
    parameters : MeadowParameters
        Layouts of instructions and tasks.

    Members
    -------
    instructions : In(stream)
        As in `Meadow`.
    now : Out(struct)
        The current instruction, constant until its end.
    commands : Out(stream)
        Commands of the tile.
    reads, writes : Out(stream)
        Nested loops of addresses in the activation memory.
    keys, values, cache : Out(stream)
        Burst lists of keys, of values, and of writes to the cache.
    vectors, stores : Out(stream)
        Burst requests: reads of hidden states, norm weights and tables; writes of hidden states.
    predict : Out(1), predicted : In(1)
        A prediction is requested; it is output in this cycle.
    finished : In(1)
        The last result of the instruction is stored.
    idle : Out(1)
        No instruction is in progress.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        request = p.reads(p.state_layout).request_layout
        super().__init__(
            {
                "instructions": In(stream.Signature(instruction_layout(p))),
                "now": Out(instruction_layout(p)),
                "commands": Out(stream.Signature(p.tile.command_layout)),
                "reads": Out(stream.Signature(p.loop_layout)),
                "writes": Out(stream.Signature(p.loop_layout)),
                **{n: Out(stream.Signature(p.blocks_layout)) for n in ("keys", "values", "cache")},
                **{n: Out(stream.Signature(request)) for n in ("vectors", "stores")},
                "predict": Out(1),
                "predicted": In(1),
                "finished": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Hold one flag per task that has not been issued yet."""
        m = Module()
        now = self.now
        waiting = {
            name: Signal(name=f"{name}_waits")
            for name in sorted({task for tasks in TASKS.values() for task in tasks})
        }
        busy, done = Signal(), Signal()
        m.d.comb += [self.instructions.ready.eq(~busy), self.idle.eq(~busy)]
        new = self.instructions.payload
        with m.If(self.instructions.valid & ~busy):
            # An undefined kind has no task and ends at once.
            known = Value.cast(new.kind) <= max(kind.value for kind in Kind)
            # A prediction has no result to wait for.
            m.d.sync += [now.eq(new), busy.eq(1), done.eq(~known | (new.kind == Kind.PREDICT))]
            for kind, tasks in TASKS.items():
                chosen = self._chosen(new) if kind is Kind.GEMM else {}
                with m.If(new.kind == kind):
                    for name in tasks:
                        m.d.sync += waiting[name].eq(chosen.get(name, 1))
        # A GEMM reads its tokens first, then the old words with which its results are combined.
        old = waiting["old"] & ~waiting["read"]
        offered = waiting | {"read": waiting["read"] | old}
        for name, port in (
            ("command", self.commands),
            ("read", self.reads),
            ("write", self.writes),
            ("keys", self.keys),
            ("values", self.values),
            ("cache", self.cache),
            ("vectors", self.vectors),
            ("store", self.stores),
        ):
            m.d.comb += port.valid.eq(offered[name])
            with m.If(port.valid & port.ready):
                m.d.sync += waiting[name].eq(0)
                if name == "read":
                    with m.If(old):
                        m.d.sync += waiting["old"].eq(0)
        m.d.comb += self.predict.eq(waiting["predict"])
        with m.If(self.predicted):
            m.d.sync += waiting["predict"].eq(0)
        # The last result may be stored before all tasks are accepted.
        with m.If(self.finished):
            m.d.sync += done.eq(1)
        with m.If(busy & done & every([~one for one in waiting.values()])):
            m.d.sync += busy.eq(0)
        self._tasks(m, old)
        return m

    def _chosen(self, new: Any) -> dict[str, Any]:
        """Return the tasks of a GEMM that an instruction selects."""
        kept, compared = new.combine == Combine.KEEP, new.combine == Combine.COMPARE
        gated = self.parameters.gated
        values = new.matrix == Matrix.VALUES
        return {
            # Probabilities are read at the key port.
            "read": ~values,
            "keys": new.matrix != Matrix.WEIGHTS,
            "values": values,
            "old": ~kept & ~compared if gated else new.combine == Combine.ADD,
            "write": ~new.cached & ~compared,
            "cache": new.cached,
        }

    def _tasks(self, m: Module, old: Value) -> None:
        """Derive the payload of each task from the instruction."""
        p, now = self.parameters, self.now
        block, gemm = now.block, now.kind == Kind.GEMM
        tphs, softmax = now.kind == Kind.TPHS, now.kind == Kind.SOFTMAX
        blocks, queries = gemm | tphs, gemm & (now.matrix == Matrix.KEYS)
        m.d.comb += [
            self.commands.payload.eq(block),
            self.commands.payload.mode.eq(Mux(tphs, BlockMode.TPHS, BlockMode.SOFTMAX)),
        ]
        for matrix, mode in MODES.items():
            with m.If(gemm & (now.matrix == matrix)):
                m.d.comb += self.commands.payload.mode.eq(mode)
        # Tokens are rows of words. Results are written tile by tile, all tokens of a tile, and
        # queries are read in the same order.
        rows = {"inner": now.words, "step": 1, "outer": block.tokens, "stride": now.words}
        tiles = {"inner": block.tokens, "step": now.stride, "outer": block.heads, "stride": 1}
        heads = tiles | {"step": now.words}
        for name in rows:
            target = Mux(blocks, tiles[name], now.stride if name == "stride" else rows[name])
            source = Mux(queries, heads[name], rows[name])
            m.d.comb += [
                self.reads.payload[name].eq(Mux(old, tiles[name], source)),
                self.writes.payload[name].eq(target),
            ]
        m.d.comb += [
            self.reads.payload.first.eq(Mux(old, now.target, now.source)),
            self.writes.payload.first.eq(now.target),
        ]
        with m.Switch(now.kind):
            for kind, reader in ((Kind.STORE, Reader.OUTSIDE), (Kind.NORM, Reader.NORM)):
                with m.Case(kind):
                    m.d.comb += self.reads.payload.reader.eq(reader)
            with m.Default():
                reader = Mux(queries, Reader.ROWS, Reader.TILE)
                m.d.comb += self.reads.payload.reader.eq(Mux(old, Reader.COMBINER, reader))
        length, states = Signal(range(p.longest_burst)), now.words * block.tokens
        m.d.comb += length.eq(
            Mux(tphs | softmax, p.table_words, Mux(now.kind == Kind.NORM, p.norm_words, states))
        )
        for port in (self.vectors, self.stores):
            m.d.comb += [port.payload.address.eq(now.vectors), port.payload.length.eq(length)]
        self._bursts(m, softmax, gemm, states)

    def _bursts(self, m: Module, softmax: Value, gemm: Value, states: Value) -> None:
        """Derive the burst lists of keys, values, and rows of scores and probabilities."""
        now, block = self.now, self.now.block
        written = now.stride * block.tokens
        # The rows of a head are contiguous in external memory, and so are the heads.
        comes = softmax | (gemm & (now.matrix == Matrix.VALUES))
        leaves = softmax | (gemm & (now.matrix == Matrix.KEYS))
        for port, address, length, count, packed in (
            (self.keys, now.keys, Mux(comes, states, block.context), None, comes),
            (self.values, now.values, block.context, now.shared, 0),
            (self.cache, now.values, written, block.heads, leaves),
        ):
            m.d.comb += [
                port.payload.address.eq(address),
                port.payload.spacing.eq(Mux(packed, length, now.spacing)),
                port.payload.length.eq(length),
                port.payload.count.eq(
                    Mux(comes, block.heads, now.shared) if count is None else count
                ),
            ]
