"""Instruction sequencer: request the work of each instruction from the parts of the accelerator."""

from collections.abc import Mapping
from typing import NamedTuple

from amaranth.hdl import Module, Signal, Value, ValueLike
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.instructions import Combine, Kind, Matrix, instruction_layout
from hdl.meadow.parameters import MeadowParameters, MemoryUser
from hdl.meadow.tile.tile_parameters import BlockMode
from hdl.stream.connect import every
from hdl.unit import Unit

REQUESTS = (
    "command",
    "read",
    "old",
    "write",
    "keys",
    "values",
    "cache",
    "vectors",
    "store",
    "predict",
)
"""Requests that an instruction may make; `read` and `old` share a port."""


LATE = ("cache", "store", "predict")
"""Requests that may be accepted after the last result; all others precede it."""


class Wanted(NamedTuple):
    """The requests of the current instruction.

    Members
    -------
    flags : Mapping[str, Signal]
        Whether the instruction makes each request of `REQUESTS`.
    read_length, written_length : Signal
        Words of all rows that are read, and of those that are written.
    """

    flags: Mapping[str, Signal]
    read_length: Signal
    written_length: Signal


class Sequencer(Unit):
    """Sequencer that makes the requests of one instruction and waits for its last result.

    Each kind of instruction makes at most one of each of `REQUESTS`. All are offered at once, and
    each part accepts its own when it is ready; only the old words of a GEMM are read after its
    tokens.


    **Latency** 3 cycles to the first request, 2 from the last result to the next instruction.
    **Throughput** one instruction at a time; the weights of the next one are fetched meanwhile.

    Parameters
    ----------
    parameters : MeadowParameters
        Layouts of instructions and requests.

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
        """Offer each request until it is accepted; wait for the last result."""
        m = Module()
        now, busy, done = self.now, Signal(), Signal()
        flags = {name: Signal(name=f"{name}_wanted") for name in REQUESTS}
        made = {name: Signal(name=f"{name}_made") for name in REQUESTS}
        # Lengths are products, which have a register each; the requests follow one cycle later.
        settled = Signal()
        offered = {name: settled & flags[name] & ~made[name] for name in REQUESTS}
        wanted = self._wanted(m, flags)
        # The old words follow the tokens at the same port.
        tokens_read = ~offered["read"]
        ports = {
            "command": self.commands,
            "write": self.writes,
            "keys": self.keys,
            "values": self.values,
            "cache": self.cache,
            "vectors": self.vectors,
            "store": self.stores,
        }
        m.d.comb += [
            self.instructions.ready.eq(~busy),
            self.idle.eq(~busy),
            self.reads.valid.eq(offered["read"] | offered["old"]),
            self.predict.eq(offered["predict"]),
            *(port.valid.eq(offered[name]) for name, port in ports.items()),
        ]
        accepted = {name: port.valid & port.ready for name, port in ports.items()}
        accepted["read"] = offered["read"] & self.reads.ready
        accepted["old"] = offered["old"] & tokens_read & self.reads.ready
        accepted["predict"] = self.predicted
        # Whether the instruction has a result to wait for.
        awaits = Signal()
        with m.If(busy):
            m.d.sync += [made[name].eq(made[name] | accepted[name]) for name in REQUESTS]
            # The last result may be stored before all requests are accepted.
            m.d.sync += done.eq(done | self.finished)
            complete = every([~flags[name] | made[name] for name in LATE])
            m.d.sync += settled.eq(1)
            with m.If(settled & (done | ~awaits) & complete):
                m.d.sync += [busy.eq(0), settled.eq(0)]
        with m.Elif(self.instructions.valid):
            m.d.sync += [now.eq(self.instructions.payload), busy.eq(1), done.eq(0)]
            m.d.sync += [flag.eq(0) for flag in made.values()]
        # An undefined kind makes no request and ends at once.
        with m.Switch(now.kind):
            for kind, describe in (
                (Kind.LOAD, self._load),
                (Kind.STORE, self._store),
                (Kind.NORM, self._norm),
                (Kind.GEMM, self._gemm),
                (Kind.TPHS, self._tphs),
                (Kind.SOFTMAX, self._softmax),
            ):
                with m.Case(kind):
                    m.d.comb += awaits.eq(1)
                    describe(m, wanted)
            with m.Case(Kind.PREDICT):
                m.d.comb += wanted.flags["predict"].eq(1)
        # The old words have the addresses of the results.
        with m.If(tokens_read):
            self._fill(m, self.reads, self._tiles(first=now.target, step=now.stride))
            m.d.comb += self.reads.payload.user.eq(MemoryUser.COMBINER)
        return m

    def _wanted(self, m: Module, flags: Mapping[str, Signal]) -> Wanted:
        """Multiply the words of a row by the tokens of the block."""
        now = self.now
        lengths = []
        for name, row in (("read", now.words), ("written", now.stride)):
            product = row * now.block.tokens
            length = Signal.like(product, name=f"{name}_length", reset_less=True)
            m.d.sync += length.eq(product)
            lengths.append(length)
        return Wanted(flags, *lengths)

    def _want(self, m: Module, wanted: Wanted, *names: str) -> None:
        """Make requests."""
        m.d.comb += [wanted.flags[name].eq(1) for name in names]

    def _fill(self, m: Module, port: stream.Interface, fields: Mapping[str, ValueLike]) -> None:
        """Set fields of the request at a port."""
        m.d.comb += [port.payload[name].eq(value) for name, value in fields.items()]

    def _rows(self, *, first: Value, stride: Value) -> dict[str, ValueLike]:
        """Return the loop over rows of `words` words, one row per token."""
        now = self.now
        loop = {"inner": now.words, "step": 1, "outer": now.block.tokens}
        return loop | {"first": first, "stride": stride}

    def _tiles(self, *, first: Value, step: Value) -> dict[str, ValueLike]:
        """Return the loop over output tiles or heads, and in each over all tokens."""
        block = self.now.block
        loop = {"inner": block.tokens, "outer": block.heads, "stride": 1}
        return loop | {"first": first, "step": step}

    def _token_rows(self, m: Module, user: MemoryUser) -> None:
        """Read the source, one row per token."""
        now = self.now
        self._fill(m, self.reads, self._rows(first=now.source, stride=now.words))
        m.d.comb += self.reads.payload.user.eq(user)
        if self.parameters.token_exponents:
            m.d.comb += self.reads.payload.combined.eq(now.combined)

    def _results(self, m: Module) -> None:
        """Write the combined results, tile by tile."""
        now = self.now
        self._fill(m, self.writes, self._tiles(first=now.target, step=now.stride))
        m.d.comb += self.writes.payload.user.eq(MemoryUser.COMBINER)
        if self.parameters.token_exponents:
            m.d.comb += self.writes.payload.combined.eq(1)

    def _vectors(self, m: Module, port: stream.Interface, length: ValueLike) -> None:
        """Read or write vectors in external memory."""
        self._fill(m, port, {"address": self.now.vector_address, "length": length})

    def _cached(self, m: Module, port: stream.Interface, address: Value) -> None:
        """Read the cached keys or values of each head."""
        now = self.now
        burst = {"spacing": now.spacing, "length": now.block.context, "count": now.shared}
        self._fill(m, port, {"address": address} | burst)

    def _attention_rows(
        self, m: Module, port: stream.Interface, address: Value, length: Value
    ) -> None:
        """Read or write rows of scores or probabilities, `length` words per head.

        The rows of a head are contiguous in external memory, and so are the heads.
        """
        burst = {"spacing": length, "length": length, "count": self.now.block.heads}
        self._fill(m, port, {"address": address} | burst)

    def _block(self, m: Module, mode: BlockMode) -> None:
        """Send the instruction's block to the tile."""
        m.d.comb += [
            self.commands.payload.eq(self.now.block),
            self.commands.payload.mode.eq(mode),
        ]

    def _load(self, m: Module, wanted: Wanted) -> None:
        """Read hidden states from external memory, and write them row by row."""
        now = self.now
        self._want(m, wanted, "vectors", "write")
        self._vectors(m, self.vectors, wanted.read_length)
        self._fill(m, self.writes, self._rows(first=now.target, stride=now.stride))
        m.d.comb += self.writes.payload.user.eq(MemoryUser.OUTSIDE)

    def _store(self, m: Module, wanted: Wanted) -> None:
        """Read hidden states row by row, and write them to external memory."""
        self._want(m, wanted, "store", "read")
        self._vectors(m, self.stores, wanted.read_length)
        self._token_rows(m, MemoryUser.OUTSIDE)

    def _norm(self, m: Module, wanted: Wanted) -> None:
        """Read the norm's weights and rows of hidden states, and write rows."""
        now = self.now
        self._want(m, wanted, "vectors", "read", "write")
        self._vectors(m, self.vectors, self.parameters.norm_words)
        self._token_rows(m, MemoryUser.NORM)
        self._fill(m, self.writes, self._rows(first=now.target, stride=now.stride))
        m.d.comb += self.writes.payload.user.eq(MemoryUser.NORM)

    def _gemm(self, m: Module, wanted: Wanted) -> None:
        """Read the operands of the GEMM, and write its results tile by tile."""
        now = self.now
        kept, compared = now.combine == Combine.KEEP, now.combine == Combine.COMPARE
        # Without a gate, an activated result does not need the old word.
        old = ~kept & ~compared if self.parameters.gated else now.combine == Combine.ADD
        self._want(m, wanted, "command")
        m.d.comb += [
            wanted.flags["old"].eq(old),
            wanted.flags["write"].eq(~now.cached & ~compared),
            wanted.flags["cache"].eq(now.cached),
        ]
        self._results(m)
        # One burst per output tile: keys or values of a head.
        burst = {"length": wanted.written_length, "count": now.block.heads}
        self._fill(m, self.cache, {"address": now.value_address, "spacing": now.spacing} | burst)
        with m.Switch(now.matrix):
            with m.Case(Matrix.WEIGHTS):
                self._block(m, BlockMode.GEMM)
                self._want(m, wanted, "read")
                self._token_rows(m, MemoryUser.TILE)
            with m.Case(Matrix.KEYS):
                self._block(m, BlockMode.SCORES)
                self._want(m, wanted, "read", "keys")
                self._fill(m, self.reads, self._tiles(first=now.source, step=now.words))
                m.d.comb += self.reads.payload.user.eq(MemoryUser.ROWS)
                self._cached(m, self.keys, now.key_address)
                self._attention_rows(m, self.cache, now.value_address, wanted.written_length)
            with m.Case(Matrix.VALUES):
                self._block(m, BlockMode.OUTPUTS)
                self._want(m, wanted, "keys", "values")
                self._attention_rows(m, self.keys, now.key_address, wanted.read_length)
                self._cached(m, self.values, now.value_address)

    def _tphs(self, m: Module, wanted: Wanted) -> None:
        """Read the table of exponentials, tokens, keys and values, and write head outputs."""
        now = self.now
        self._want(m, wanted, "vectors", "command", "read", "keys", "values", "write")
        self._block(m, BlockMode.TPHS)
        self._vectors(m, self.vectors, self.parameters.table_words)
        self._token_rows(m, MemoryUser.TILE)
        self._cached(m, self.keys, now.key_address)
        self._cached(m, self.values, now.value_address)
        self._results(m)

    def _softmax(self, m: Module, wanted: Wanted) -> None:
        """Read the table of exponentials and rows of scores, and write probabilities."""
        now = self.now
        self._want(m, wanted, "vectors", "command", "keys", "cache")
        self._block(m, BlockMode.SOFTMAX)
        self._vectors(m, self.vectors, self.parameters.table_words)
        self._attention_rows(m, self.keys, now.key_address, wanted.read_length)
        self._attention_rows(m, self.cache, now.value_address, wanted.written_length)
