"""From instructions to what each part of the accelerator has to do for them."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.attention_parameters import BlockMode
from hdl.meadow.parameters import Combine, Kind, Matrix, MeadowParameters, Reader
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
"""What is handed out; of a GEMM what its matrix and its results want."""

MODES = {
    Matrix.WEIGHTS: BlockMode.GEMM,
    Matrix.KEYS: BlockMode.SCORES,
    Matrix.VALUES: BlockMode.OUTPUTS,
}
"""Which stages of the lanes a GEMM goes through."""


class Sequencer(Unit):
    """Take an instruction, hand its tasks out, and wait for its last result.

    **Latency** 2 cycles to the first task, 2 from the last result to the next instruction.
    **Throughput** one instruction at a time; the weights of the next come in meanwhile.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions.

    Members
    -------
    instructions : In(stream)
        As of the accelerator.
    now : Out(struct)
        The instruction under way.
    commands : Out(stream)
        Blocks of the pipeline.
    reads, writes : Out(stream)
        Walks through the activation memory.
    keys, values, cache : Out(stream)
        Bursts of the cache that are read, and written.
    vectors, stores : Out(stream)
        Requests of hidden states, norms' weights and tables, and of states that leave.
    predict : Out(1), predicted : In(1)
        A prediction shall leave, and leaves.
    finished : In(1)
        The instruction's last result is where it belongs.
    idle : Out(1)
        No instruction is under way.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        request = p.reads(p.state_layout).request_layout
        super().__init__(
            {
                "instructions": In(stream.Signature(p.instruction_layout)),
                "now": Out(p.instruction_layout),
                "commands": Out(stream.Signature(p.attention.command_layout)),
                "reads": Out(stream.Signature(p.walk_layout)),
                "writes": Out(stream.Signature(p.walk_layout)),
                **{n: Out(stream.Signature(p.blocks_layout)) for n in ("keys", "values", "cache")},
                **{n: Out(stream.Signature(request)) for n in ("vectors", "stores")},
                "predict": Out(1),
                "predicted": In(1),
                "finished": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Keep what has not been handed out."""
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
            # What is no kind has no task, and is done.
            known = Value.cast(new.kind) <= max(kind.value for kind in Kind)
            # A prediction that has left leaves nothing to wait for.
            m.d.sync += [now.eq(new), busy.eq(1), done.eq(~known | (new.kind == Kind.PREDICT))]
            for kind, tasks in TASKS.items():
                chosen = self._chosen(new) if kind is Kind.GEMM else {}
                with m.If(new.kind == kind):
                    for name in tasks:
                        m.d.sync += waiting[name].eq(chosen.get(name, 1))
        # A GEMM reads its tokens, then what its results are combined with.
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
        # The last result may come before a task that nobody waits for is taken.
        with m.If(self.finished):
            m.d.sync += done.eq(1)
        with m.If(busy & done & every([~one for one in waiting.values()])):
            m.d.sync += busy.eq(0)
        self._tasks(m, old)
        return m

    def _chosen(self, new: Any) -> dict[str, Any]:
        """Return which of a GEMM's tasks an instruction has."""
        kept, compared = new.combine == Combine.KEEP, new.combine == Combine.COMPARE
        gated = self.parameters.gated
        values = new.matrix == Matrix.VALUES
        return {
            # Probabilities come by the port of the keys.
            "read": ~values,
            "keys": new.matrix != Matrix.WEIGHTS,
            "values": values,
            "old": ~kept & ~compared if gated else new.combine == Combine.ADD,
            "write": ~new.cached & ~compared,
            "cache": new.cached,
        }

    def _tasks(self, m: Module, old: Value) -> None:
        """Say of each task what the instruction says."""
        p, now = self.parameters, self.now
        block, gemm = now.block, now.kind == Kind.GEMM
        tphs, softmax = now.kind == Kind.TPHS, now.kind == Kind.SOFTMAX
        blocks, queries = gemm | tphs, gemm & (now.matrix == Matrix.KEYS)
        m.d.comb += [
            self.commands.payload.eq(block),
            self.commands.payload.mode.eq(Mux(tphs, BlockMode.PIPELINED, BlockMode.SOFTMAX)),
        ]
        for matrix, mode in MODES.items():
            with m.If(gemm & (now.matrix == matrix)):
                m.d.comb += self.commands.payload.mode.eq(mode)
        # Tokens are rows of words; results come tile by tile, of each all tokens, as queries go.
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
                reader = Mux(queries, Reader.ROWS, Reader.PIPELINE)
                m.d.comb += self.reads.payload.reader.eq(Mux(old, Reader.COMBINER, reader))
        length, states = Signal(range(p.longest_burst)), now.words * block.tokens
        m.d.comb += length.eq(
            Mux(tphs | softmax, p.table_words, Mux(now.kind == Kind.NORM, p.norm_words, states))
        )
        for port in (self.vectors, self.stores):
            m.d.comb += [port.payload.address.eq(now.vectors), port.payload.length.eq(length)]
        self._bursts(m, softmax, gemm, states)

    def _bursts(self, m: Module, softmax: Value, gemm: Value, states: Value) -> None:
        """Say where keys, values, and rows of scores and probabilities are."""
        now, block = self.now, self.now.block
        written = now.stride * block.tokens
        # A head's rows stand one behind the other, and so do the heads'.
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
