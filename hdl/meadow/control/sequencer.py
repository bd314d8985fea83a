"""From instructions to what each part of the accelerator has to do for them."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.attention_parameters import BlockMode
from hdl.meadow.parameters import Combine, Kind, MeadowParameters, Reader
from hdl.stream.connect import every
from hdl.unit import Unit

TASKS = {
    Kind.LOAD: ("vectors", "write"),
    Kind.STORE: ("store", "read"),
    Kind.NORM: ("vectors", "read", "write"),
    Kind.GEMM: ("command", "read", "old", "write", "cache"),
    Kind.TPHS: ("vectors", "command", "read", "keys", "values", "write"),
    Kind.PREDICT: ("predict",),
}
"""What is handed out; of a GEMM `old` only if its results are combined, and to memory or cache."""


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
            # Which of a kind's tasks an instruction has.
            kept, compared = new.combine == Combine.KEEP, new.combine == Combine.COMPARE
            chosen = {"old": ~kept & ~compared, "cache": new.cached}
            for kind, tasks in TASKS.items():
                with m.If(new.kind == kind):
                    for name in tasks:
                        wanted = chosen.get(name, 1)
                        if kind is Kind.GEMM and name == "write":
                            wanted = ~new.cached & ~compared
                        m.d.sync += waiting[name].eq(wanted)
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

    def _tasks(self, m: Module, old: Value) -> None:
        """Say of each task what the instruction says."""
        p, now = self.parameters, self.now
        block, tphs = now.block, now.kind == Kind.TPHS
        blocks = (now.kind == Kind.GEMM) | tphs
        m.d.comb += [
            self.commands.payload.eq(block),
            self.commands.payload.mode.eq(Mux(tphs, BlockMode.PIPELINED, BlockMode.GEMM)),
        ]
        # Tokens are rows of words; results come tile by tile, of each all tokens.
        rows = {"inner": now.words, "step": 1, "outer": block.tokens, "stride": now.words}
        tiles = {"inner": block.tokens, "step": now.stride, "outer": block.heads, "stride": 1}
        for name in rows:
            target = Mux(blocks, tiles[name], now.stride if name == "stride" else rows[name])
            m.d.comb += [
                self.reads.payload[name].eq(Mux(old, tiles[name], rows[name])),
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
                m.d.comb += self.reads.payload.reader.eq(Mux(old, Reader.COMBINER, Reader.PIPELINE))
        length, states = Signal(range(p.longest_burst)), now.words * block.tokens
        m.d.comb += length.eq(
            Mux(tphs, p.table_words, Mux(now.kind == Kind.NORM, p.state_words, states))
        )
        for port in (self.vectors, self.stores):
            m.d.comb += [port.payload.address.eq(now.vectors), port.payload.length.eq(length)]
        for name, port in (("keys", self.keys), ("values", self.values), ("cache", self.cache)):
            cache = name == "cache"
            m.d.comb += [
                port.payload.address.eq(now.values if name == "values" else now.keys),
                port.payload.spacing.eq(now.spacing),
                port.payload.length.eq(block.tokens if cache else block.context),
                port.payload.count.eq(block.heads if cache else now.shared),
            ]
