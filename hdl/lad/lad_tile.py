"""LAD's tile: the attention pipeline with its write-back, and the linear layers (Section IV-C)."""

from amaranth.hdl import Cat, Const, Module, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, connect

from hdl.lad.ac.attention_computation_module import AttentionComputationModule
from hdl.lad.apid.active_position_module import ActivePositionModule
from hdl.lad.control.active_fetcher import ActiveFetcher
from hdl.lad.control.active_union import COUNTER_BITS
from hdl.lad.control.lane_transfers import LaneCollector, LaneSpreader
from hdl.lad.control.maximum_sharing import MaximumSharing
from hdl.lad.control.pipeline_pause import PipelinePause
from hdl.lad.control.position_prefetcher import PositionPrefetcher
from hdl.lad.control.score_fetcher import ScoreFetcher
from hdl.lad.control.step_queues import StepQueues
from hdl.lad.control.steps_in_flight import ENDS, StepsInFlight
from hdl.lad.control.unit_pool import UnitPool
from hdl.lad.control.unit_turns import UnitTurns
from hdl.lad.control.write_back import WriteBack, transferred
from hdl.lad.eas.attention_score_module import AttentionScoreModule
from hdl.lad.linear.linear_module import LinearModule
from hdl.lad.md.mode_discrepancy_module import ModeDiscrepancyModule
from hdl.lad.parameters import LadTileParameters
from hdl.lad.sfm.special_function_module import SpecialFunctionModule
from hdl.lad.vpu.vector_processing_unit import VectorInterface
from hdl.stream.connect import connect_registered, connect_streams
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
        G without norms, `lanes` positions per group: `centres` (the paper's cid), `ratios` (dnorm),
        `modes` (mode) and `counts` (cnt); for the newest position any value.
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
            "group_requests": p.group_request_layout,
            "key_requests": p.row_request_layout,
            "active_requests": p.row_request_layout,
            "counter_requests": p.row_request_layout,
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
        """Connect the stages of the pipeline, its write-back, and the other users of its units."""
        m = Module()
        p = self.parameters
        m.submodules.queues = queues = StepQueues(parameters=p)
        m.submodules.steps_in_flight = in_flight = StepsInFlight(parameters=p)
        m.submodules.pause = pause = PipelinePause()
        m.submodules.score_fetcher = scores = ScoreFetcher(parameters=p)
        m.submodules.eas = eas = AttentionScoreModule(parameters=p.eas, shared=True)
        m.submodules.maxima = maxima = MaximumSharing(parameters=p)
        m.submodules.apid = apid = ActivePositionModule(parameters=p.apid)
        m.submodules.active_fetcher = actives = ActiveFetcher(parameters=p)
        m.submodules.md = md = ModeDiscrepancyModule(parameters=p.md, shared=True)
        m.submodules.ac = ac = AttentionComputationModule(parameters=p.ac, shared=True)
        m.submodules.write_back = write_back = WriteBack(parameters=p)
        turns = self._share_units(m, [*eas.units, *md.units, *ac.units])
        # MD has two lanes and AC three: coefficients are serialised in between, at the rate of the
        # positions.
        m.submodules.spreader = spreader = LaneSpreader(
            shape=p.md.coefficient_layout, lanes=p.md.lanes
        )
        m.submodules.collector = collector = LaneCollector(
            shape=p.md.coefficient_layout, lanes=p.ac.lanes
        )
        for source, sink in (
            (self.steps, queues.steps),
            (queues.appends, self.appends),
            # Stages 1 and 2.
            (queues.group_requests, self.group_requests),
            (queues.fetcher_steps, scores.steps),
            (self.groups, scores.groups),
            (scores.requests, self.key_requests),
            (self.keys, scores.fetched),
            (scores.eas_groups, eas.groups),
            (scores.keys, eas.keys),
            (queues.eas_steps, eas.steps),
            (eas.headers, maxima.found),
            # Stages 3 and 4.
            (eas.scores, apid.groups),
            (maxima.apid_steps, apid.steps),
            (queues.cache_requests, self.cache_requests),
            (actives.counter_requests, self.counter_requests),
            (self.tallies, actives.tallies),
            # Stages 5 and 6.
            (queues.md_queries, maxima.md_queries),
            (maxima.md_steps, md.steps),
            (actives.active, md.active),
            (queues.ac_queries, maxima.ac_queries),
            (maxima.ac_steps, ac.steps),
            (actives.vectors, ac.vectors),
            (self.caches, ac.caches),
            (md.coefficients, spreader.transfers),
            (spreader.items, collector.items),
            (collector.transfers, ac.coefficients),
            # What the step has changed.
            (eas.centres, write_back.found),
            (apid.counts, write_back.counted),
            (md.updates, write_back.updates),
            (ac.outputs, write_back.computed),
            (ac.updated, write_back.updated),
            (write_back.centres, self.centres),
            (write_back.counters, self.counters),
            (write_back.marks, self.marks),
            (write_back.columns, self.columns),
            (write_back.outputs, self.outputs),
        ):
            connect_streams(m, source, sink)
        # The union compares a position in the cycle in which it arrives, hence the register.
        connect_registered(m, apid.positions, actives.positions)
        fetched = self._fetch_active(m, actives, in_flight, write_back)

        positions = actives.positions
        heads = dict(zip(ENDS, in_flight.heads, strict=True))
        m.d.comb += [
            in_flight.head.eq(self.steps.payload.head),
            in_flight.begin.eq(queues.begin),
            in_flight.ended.eq(
                Cat(transferred(positions) & positions.payload.last, write_back.ended)
            ),
            queues.may_begin.eq(in_flight.free & turns.may_begin & fetched),
            actives.head.eq(heads["positions"]),
            turns.offered.eq(self.appends.valid & ~self.appends.ready),
            turns.idle.eq(pause.idle),
            pause.wanted.eq(turns.wanted),
            pause.begun.eq(queues.begin),
            pause.eas_ended.eq(transferred(eas.centres)),
            pause.md_offered.eq(maxima.md_offered),
            maxima.md_admitted.eq(pause.md_admitted),
            pause.md_ended.eq(transferred(md.steps)),
            pause.ac_offered.eq(maxima.ac_offered),
            maxima.ac_admitted.eq(pause.ac_admitted),
            pause.ac_entered.eq(transferred(ac.steps)),
            pause.ac_ended.eq(ac.over),
        ]
        for index, name in enumerate(ENDS[1:]):
            m.d.comb += write_back.heads[index].eq(heads[name])
        return m

    def _share_units(self, m: Module, attention: list[VectorInterface]) -> UnitTurns:
        """Connect the vector units to all their users; return their arbiter."""
        p = self.parameters
        m.submodules.pool = pool = UnitPool(parameters=p.vector, number=p.linear.units)
        m.submodules.turns = turns = UnitTurns(parameters=p)
        m.submodules.linear = linear = LinearModule(parameters=p.linear, shared=True)
        m.submodules.sfm = sfm = SpecialFunctionModule(parameters=p.sfm, shared=True)
        for index, port in enumerate(attention):
            connect(m, port, pool.attention[index])
            connect(m, linear.units[index], pool.linear[index])
        connect(m, sfm.units[0], pool.function)
        for source, sink in (
            (self.tasks, turns.tasks),
            (turns.granted_tasks, linear.tasks),
            (self.inputs, linear.inputs),
            (self.weights, linear.weights),
            (linear.outputs, self.sums),
            (self.vectors, turns.vectors),
            (turns.granted_vectors, sfm.vectors),
            (self.factors, sfm.factors),
            (self.addends, sfm.addends),
            (sfm.results, self.results),
        ):
            connect_streams(m, source, sink)
        m.d.comb += [
            pool.turn.eq(turns.turn),
            turns.linear_busy.eq(linear.busy),
            turns.function_busy.eq(sfm.busy),
        ]
        return turns

    def _fetch_active(
        self, m: Module, actives: ActiveFetcher, in_flight: StepsInFlight, write_back: WriteBack
    ) -> Value:
        """Fetch active positions, through a prefetcher if any; return whether a step may begin."""
        if not self.parameters.prefetched:
            connect_streams(m, self.active, actives.fetched)
            asked, sent = actives.requests, self.active_requests
            m.d.comb += [
                sent.valid.eq(asked.valid),
                asked.ready.eq(sent.ready),
                sent.payload.head.eq(asked.payload.head),
                sent.payload.position.eq(asked.payload.position),
            ]
            return Const(1, 1)
        m.submodules.prefetcher = prefetcher = PositionPrefetcher(parameters=self.parameters)
        for source, sink in (
            (self.coming, prefetcher.heads),
            (actives.requests, prefetcher.asked),
            (prefetcher.answered, actives.fetched),
            (prefetcher.requests, self.active_requests),
            (self.active, prefetcher.fetched),
        ):
            connect_streams(m, source, sink)
        m.d.comb += [
            prefetcher.record.eq(write_back.record),
            prefetcher.begins.eq(in_flight.begin),
            prefetcher.freed.eq(in_flight.freed),
            prefetcher.freed_head.eq(in_flight.freed_head),
            self.hits.eq(prefetcher.hits),
            self.misses.eq(prefetcher.misses),
        ]
        return prefetcher.may_begin
