"""Kelle: attention blocks of decode steps, beside an eDRAM that evicts, recomputes, refreshes.

Section 5, Figure 9 and Section 6 of the paper.
"""

from dataclasses import dataclass, fields
from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.array.matrix_unit import MatrixUnit
from hdl.kelle.control.kv_fetch import KvFetch
from hdl.kelle.control.load_issue import LoadIssue
from hdl.kelle.control.output_buffer import OutputBuffer
from hdl.kelle.control.result_router import ResultRouter
from hdl.kelle.control.scheduler import Scheduler
from hdl.kelle.control.softmax_rows import SoftmaxRows
from hdl.kelle.control.step_control import StepControl
from hdl.kelle.control.vector_issue import VectorIssue
from hdl.kelle.edram.kv_edram import SIDES
from hdl.kelle.edram.refresh_controller import COUNTS
from hdl.kelle.edram.refreshed_edram import RefreshedEdram
from hdl.kelle.eviction.eviction_controller import EvictionController
from hdl.kelle.eviction.eviction_parameters import placement_layout, prefill_layout, vector_layout
from hdl.kelle.eviction.prefill_selector import PrefillSelector
from hdl.kelle.parameters import (
    KelleParameters,
    Operation,
    header_layout,
    placement_record,
    row_write,
)
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


@dataclass(frozen=True)
class Parts:
    """The units of Figure 9, and those that order their work."""

    array: MatrixUnit
    controller: EvictionController
    selector: PrefillSelector
    memory: RefreshedEdram
    fetch: KvFetch
    load_issue: LoadIssue
    vector_issue: VectorIssue
    router: ResultRouter
    softmax: SoftmaxRows
    scheduler: Scheduler
    control: StepControl
    outputs: OutputBuffer


class Kelle(Unit):
    """Execute the attention block of one decode step after another.

    A step: a position is given to `tokens`, the block's input (the normalised hidden state) to
    `hidden`, and the weights, in the order of the program (`control.scheduler.Scheduler`), to
    `weights`. The block's output leaves by `outputs`. Meanwhile in every key/value head the
    arriving token takes the slot of the least important one. What a prefill keeps is given before
    the first step: the prefill's scores to `prefill_scores`, by which tokens are selected, or
    tokens that have been selected elsewhere to `prefill`; then, as the slots show them, their rows
    of the KV eDRAM to `rows`. A token that becomes
    popular appears in `vector_stores`; its input is then given to `rows`, and in later steps its
    keys and values are recomputed.

    **Latency** of a step about that of its loads: ``load_cycles`` cycles a tile of weights, and as
    many a byte of a tile of keys or values. **Throughput** one step at a time.

    **Numerics** 8-bit weights, 16-bit activations, exact sums, each requantised once (rounded to
    nearest, ties to even, saturating) by the scale and shift of its output channel; rotary
    embedding, softmax and the evictor as there; probabilities as in `SoftmaxRows`.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions.

    Members
    -------
    settings : In(settings)
        Refresh intervals, as `RefreshSettings` checks them.
    scales : In(stream)
        Words of scales, as `KelleParameters.scale` places them; always ready, not during a step.
    prefill_scores : In(stream)
        As in `PrefillSelector`.
    prefill : In(stream)
        As in `EvictionController`.
    rows : In(stream)
        `address`, `keys`, `values`: rows of the KV eDRAM. All rows that `vector_stores` asks for
        are needed before the next step begins.
    tokens, hidden, weights : In(stream)
        A step's position, its input in slices of `rows` elements, and its beats of weights.
    outputs : Out(stream)
        Slices of the block's output.
    vector_stores : Out(stream)
        As in `EvictionController`.
    placed : Out
        `placement` of a head's arriving token, and `valid` for the cycle in which it is made.
    lookup_request, lookup_response, filled, vectors, no_victim : In(stream), Out
        As in `EvictionController`.
    threshold, counts : Out
        As in `RefreshController`.

    Raises
    ------
    ValueError
        By `KelleParameters`.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        eviction = p.eviction
        placed = {"placement": placement_layout(eviction), "valid": 1}
        super().__init__(
            {
                "settings": In(p.memory.refresh.settings_layout),
                "scales": In(stream.Signature(p.array.scales_layout)),
                "prefill_scores": In(stream.Signature(p.selector.scores_layout)),
                "prefill": In(stream.Signature(prefill_layout(eviction))),
                "rows": In(stream.Signature(row_write(p))),
                "tokens": In(stream.Signature(p.position_bits)),
                "hidden": In(stream.Signature(p.slice_layout)),
                "weights": In(stream.Signature(p.array.array.weights_layout)),
                "outputs": Out(stream.Signature(p.slice_layout)),
                "vector_stores": Out(stream.Signature(eviction.promoted_layout)),
                "placed": Out(data.StructLayout(placed)),
                "lookup_request": In(stream.Signature(eviction.address_bits)),
                "lookup_response": Out(data.ArrayLayout(eviction.token_layout, p.rows)),
                "filled": Out(data.ArrayLayout(bits_for(p.slots), p.heads)),
                "vectors": Out(data.ArrayLayout(vector_layout(eviction), p.vectors)),
                "no_victim": Out(1),
                "threshold": Out(p.memory.score_bits),
                "counts": Out(COUNTS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect the parts, and count what has been done of a step."""
        m = Module()
        p = self.parameters
        parts = Parts(
            array=MatrixUnit(parameters=p.array),
            controller=EvictionController(parameters=p.eviction),
            selector=PrefillSelector(parameters=p.selector),
            memory=RefreshedEdram(parameters=p.memory),
            fetch=KvFetch(parameters=p),
            load_issue=LoadIssue(parameters=p),
            vector_issue=VectorIssue(parameters=p),
            router=ResultRouter(parameters=p),
            softmax=SoftmaxRows(parameters=p),
            scheduler=Scheduler(parameters=p),
            control=StepControl(parameters=p),
            outputs=OutputBuffer(parameters=p),
        )
        for field in fields(parts):
            m.submodules[field.name] = getattr(parts, field.name)
        self._count_progress(m, parts)
        self._connect_array(m, parts)
        self._connect_edram(m, parts)
        placements = self._record_placements(m, parts)
        self._hold_residents(m, parts, placements)
        self._announce_wavefronts(m, parts, placements)
        self._connect_prefill(m, parts)
        self._connect_lookups(m, parts)
        self._begin_steps(m, parts)
        return m

    def _count_progress(self, m: Module, parts: Parts) -> None:
        """Tell the scheduler, and who depends on it, how far the step has come."""
        p, ended, start = self.parameters, parts.router.ended, parts.control.accepts
        progress = parts.scheduler.progress
        scored, finished = Signal(p.count_shape), Signal(p.count_shape)
        # Heads are done in ascending order: a count says which.
        strobes = (
            (progress.queries, ended[Operation.QUERY.value]),
            (progress.keys, ended[Operation.KEY.value]),
            (progress["values"], ended[Operation.VALUE.value]),
            (progress.placed, self.placed.valid),
            (progress.weighted, parts.softmax.ended),
            (progress.attended, ended[Operation.ATTEND.value]),
            (scored, ended[Operation.OWN.value]),
            (finished, ended[Operation.OUTPUT.value]),
        )
        for number, (port, strobe) in enumerate(strobes):
            count = Signal(p.count_shape, name=f"count_{number}")
            m.d.comb += port.eq(count)
            with m.If(strobe):
                m.d.sync += count.eq(count + 1)
            with m.If(start):
                m.d.sync += count.eq(0)
        m.d.comb += [
            progress.arrived.eq(parts.control.arrived),
            progress.loaded.eq(parts.control.loaded),
            parts.scheduler.start.eq(start),
            parts.softmax.start.eq(start),
            parts.softmax.scored.eq(scored),
            parts.control.finished.eq(finished == p.query_heads),
        ]

    def _connect_array(self, m: Module, parts: Parts) -> None:
        """Connect what the array takes, and what takes its results."""
        array, router = parts.array, parts.router
        loads, issue = parts.load_issue, parts.vector_issue
        # One program, three queues: tiles come from the fetch or from outside, vectors meet them.
        connect_streams(m, parts.scheduler.fetches, parts.fetch.operations)
        connect_streams(m, parts.scheduler.loads, loads.operations)
        connect_streams(m, parts.scheduler.vectors, issue.operations)
        connect_streams(m, self.weights, loads.weights)
        connect_streams(m, parts.fetch.beats, loads.blocks)
        connect_streams(m, loads.loads, array.weights)
        connect_streams(m, issue.vectors, array.vectors)
        connect_streams(m, self.scales, array.scales)
        # Results go back to where the next operation reads them.
        m.d.comb += [
            issue.members.eq(parts.control.members),
            issue.count.eq(parts.control.count),
            issue.inputs.eq(parts.control.inputs),
            issue.queries.eq(router.queries),
            issue.probabilities.eq(parts.softmax.probabilities),
            issue.contexts.eq(router.contexts),
            router.members.eq(parts.control.members),
            router.results.eq(array.results),
            parts.fetch.computed_keys.eq(router.computed_keys),
            parts.fetch.computed_values.eq(router.computed_values),
            parts.softmax.scores.eq(router.scores),
        ]

    def _connect_edram(self, m: Module, parts: Parts) -> None:
        """Share the eDRAM's ports between fetch, step control and outside."""
        memory, fetch, control = parts.memory, parts.fetch, parts.control
        connect_streams(m, parts.controller.scores, memory.scores)
        m.d.comb += [
            memory.settings.eq(self.settings),
            self.threshold.eq(memory.threshold),
            self.counts.eq(memory.counts),
        ]
        # A row from outside is written to one side, then to the other.
        second = Signal()
        writes_row = []
        for number, side in enumerate(SIDES):
            fetch_read, control_read, read = (
                getattr(unit, f"{side}_read") for unit in (fetch, control, memory)
            )
            own, write = getattr(fetch, f"{side}_write"), getattr(memory, f"{side}_write")
            selected = self.rows.valid & (second == number)
            m.d.comb += [
                # Not both at once: the control reads only while the fetch has nothing to do.
                read.valid.eq(fetch_read.valid | control_read.valid),
                read.payload.eq(Mux(control.reading, control_read.payload, fetch_read.payload)),
                fetch_read.ready.eq(read.ready),
                control_read.ready.eq(read.ready),
                getattr(fetch, side).eq(getattr(memory, side)),
                getattr(control, side).eq(getattr(memory, side)),
                # The fetch goes first: the array waits for it.
                own.ready.eq(write.ready),
                write.valid.eq(own.valid | selected),
                write.payload.address.eq(
                    Mux(own.valid, own.payload.address, self.rows.payload.address)
                ),
                write.payload.row.eq(
                    Mux(
                        own.valid,
                        own.payload.row.as_value(),
                        self.rows.payload[side].as_value(),
                    )
                ),
            ]
            writes_row.append(selected & ~own.valid & write.ready)
        m.d.comb += self.rows.ready.eq(writes_row[1])
        with m.If(writes_row[0] | writes_row[1]):
            m.d.sync += second.eq(~second)

    def _record_placements(self, m: Module, parts: Parts) -> list[Any]:
        """Keep where each head's arriving token goes, and how its victim was stored."""
        p, controller = self.parameters, parts.controller
        placements = [
            Signal(placement_record(p), name=f"placement_{h}", reset_less=True)
            for h in range(p.heads)
        ]
        made = controller.placements.payload
        m.d.comb += [
            controller.placements.ready.eq(1),
            # The record of placements says the same, for as many heads as there are.
            controller.values.ready.eq(1),
            self.placed.placement.eq(made),
            self.placed.valid.eq(controller.placements.valid),
        ]
        with m.If(self.placed.valid):
            record = Array(placements)[made.head]
            m.d.sync += [
                record.slot.eq(made.slot),
                record.recomputed.eq(made.evicts & made.evicted.recomputed),
                record.vector.eq(made.evicted.vector),
            ]
        return placements

    def _hold_residents(self, m: Module, parts: Parts, placements: list[Any]) -> None:
        """Hold how many slots were in use before the arriving token had one."""
        p = self.parameters
        # The search and the softmax are about the cache as it was: counts may change in the step.
        residents = [Signal(bits_for(p.slots), name=f"residents_{h}") for h in range(p.heads)]
        for h, count in enumerate(residents):
            with m.If(parts.control.accepts):
                m.d.sync += count.eq(parts.controller.filled[h])
            m.d.comb += [
                parts.fetch.residents[h].eq(count),
                parts.softmax.residents[h].eq(count),
                parts.fetch.placements[h].eq(placements[h]),
            ]

    def _announce_wavefronts(self, m: Module, parts: Parts, placements: list[Any]) -> None:
        """Announce scores to the controller a cycle before they are at the array's lane 0."""
        p, controller, coming = self.parameters, parts.controller, parts.array.coming
        header = data.View(header_layout(p), coming.user)
        scores = header.operation == Operation.SCORE
        own = header.operation == Operation.OWN
        placement = Array(placements)[header.head]
        wavefront = controller.wavefronts.payload
        # The last query head of a group completes a token's score.
        compare = header.index == p.queries - 1
        # Scores follow the slots' tiles; the arriving token's go to the tile of its slot, alone.
        row_bits = p.eviction.evictor.row_bits
        m.d.comb += [
            controller.wavefronts.valid.eq(coming.valid & (scores | own)),
            wavefront.head.eq(header.head),
            wavefront.tile.eq(Mux(own, placement.slot[row_bits:], header.part)),
            wavefront.load.eq(header.index == 0),
            wavefront.compare.eq(compare),
            wavefront.last.eq(compare & scores & (header.part == p.tiles - 1)),
            wavefront.fresh.eq(own),
            wavefront.alone.eq(own),
            wavefront.row.eq(placement.slot[:row_bits]),
            controller.scores_in.eq(parts.array.lanes),
        ]

    def _connect_prefill(self, m: Module, parts: Parts) -> None:
        """Let tokens in that were selected here, or elsewhere."""
        controller, selector = parts.controller, parts.selector
        connect_streams(m, self.prefill_scores, selector.scores)
        # The selector's tokens first: it cannot begin with another head while they wait.
        selected = selector.prefill
        m.d.comb += [
            controller.prefill.valid.eq(selected.valid | self.prefill.valid),
            controller.prefill.payload.eq(
                Mux(selected.valid, selected.payload.as_value(), self.prefill.payload.as_value())
            ),
            selected.ready.eq(controller.prefill.ready),
            self.prefill.ready.eq(controller.prefill.ready & ~selected.valid),
        ]

    def _connect_lookups(self, m: Module, parts: Parts) -> None:
        """Share the lookups of the slot table; the fetch goes first, since the array waits."""
        controller, fetch = parts.controller, parts.fetch
        requested, granted = fetch.lookup_request, controller.lookup_request
        m.d.comb += [
            granted.valid.eq(requested.valid | self.lookup_request.valid),
            granted.payload.eq(
                Mux(requested.valid, requested.payload, self.lookup_request.payload)
            ),
            requested.ready.eq(granted.ready),
            self.lookup_request.ready.eq(granted.ready & ~requested.valid),
            fetch.lookup_response.eq(controller.lookup_response),
            self.lookup_response.eq(controller.lookup_response),
            self.filled.eq(controller.filled),
            self.vectors.eq(controller.vectors),
            self.no_victim.eq(controller.no_victim),
            parts.control.vectors.eq(controller.vectors),
        ]

    def _begin_steps(self, m: Module, parts: Parts) -> None:
        """Let a step begin when nothing of the one before is left."""
        controller, control = parts.controller, parts.control
        connect_streams(m, self.tokens, control.tokens)
        connect_streams(m, self.hidden, control.hidden)
        pending_rows = self._request_vectors(m, parts)
        connect_streams(m, parts.outputs.outputs, self.outputs)
        # Controller and eDRAM also refuse a step until what they keep is in order after a reset.
        ready = controller.tokens.ready & parts.memory.scores.ready & (pending_rows == 0)
        # A prefill comes first: from its first scores on until the controller has its last token.
        prefills = self.prefill_scores.valid | parts.selector.busy | controller.prefill.valid
        m.d.comb += [
            controller.tokens.payload.eq(self.tokens.payload),
            controller.tokens.valid.eq(control.accepts),
            parts.outputs.start.eq(control.accepts),
            parts.outputs.slices.eq(parts.router.outputs),
            control.may_start.eq(ready & ~prefills & ~parts.outputs.pending & ~self.outputs.valid),
        ]

    def _request_vectors(self, m: Module, parts: Parts) -> Signal:
        """Ask for a promoted token's input; return how many of its rows have not come."""
        edram = self.parameters.memory.edram
        vector_rows = edram.vector_entries * edram.entry_words
        connect_streams(m, parts.controller.vector_stores, self.vector_stores)
        pending_rows = Signal(bits_for(vector_rows))
        # The input comes from outside, row by row: the token was promoted steps after it arrived.
        requests = self.vector_stores.valid & self.vector_stores.ready
        with m.If(requests):
            m.d.sync += pending_rows.eq(vector_rows)
        with m.Elif(self.rows.valid & self.rows.ready & (pending_rows != 0)):
            m.d.sync += pending_rows.eq(pending_rows - 1)
        return pending_rows
