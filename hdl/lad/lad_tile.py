"""LAD's tile: the attention pipeline with its write-back, and the linear layers (Section IV-C)."""

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect

from hdl.lad.ac.attention_computation_module import AttentionComputationModule
from hdl.lad.apid.active_position_module import ActivePositionModule
from hdl.lad.control.active_fetcher import ActiveFetcher
from hdl.lad.control.lane_groups import LaneCollector, LaneSpreader
from hdl.lad.control.mark_merger import MarkMerger
from hdl.lad.control.pipeline_pause import PipelinePause
from hdl.lad.control.position_prefetcher import COUNTER_BITS, fetch_active
from hdl.lad.control.score_fetcher import ScoreFetcher
from hdl.lad.control.step_slots import ENDS, SLOTS, StepSlots
from hdl.lad.control.unit_pool import UnitPool
from hdl.lad.control.unit_turns import give_turns
from hdl.lad.eas.attention_score_module import AttentionScoreModule
from hdl.lad.fp16 import FP16
from hdl.lad.linear.linear_module import LinearModule
from hdl.lad.md.mode_discrepancy_module import ModeDiscrepancyModule
from hdl.lad.parameters import LadTileParameters
from hdl.lad.sfm.special_function_module import SpecialFunctionModule
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_registered, connect_streams, fork_handshake, join_handshake
from hdl.stream.fifo import Fifo
from hdl.unit import Unit


class LadTile(Unit):
    """Compute decode steps of attention heads in the six stages of Section IV-C.

    A *head* here is one query head of one layer for one sample: the paper's `head-sample`. A *step*
    is its attention for one token. Stages 1 and 4 request rows from a memory outside and receive
    them as streams; stage 6 and the modules before it output what the step has changed. A step of a
    head that is still in the pipeline waits for the write-back; steps of other heads follow each
    other through the stages. The `shared` heads of a group have the same keys and values, and their
    steps follow each other in the order of the heads. Linear layers and special functions use the
    vector units while the pipeline pauses: a pending task or vector lets no further step begin.

    **Latency** of a step: the sum of its stages, see the page. **Throughput** one step per interval
    of the slowest stage.

    **Numerics** those of the six modules. LAD, Section IV, Figures 4 to 6.

    Parameters
    ----------
    parameters : LadTileParameters
        Dimensions of the modules, and numbers of heads and rows.

    Members
    -------
    steps : In(stream)
        The next step of a `head`: `query`, divided by the square root of the head size; `key` and
        `value` of the new position; `length` including it, which begins at 1, increases by one per
        step and is at most the capacity.
    outputs : Out(stream)
        For each step, in order: the attention `values`; `not_positive` if the denominator is not
        above 0.
    tasks, inputs, weights : In(stream)
        Streams of the linear module.
    sums : Out(stream)
        Results of the linear module.
    vectors, factors, addends : In(stream)
        Streams of the special function module.
    results : Out(stream)
        Results of the special function module.
    appends : Out(stream)
        `key` and `value` of the new position, before any request of the step.
    group_requests : Out(stream)
        Requests for G of a head's positions below `length`.
    groups : In(stream)
        G without norms, `lanes` positions per group; for the newest position any value.
    key_requests, active_requests : Out(stream)
        Requests for one position: of a key with its norm, or of a key with its value.
    keys : In(stream)
        The requested `key` and `norm`, in order.
    active : In(stream)
        The requested `key` and `value`, in order.
    counter_requests : Out(stream)
        Requests for the counters of one position.
    tallies : In(stream)
        The requested `counters` (CNT), in order.
    cache_requests : Out(stream)
        Requests for the intermediate caches A to F of a head; they are 0 before its first step.
    caches : In(stream)
        The columns of the requested caches, in order.
    centres : Out(stream)
        Part of G of the new position: `centre` (cid), `norm` and `ratio` (dnorm).
    marks : Out(stream)
        Part of G of a group of positions after the step: `modes` and `counts`; any value for lanes
        that hold no position.
    counters : Out(stream)
        The counters (CNT) of an active position after the step.
    columns : Out(stream)
        The columns of the caches after the step, in order; `last` with the last one.
    coming : In(stream)
        The `head` of each step in the order of the steps, any time in advance; only with
        `prefetched`. From then on until reset, only the head's own steps may change its data
        outside.
    hits, misses : Out(32)
        Number of active positions requested since reset that were on chip, and that were not; only
        with `prefetched`.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `LadTileParameters`.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        sent = {
            "outputs": p.output_layout,
            "sums": p.linear.output_layout,
            "results": p.sfm.values_layout,
            "appends": p.append_layout,
            "group_requests": p.rows_layout,
            "key_requests": p.place_layout,
            "active_requests": p.place_layout,
            "counter_requests": p.place_layout,
            "cache_requests": p.head_layout,
            "centres": p.centre_layout,
            "marks": p.marks_layout,
            "counters": p.counters_layout,
            "columns": p.column_layout,
        }
        taken = {
            "steps": p.step_layout,
            "tasks": p.linear.task_layout,
            "inputs": p.linear.input_layout,
            "weights": p.linear.weights_layout,
            "vectors": p.sfm.vector_layout,
            "factors": p.sfm.values_layout,
            "addends": p.sfm.values_layout,
            "groups": p.eas.group_layout,
            "keys": p.key_layout,
            "active": p.active_layout,
            "tallies": p.tally_layout,
            "caches": p.ac.cache_layout,
        }
        ahead = {
            "coming": In(stream.Signature(p.head_layout)),
            "hits": Out(COUNTER_BITS),
            "misses": Out(COUNTER_BITS),
        }
        super().__init__(
            {name: In(stream.Signature(layout)) for name, layout in taken.items()}
            | {name: Out(stream.Signature(layout)) for name, layout in sent.items()}
            | (ahead if p.prefetched else {})
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the stages; begin steps; write back."""
        m = Module()
        p = self.parameters
        m.submodules.slots = slots = StepSlots(parameters=p)
        m.submodules.pause = pause = PipelinePause()
        m.submodules.score_fetcher = scores = ScoreFetcher(parameters=p)
        m.submodules.eas = eas = AttentionScoreModule(parameters=p.eas, shared=True)
        m.submodules.apid = apid = ActivePositionModule(parameters=p.apid)
        m.submodules.active_fetcher = actives = ActiveFetcher(parameters=p)
        m.submodules.md = md = ModeDiscrepancyModule(parameters=p.md, shared=True)
        m.submodules.ac = ac = AttentionComputationModule(parameters=p.ac, shared=True)
        record = Signal(p.record_layout)
        may_begin = self._units(m, pause, [*eas.units, *md.units, *ac.units])
        may_begin &= fetch_active(m, self, slots, actives, record)
        self._begin(m, may_begin, slots, scores, eas, (md, ac))

        # Stages 1 to 3; APID then outputs the active positions.
        connect_streams(m, self.groups, scores.groups)
        connect_streams(m, scores.requests, self.key_requests)
        connect_streams(m, self.keys, scores.fetched)
        connect_streams(m, scores.rows, eas.groups)
        connect_streams(m, scores.keys, eas.keys)
        connect_streams(m, eas.scores, apid.groups)
        # Stages 4 to 6; data that changes its number of lanes is buffered in collectors. The union
        # compares a position in the cycle in which it arrives, hence the register.
        connect_registered(m, apid.positions, actives.positions)
        connect_streams(m, actives.counter_requests, self.counter_requests)
        connect_streams(m, self.tallies, actives.tallies)
        connect_streams(m, actives.active, md.active)
        connect_streams(m, actives.vectors, ac.vectors)
        connect_streams(m, self.caches, ac.caches)
        # MD has two lanes and AC three: coefficients are serialised in between, at the rate of the
        # positions.
        spread = LaneSpreader(shape=p.md.coefficient_layout, lanes=p.md.lanes)
        collect = LaneCollector(shape=p.md.coefficient_layout, lanes=p.ac.lanes)
        m.submodules.spread_coefficients, m.submodules.collect_coefficients = spread, collect
        connect_streams(m, md.coefficients, spread.groups)
        connect_streams(m, spread.items, collect.items)
        connect_streams(m, collect.groups, ac.coefficients)

        ends = {
            "positions": self._last(actives.positions),
            "centres": self._centres(m, slots, eas.centres),
            "outputs": self._outputs(m, slots, ac.outputs),
            "columns": self._columns(m, slots, ac.updated),
        } | self._marks(m, slots, apid.counts, md.updates, record)
        m.d.comb += [
            slots.ended.eq(Cat(ends[name] for name in ENDS)),
            pause.begun.eq(slots.begin),
            pause.scored.eq(ends["centres"]),
            pause.parted.eq(md.steps.valid & md.steps.ready),
            pause.ended.eq(ac.steps.valid & ac.steps.ready),
            actives.head.eq(slots.heads[ENDS.index("positions")]),
        ]
        return m

    @staticmethod
    def _last(port: Any) -> Value:
        """Return whether the last payload of a step is transferred."""
        return port.valid & port.ready & port.payload.last

    def _units(self, m: Module, pause: Any, attention: list[Any]) -> Value:
        """Connect the vector units to all their users; return whether a step may begin."""
        p = self.parameters
        m.submodules.pool = pool = UnitPool(parameters=p.vector, number=p.linear.units)
        m.submodules.linear = linear = LinearModule(parameters=p.linear, shared=True)
        m.submodules.sfm = sfm = SpecialFunctionModule(parameters=p.sfm, shared=True)
        for index, port in enumerate(attention):
            connect(m, port, pool.attention[index])
            connect(m, linear.units[index], pool.linear[index])
        connect(m, sfm.units[0], pool.function)
        for ours, theirs in ((self.inputs, linear.inputs), (self.weights, linear.weights)):
            connect_streams(m, ours, theirs)
        connect_streams(m, linear.outputs, self.sums)
        for ours, theirs in ((self.factors, sfm.factors), (self.addends, sfm.addends)):
            connect_streams(m, ours, theirs)
        connect_streams(m, sfm.results, self.results)
        return give_turns(m, self, pause, pool, linear, sfm)

    def _begin(
        self,
        m: Module,
        may_begin: Value,
        slots: Any,
        scores: Any,
        eas: Any,
        users: tuple[Any, Any],
    ) -> None:
        """Distribute the parts of a step to the modules."""
        p = self.parameters
        step, vector = self.steps.payload, p.vector.vector_layout
        parts: dict[str, tuple[Any, dict[str, Any]]] = {
            "rows": (p.rows_layout, {"head": step.head, "length": step.length}),
            "requests": (p.rows_layout, {"head": step.head, "length": step.length}),
            "caches": (p.head_layout, {"head": step.head}),
            "scored": (
                p.eas.step_layout,
                {"query": step.query, "key": step.key, "length": step.length},
            ),
            "discrepancies": (data.StructLayout({"query": vector}), {"query": step.query}),
            "computed": (data.StructLayout({"query": vector}), {"query": step.query}),
        }
        # Each queue has room for as many steps as there are slots, so that a free slot implies room
        # in all.
        held = {}
        for name, (layout, values) in parts.items():
            m.submodules[f"held_{name}"] = fifo = MemoryFifo(shape=layout, depth=SLOTS)
            held[name] = fifo.sink
            m.d.comb += fifo.source.valid.eq(slots.begin)
            for field, value in values.items():
                m.d.comb += fifo.source.payload[field].eq(value)
        # The new key and value are written before any request of the step.
        append = self.appends.payload
        m.d.comb += [
            slots.head.eq(step.head),
            slots.begin.eq(self.appends.valid & self.appends.ready),
            self.appends.valid.eq(self.steps.valid & slots.free & may_begin),
            self.steps.ready.eq(self.appends.ready & slots.free & may_begin),
            append.head.eq(step.head),
            append.position.eq(step.length - 1),
            append.key.eq(step.key),
            append.value.eq(step.value),
        ]
        connect_streams(m, held["rows"], scores.steps)
        connect_streams(m, held["requests"], self.group_requests)
        connect_streams(m, held["caches"], self.cache_requests)
        connect_streams(m, held["scored"], eas.steps)
        self._give_maxima(m, held, eas, users)

    def _give_maxima(
        self, m: Module, held: dict[str, Any], eas: Any, users: tuple[Any, Any]
    ) -> None:
        """Send a step's maximum to APID, and together with the query to MD and AC."""
        maxima, pause = [], m.submodules.pause
        stages = ((pause.identified, pause.identifies), (pause.computed, pause.computes))
        for name, user, (there, shown) in zip(
            ("discrepancies", "computed"), users, stages, strict=True
        ):
            shape = data.StructLayout({"maximum": FP16})
            m.submodules[f"maxima_{name}"] = fifo = Fifo(shape=shape, depth=SLOTS)
            maxima.append(fifo.source)
            both = (held[name], fifo.sink)
            m.d.comb += [
                there.eq(join_handshake(m, both, user.steps.ready & shown)),
                user.steps.valid.eq(shown),
                user.steps.payload["query"].eq(held[name].payload["query"]),
                user.steps.payload.maximum.eq(fifo.sink.payload.maximum),
            ]
        m.submodules.headers = headers = Fifo(shape=self.parameters.apid.step_layout, depth=SLOTS)
        # APID subtracts the maximum in the cycle in which it arrives, hence the register.
        connect_registered(m, headers.sink, m.submodules.apid.steps)
        sinks = [headers.source, *maxima]
        # The register separates the maximum from the room for scores, which is tested in the same
        # cycle.
        found = stream.Signature(self.parameters.apid.step_layout).create(path=("found",))
        connect_registered(m, eas.headers, found)
        # All users accept the maximum in the same cycle, each into its own queue.
        m.d.comb += found.ready.eq(fork_handshake(m, found.valid, sinks))
        m.d.comb += headers.source.payload.eq(found.payload)
        m.d.comb += [one.payload.maximum.eq(found.payload.maximum) for one in maxima]

    def _centres(self, m: Module, slots: Any, found: Any) -> Value:
        """Add the head to a new position's centre; return when it is transferred."""
        sent = self.centres.payload
        m.d.comb += [
            self.centres.valid.eq(found.valid),
            found.ready.eq(self.centres.ready),
            sent.head.eq(slots.heads[ENDS.index("centres")]),
        ]
        m.d.comb += [
            sent[name].eq(found.payload[name]) for name in ("position", "centre", "norm", "ratio")
        ]
        return found.valid & found.ready

    def _outputs(self, m: Module, slots: Any, computed: Any) -> Value:
        """Add the head to an output; return when it is transferred."""
        m.d.comb += [
            self.outputs.valid.eq(computed.valid),
            computed.ready.eq(self.outputs.ready),
            self.outputs.payload.head.eq(slots.heads[ENDS.index("outputs")]),
            self.outputs.payload["values"].eq(computed.payload["values"]),
            self.outputs.payload.not_positive.eq(computed.payload.not_positive),
        ]
        return computed.valid & computed.ready

    def _columns(self, m: Module, slots: Any, updated: Any) -> Value:
        """Add the head and `last` to a column; return when the last column is transferred."""
        p = self.parameters
        # Columns have no number; a counter finds the last one.
        column, last = Signal(range(p.ac.columns)), Signal()
        moves = updated.valid & updated.ready
        m.d.comb += [
            last.eq(column == p.ac.columns - 1),
            self.columns.valid.eq(updated.valid),
            updated.ready.eq(self.columns.ready),
            self.columns.payload.head.eq(slots.heads[ENDS.index("columns")]),
            self.columns.payload.word.eq(updated.payload.word),
            self.columns.payload.last.eq(last),
        ]
        with m.If(moves):
            m.d.sync += column.eq(column + 1)
            with m.If(last):
                m.d.sync += column.eq(0)
        return moves & last

    def _marks(
        self, m: Module, slots: Any, groups: Any, updates: Any, record: Any
    ) -> dict[str, Value]:
        """Output counters, modes and counts of a step; return when the last are transferred."""
        p = self.parameters
        m.submodules.merger = merger = MarkMerger(parameters=p)
        # Groups wait for the changes of their active positions. All groups of a step can pass
        # before the change of its last active position arrives.
        waiting = MemoryFifo(shape=p.apid.counts_layout, depth=2 * max(p.apid.groups, 2))
        m.submodules.waiting_groups = waiting
        connect_streams(m, groups, waiting.source)
        connect_streams(m, waiting.sink, merger.groups)
        m.submodules.spread_updates = spread = LaneSpreader(
            shape=p.md.update_layout, lanes=p.md.lanes
        )
        connect_streams(m, updates, spread.groups)
        m.submodules.changes = changes = Fifo(shape=merger.changes.payload.shape(), depth=2)
        connect_streams(m, changes.sink, merger.changes)
        item, update = spread.items, spread.items.payload["item"]
        counters, marks = self.counters.payload, self.marks.payload
        m.d.comb += [
            self.counters.valid.eq(item.valid & changes.source.ready),
            changes.source.valid.eq(item.valid & self.counters.ready),
            item.ready.eq(self.counters.ready & changes.source.ready),
            changes.source.payload.mode.eq(update.mode),
            changes.source.payload.count.eq(update.count),
            counters.head.eq(slots.heads[ENDS.index("counters")]),
            counters.position.eq(update.position),
            counters.counters.eq(update.counters),
        ]
        connect_streams(m, merger.merged, self.marks)
        m.d.comb += [
            marks.head.eq(slots.heads[ENDS.index("marks")]),
            record.head.eq(marks.head),
            record.group.eq(marks.group),
            record.active.eq(merger.active),
            record.last.eq(marks.last),
            record.enable.eq(self.marks.valid & self.marks.ready),
        ]
        return {"counters": self._last(item), "marks": self._last(self.marks)}
