"""Kelle's scheduler: the order of a decode step's operations, and the conditions of their start.

Section 6 and Figure 12 (b) of the paper: W_Q, then W_K in parallel with the read of the keys, then
W_V in parallel with the read of the values. Keys and values are consumed as they are produced; only
inputs and queries must be held.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.stream.register_slice import RegisterSlice
from hdl.unit import Unit

AHEAD = 4
"""Depth of a consumer's queue, in operations."""

UNPLACED = 3
"""Heads whose search may have started before the arriving token has a slot in them."""


class Phase(enum.Enum, shape=4):
    """The kind of operation that the program issues next."""

    REST = 0
    QUERIES = 1
    PROJECT = 2
    SCORE = 3
    OWN = 4
    ATTEND = 5
    OUTPUTS = 6
    UP = 7
    GATE = 8
    DOWNS = 9
    VOCABULARY = 10


def progress_layout(p: KelleParameters) -> data.StructLayout:
    """Return the layout of a step's progress: `loaded`, `begun`, and counts of complete heads."""
    heads = ("queries", "keys", "values", "placed", "weighted")
    begun = {"loaded": 1, "begun": range(p.step_tokens + 1)}
    return data.StructLayout(begun | {name: p.count_shape for name in heads})


@dataclass(frozen=True)
class Cursor:
    """The head and token of a phase in the current stage."""

    token: Signal
    head: Signal  # A stage without a head follows the last head for a token.
    active: Signal  # The current stage has a head for this phase.


@dataclass(frozen=True)
class Program:
    """The current instruction of a step's program."""

    phase: enum.EnumView
    head: Signal  # Head of the phases before and after the stages.
    stage: Signal  # Number of the current stage.
    cursors: dict[Phase, Cursor]  # Heads of scores, own scores and attention.


@dataclass(frozen=True)
class Entry:
    """One instruction of the program."""

    operation: data.View
    skip: Signal  # The current stage has no head for this phase.
    fetched: Signal  # The operation's tiles are keys or values, from the KV fetch.


class Scheduler(Unit):
    """Issue a step's program to the KV fetch, the loads and the vectors.

    The program with H key/value heads starts with all queries. Stages j = 0 to 2H follow, each with
    these operations as far as the heads exist: projection j of the sequence "all keys, then all
    values"; the scores of head j - 1; the arriving token's own score in head j - 2; and the
    attention of head j - H - 1. The outputs follow. There is thus at least one other operation
    between an operation and the one whose results it needs. The heads for a further token follow
    those for the previous one, after a stage without scores: it lets the eviction controller finish
    a token before it receives the scores of the next. A head's own score and attention for a token
    precede its scores for the next one, which may be of the same sequence. Every consumer takes its
    operations in this order. An operation is offered when its operands are available:

    - queries: the arriving input, slice by slice;
    - keys and values: also the recomputed tokens' inputs;
    - scores: all queries, and the controller has taken the token; their blocks: the head's keys;
    - own score and its block: the head's placement;
    - attention: the head's probabilities; its blocks: the head's values;
    - outputs: the heads' attention, slice by slice;
    - up and gate: the feed-forward block's input, slice by slice; down: products, likewise.

    Without `gated`, down follows after all of up. The program of a step that predicts is the LM
    head alone, which waits for its input slice by slice.

    **Latency** 3 cycles. **Throughput** one operation per cycle.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    start : In(1)
        A step begins.
    predicts : In(1)
        Valid with `start`: the step computes the LM head.
    progress : In
        Progress of the step: `loaded`, all inputs are held; `queries`, `keys`, `values`, complete
        heads, the latter two for all members; `placed`, heads with a slot for the arriving token;
        `weighted`, heads with probabilities; `begun`, tokens that the eviction controller has
        taken.
    last_token : In
        Index of the step's last token.
    fetches, loads, vectors : Out(stream)
        Operations for the KV fetch, the loads and the vectors.
    issued : Out(1)
        The whole program has been issued.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        operations = stream.Signature(p.operation_layout)
        super().__init__(
            {
                "start": In(1),
                "predicts": In(1),
                "progress": In(progress_layout(p)),
                "last_token": In(p.token_shape),
                "fetches": Out(operations),
                "loads": Out(operations),
                "vectors": Out(operations),
                "issued": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Issue the program into one queue per consumer; each queue waits for progress."""
        m = Module()
        p = self.parameters
        program = Program(
            phase=Signal(Phase),
            head=Signal(p.head_bits),
            stage=Signal(range(self._stages)),
            cursors={},
        )
        for phase, first in self._first_stages.items():
            program.cursors[phase] = self._cursor(m, program, phase, first)
        entry = self._entry(m, program)
        consumers = {}
        for name in ("fetches", "loads", "vectors"):
            fifo = Fifo(shape=p.operation_layout, depth=AHEAD)
            m.submodules[name] = consumers[name] = fifo
        # A register separates the path to an instruction from the path to its consumers.
        entries = data.StructLayout({"operation": p.operation_layout, "fetched": 1})
        m.submodules.entries = held = RegisterSlice(shape=entries)
        source, fetched = held.source, held.sink.payload.fetched
        # All consumers receive an instruction in the same cycle; operations with weights need no
        # fetch.
        room = (consumers["fetches"].source.ready | ~fetched) & (
            consumers["loads"].source.ready & consumers["vectors"].source.ready
        )
        moves, rests = Signal(), program.phase == Phase.REST
        m.d.comb += [
            source.valid.eq(~rests & ~entry.skip),
            source.payload.operation.eq(entry.operation),
            source.payload.fetched.eq(entry.fetched),
            held.sink.ready.eq(room),
            moves.eq((source.valid & source.ready) | entry.skip),
            self.issued.eq(rests & ~held.sink.valid),
        ]
        issues = held.sink.valid & room
        for name, fifo in consumers.items():
            port = getattr(self, name)
            pending = fifo.sink.payload
            may_start = Signal(name=f"{name}_may_start")
            # A register separates the conditions of a start from the consumer's loops.
            m.submodules[f"{name}_started"] = started = RegisterSlice(shape=p.operation_layout)
            connect_streams(m, started.sink, port)
            m.d.comb += [
                fifo.source.payload.eq(held.sink.payload.operation),
                fifo.source.valid.eq(issues & (fetched if name == "fetches" else 1)),
                started.source.payload.eq(pending),
                started.source.valid.eq(fifo.sink.valid & may_start),
                fifo.sink.ready.eq(started.source.ready & may_start),
                may_start.eq(self._may_start(name, pending)),
            ]
        self._advance(m, program, moves)
        self._advance_cursors(m, program, moves)
        return m

    @property
    def _first_stages(self) -> dict[Phase, int]:
        """The stage of the first head of each phase."""
        return {Phase.SCORE: 1, Phase.OWN: 2, Phase.ATTEND: self.parameters.kv_heads + 1}

    @property
    def _stages(self) -> int:
        """Maximum number of stages, up to the attention of the last head for the last token."""
        p = self.parameters
        return p.step_tokens * (p.kv_heads + 1) + p.kv_heads

    def _cursor(self, m: Module, program: Program, phase: Phase, first: int) -> Cursor:
        """Return the position of a phase among the heads for all tokens."""
        p, name = self.parameters, phase.name.lower()
        cursor = Cursor(
            token=Signal(range(p.step_tokens + 1), name=f"{name}_token"),
            head=Signal(range(p.kv_heads + 1), name=f"{name}_head"),
            active=Signal(name=f"{name}_active"),
        )
        m.d.comb += cursor.active.eq(
            (program.stage >= first)
            & (cursor.head != p.kv_heads)
            & (cursor.token <= self.last_token)
        )
        return cursor

    def _entry(self, m: Module, program: Program) -> Entry:
        """Return the current instruction.

        The phases of a stage belong to different heads: each phase lags the previous one by as many
        stages as the results that it needs take to complete.
        """
        p = self.parameters
        phase, head, stage = program.phase, program.head, program.stage
        entry = Entry(operation=Signal(p.operation_layout), skip=Signal(), fetched=Signal())
        offer, skip = entry.operation, entry.skip
        with m.Switch(phase):
            for which, operation in (
                (Phase.QUERIES, Operation.QUERY),
                (Phase.OUTPUTS, Operation.OUTPUT),
                (Phase.UP, Operation.UP),
                (Phase.GATE, Operation.GATE),
                (Phase.DOWNS, Operation.DOWN),
                (Phase.VOCABULARY, Operation.VOCABULARY),
            ):
                with m.Case(which):
                    m.d.comb += [offer.operation.eq(operation), offer.head.eq(head)]
            # All keys, then all values; the last stage has only attention.
            with m.Case(Phase.PROJECT):
                m.d.comb += skip.eq(stage >= 2 * p.kv_heads)
                with m.If(stage < p.kv_heads):
                    m.d.comb += [offer.operation.eq(Operation.KEY), offer.head.eq(stage)]
                with m.Else():
                    m.d.comb += [
                        offer.operation.eq(Operation.VALUE),
                        offer.head.eq(stage - p.kv_heads),
                    ]
            for which, operation in (
                (Phase.SCORE, Operation.SCORE),
                (Phase.OWN, Operation.OWN),
                (Phase.ATTEND, Operation.ATTEND),
            ):
                cursor = program.cursors[which]
                with m.Case(which):
                    m.d.comb += [
                        offer.operation.eq(operation),
                        offer.token.eq(cursor.token),
                        offer.head.eq(cursor.head),
                        skip.eq(~cursor.active),
                        entry.fetched.eq(1),
                    ]
        return entry

    def _advance(self, m: Module, program: Program, moves: Signal) -> None:
        """Advance to the next instruction."""
        p = self.parameters
        phase, head, stage = program.phase, program.head, program.stage
        last_stage = p.of_tokens(self.last_token, p.kv_heads + 1) + p.kv_heads - 1
        # A start and an advance never coincide: a step begins while the program is at rest.
        with m.If(self.start):
            first = Mux(self.predicts, Phase.VOCABULARY, Phase.QUERIES)
            m.d.sync += [phase.eq(first), head.eq(0), stage.eq(0)]
        with m.If(moves):
            with m.Switch(phase):
                # Head by head, before and after the stages; a step that predicts has no stages.
                for which, heads, following in (
                    *([] if p.gated else [(Phase.UP, p.feed_forward_operations, Phase.DOWNS)]),
                    (Phase.QUERIES, p.heads, Phase.PROJECT),
                    (Phase.OUTPUTS, p.heads, Phase.UP),
                    (Phase.GATE, p.feed_forward_operations, Phase.DOWNS),
                    (Phase.DOWNS, p.heads, Phase.REST),
                    (Phase.VOCABULARY, max(p.vocabulary_operations, 1), Phase.REST),
                ):
                    with m.Case(which):
                        last = head == heads - 1
                        again = Phase.UP if which is Phase.GATE else which
                        m.d.sync += [
                            head.eq(Mux(last, 0, head + 1)),
                            phase.eq(Mux(last, following, again)),
                        ]
                # The gates of a head follow its up, so that few results are held.
                if p.gated:
                    with m.Case(Phase.UP):
                        m.d.sync += phase.eq(Phase.GATE)
                # In between, four phases per stage, so that each result has time to complete.
                with m.Case(Phase.PROJECT):
                    m.d.sync += phase.eq(Phase.SCORE)
                with m.Case(Phase.SCORE):
                    m.d.sync += phase.eq(Phase.OWN)
                with m.Case(Phase.OWN):
                    m.d.sync += phase.eq(Phase.ATTEND)
                with m.Case(Phase.ATTEND):
                    m.d.sync += [stage.eq(stage + 1), phase.eq(Phase.PROJECT)]
                    with m.If(stage == last_stage):
                        m.d.sync += phase.eq(Phase.OUTPUTS)

    def _advance_cursors(self, m: Module, program: Program, moves: Signal) -> None:
        """Advance each phase of a stage to its next head after the stage has issued it."""
        p = self.parameters
        for which, first in self._first_stages.items():
            cursor = program.cursors[which]
            begun = (program.stage >= first) & (cursor.token <= self.last_token)
            with m.If(moves & (program.phase == which) & begun):
                last = cursor.head == p.kv_heads
                m.d.sync += [
                    cursor.head.eq(Mux(last, 0, cursor.head + 1)),
                    cursor.token.eq(cursor.token + last),
                ]
            with m.If(self.start):
                m.d.sync += [cursor.head.eq(0), cursor.token.eq(0)]

    def _may_start(self, name: str, pending: data.View) -> Value:
        """Return whether the operands of a consumer's pending operation are available."""
        p, done = self.parameters, self.progress
        which, head = pending.operation, pending.head
        item = p.token_head(pending.token, head)
        # Loads wait for their weights or blocks by themselves.
        if name == "loads":
            return Const(1)
        if name == "fetches":
            # A fetch reads results of this step, which must be complete.
            needs = {
                Operation.SCORE: done.keys > head,
                Operation.OWN: done.placed > item,
                Operation.ATTEND: done["values"] > head,
            }
        else:
            # Vectors wait only for their own elements; the array waits for their tiles. Operations
            # that are not listed wait slice by slice in the vector issue.
            needs = {
                Operation.KEY: done.loaded,
                Operation.VALUE: done.loaded,
                Operation.SCORE: (done.queries == p.heads)
                & (done.begun > pending.token)
                & (done.placed + UNPLACED > item),
                Operation.OWN: done.placed > item,
                Operation.ATTEND: done.weighted > item,
            }
        lacks = ((which == operation) & ~need for operation, need in needs.items())
        return ~Cat(*lacks).any()
