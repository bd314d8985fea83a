"""Kelle's scheduler: the order of a decode step's operations, and when each may begin.

Section 6 and Figure 12 (b) of the paper: W_Q, then W_K beside the read of the keys, then W_V beside
the read of the values, so that keys and values are consumed as they are produced and only the
inputs and the queries have to wait.
"""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.layouts import operation_layout
from hdl.kelle.operations import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.stream.fifo import Fifo
from hdl.stream.register_slice import RegisterSlice
from hdl.unit import Unit

AHEAD = 4
"""Operations that a consumer can be behind."""

UNPLACED = 3
"""Heads whose search may have begun before their arriving token has its slot."""


class Phase(enum.Enum, shape=4):
    """What the program issues next."""

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
    """Return how far a step has come: what is loaded, and the heads that have been done."""
    heads = ("queries", "keys", "values", "placed", "weighted")
    begun = {"loaded": 1, "begun": range(p.sequences + 1)}
    return data.StructLayout(begun | {name: p.count_shape for name in heads})


@dataclass(frozen=True)
class Cursor:
    """Which head of which sequence a phase of the stages is at."""

    sequence: Signal
    head: Signal  # Behind a sequence's last head comes a stage without one.
    active: Signal  # There is a head for this phase in this stage.


@dataclass(frozen=True)
class Program:
    """Where the scheduler is in a step's program."""

    phase: enum.EnumView
    head: Signal  # Of what lies before and behind the stages.
    stage: Signal  # Of what lies between.
    cursors: dict[Phase, Cursor]  # Of scores, own scores and attention.


@dataclass(frozen=True)
class Entry:
    """An entry of the program."""

    operation: data.View
    skip: Signal  # There is no head for this phase in this stage.
    fetched: Signal  # Its tiles are keys or values.


class Scheduler(Unit):
    """Issue a step's program to the KV fetch, the loads and the vectors.

    The program with H key/value heads: all queries; then for j from 0 to 2H the projection j of
    the keys and then the values, the scores of head j - 1, the arriving token's own of head j - 2,
    and the attention of head j - H - 1, so far as there are such; then the outputs. Each operation
    thus has another one between itself and what it waits for. The heads of further sequences
    follow those of the first, behind a stage in which nobody is scored: then the eviction
    controller is done with one sequence before the next one's scores come. Every consumer takes
    its operations in this order; an operation is offered when what it needs is there:

    - queries: the arriving input, which they wait for slice by slice;
    - keys and values: also the recomputed tokens' inputs;
    - scores: all queries, and that the controller has the sequence's token; their blocks: the
      head's keys;
    - own scores and their block: the head's placement;
    - attention: the head's probabilities; its blocks: the head's values;
    - outputs: the heads' attention, which they wait for slice by slice;
    - up and gate: the feed-forward block's input, slice by slice; down: products, likewise.

    Where nothing is gated all of up is followed by down.

    The program of a step that predicts is the vocabulary alone, which waits for its input slice by
    slice.

    **Latency** 2 cycles. **Throughput** one operation a cycle.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions.

    Members
    -------
    start : In(1)
        A step begins.
    predicts : In(1)
        With the start: it is the vocabulary's.
    progress : In
        How far it has come; `keys` and `values` of all members, `weighted` by the softmax; `begun`
        are the sequences whose token the eviction controller has taken.
    fetches, loads, vectors : Out(stream)
        The program of each consumer.
    issued : Out(1)
        The program is at its end.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        operations = stream.Signature(operation_layout(p))
        super().__init__(
            {
                "start": In(1),
                "predicts": In(1),
                "progress": In(progress_layout(p)),
                "fetches": Out(operations),
                "loads": Out(operations),
                "vectors": Out(operations),
                "issued": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Walk through the program; let each consumer's queue wait for progress."""
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
            fifo = Fifo(shape=operation_layout(p), depth=AHEAD)
            m.submodules[name] = consumers[name] = fifo
        # The way to an entry and that to its consumers are two cycles.
        entries = data.StructLayout({"operation": operation_layout(p), "fetched": 1})
        m.submodules.entries = held = RegisterSlice(shape=entries)
        source, fetched = held.source, held.sink.payload.fetched
        # It goes to all consumers at once; what weights meet needs no fetch.
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
            m.d.comb += [
                fifo.source.payload.eq(held.sink.payload.operation),
                fifo.source.valid.eq(issues & (fetched if name == "fetches" else 1)),
                port.payload.eq(pending),
                port.valid.eq(fifo.sink.valid & may_start),
                fifo.sink.ready.eq(port.ready & may_start),
                may_start.eq(self._may_start(name, pending)),
            ]
        self._advance(m, program, moves)
        self._advance_cursors(m, program, moves)
        return m

    @property
    def _first_stages(self) -> dict[Phase, int]:
        """The stage in which a phase has its first head."""
        return {Phase.SCORE: 1, Phase.OWN: 2, Phase.ATTEND: self.parameters.heads + 1}

    @property
    def _stages(self) -> int:
        """Stages until the attention of the last sequence's last head."""
        p = self.parameters
        return p.sequences * (p.heads + 1) + p.heads

    def _cursor(self, m: Module, program: Program, phase: Phase, first: int) -> Cursor:
        """Return a phase's place among the heads of all sequences."""
        p, name = self.parameters, phase.name.lower()
        cursor = Cursor(
            sequence=Signal(range(p.sequences + 1), name=f"{name}_sequence"),
            head=Signal(range(p.heads + 1), name=f"{name}_head"),
            active=Signal(name=f"{name}_active"),
        )
        m.d.comb += cursor.active.eq(
            (program.stage >= first) & (cursor.head != p.heads) & (cursor.sequence != p.sequences)
        )
        return cursor

    def _entry(self, m: Module, program: Program) -> Entry:
        """Return the program's current entry.

        In stage j the phases of a stage belong to different heads: each is behind the one before by
        as many stages as its results take to be there.
        """
        p = self.parameters
        phase, head, stage = program.phase, program.head, program.stage
        entry = Entry(operation=Signal(operation_layout(p)), skip=Signal(), fetched=Signal())
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
                m.d.comb += skip.eq(stage >= 2 * p.heads)
                with m.If(stage < p.heads):
                    m.d.comb += [offer.operation.eq(Operation.KEY), offer.head.eq(stage)]
                with m.Else():
                    m.d.comb += [
                        offer.operation.eq(Operation.VALUE),
                        offer.head.eq(stage - p.heads),
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
                        offer.sequence.eq(cursor.sequence),
                        offer.head.eq(cursor.head),
                        skip.eq(~cursor.active),
                        entry.fetched.eq(1),
                    ]
        return entry

    def _advance(self, m: Module, program: Program, moves: Signal) -> None:
        """Go to the program's next entry."""
        p = self.parameters
        phase, head, stage = program.phase, program.head, program.stage
        # A start and a move never meet: a step begins while the program rests.
        with m.If(self.start):
            first = Mux(self.predicts, Phase.VOCABULARY, Phase.QUERIES)
            m.d.sync += [phase.eq(first), head.eq(0), stage.eq(0)]
        with m.If(moves):
            with m.Switch(phase):
                # Head by head, before and behind the stages; a step that predicts has none.
                for which, heads, following in (
                    *([] if p.gated else [(Phase.UP, p.feed_heads, Phase.DOWNS)]),
                    (Phase.QUERIES, p.query_heads, Phase.PROJECT),
                    (Phase.OUTPUTS, p.query_heads, Phase.UP),
                    (Phase.GATE, p.feed_heads, Phase.DOWNS),
                    (Phase.DOWNS, p.query_heads, Phase.REST),
                    (Phase.VOCABULARY, max(p.vocabulary_heads, 1), Phase.REST),
                ):
                    with m.Case(which):
                        last = head == heads - 1
                        again = Phase.UP if which is Phase.GATE else which
                        m.d.sync += [
                            head.eq(Mux(last, 0, head + 1)),
                            phase.eq(Mux(last, following, again)),
                        ]
                # Gates follow what they multiply, so that few of either wait for the other.
                if p.gated:
                    with m.Case(Phase.UP):
                        m.d.sync += phase.eq(Phase.GATE)
                # In between four phases a stage, so that each result has time to come.
                with m.Case(Phase.PROJECT):
                    m.d.sync += phase.eq(Phase.SCORE)
                with m.Case(Phase.SCORE):
                    m.d.sync += phase.eq(Phase.OWN)
                with m.Case(Phase.OWN):
                    m.d.sync += phase.eq(Phase.ATTEND)
                with m.Case(Phase.ATTEND):
                    m.d.sync += [stage.eq(stage + 1), phase.eq(Phase.PROJECT)]
                    with m.If(stage == self._stages - 1):
                        m.d.sync += phase.eq(Phase.OUTPUTS)

    def _advance_cursors(self, m: Module, program: Program, moves: Signal) -> None:
        """Let each phase of a stage go to its next head when the stage has passed it."""
        p = self.parameters
        for which, first in self._first_stages.items():
            cursor = program.cursors[which]
            begun = (program.stage >= first) & (cursor.sequence != p.sequences)
            with m.If(moves & (program.phase == which) & begun):
                last = cursor.head == p.heads
                m.d.sync += [
                    cursor.head.eq(Mux(last, 0, cursor.head + 1)),
                    cursor.sequence.eq(cursor.sequence + last),
                ]
            with m.If(self.start):
                m.d.sync += [cursor.head.eq(0), cursor.sequence.eq(0)]

    def _may_start(self, name: str, pending: data.View) -> Any:
        """Return whether what a consumer's pending operation needs is there."""
        p, done = self.parameters, self.progress
        which, head = pending.operation, pending.head
        item = p.item(pending.sequence, head)
        # Loads wait for their weights or blocks by themselves.
        if name == "loads":
            return 1
        if name == "fetches":
            # A fetch reads what is computed in this step: it must be complete.
            needs = {
                Operation.SCORE: done.keys > head,
                Operation.OWN: done.placed > item,
                Operation.ATTEND: done["values"] > head,
            }
        else:
            # Vectors wait for themselves only, for their tiles the array waits; what is not here
            # waits slice by slice in the issue.
            needs = {
                Operation.KEY: done.loaded,
                Operation.VALUE: done.loaded,
                Operation.SCORE: (done.queries == p.query_heads)
                & (done.begun > pending.sequence)
                & (done.placed + UNPLACED > item),
                Operation.OWN: done.placed > item,
                Operation.ATTEND: done.weighted > item,
            }
        lacks = ((which == operation) & ~need for operation, need in needs.items())
        return ~Cat(*lacks).any()
