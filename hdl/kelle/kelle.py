"""Kelle: attention blocks of decode steps, beside an eDRAM that evicts, recomputes, refreshes.

Section 5, Figure 9 and Section 6 of the paper.
"""

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.array.matrix_unit import MatrixUnit
from hdl.kelle.control.kv_fetch import KvFetch
from hdl.kelle.control.load_issue import LoadIssue
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
from hdl.memory.memory import Memory
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


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
    look, shown, filled, vectors : In(stream), Out
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
                "threshold": Out(p.memory.score_bits),
                "counts": Out(COUNTS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect the parts, and count what has been done of a step."""
        m = Module()
        p = self.parameters
        m.submodules.array = self.array = MatrixUnit(parameters=p.array)
        m.submodules.controller = self.controller = EvictionController(parameters=p.eviction)
        m.submodules.memory = self.memory = RefreshedEdram(parameters=p.memory)
        m.submodules.fetch = self.fetch = KvFetch(parameters=p)
        m.submodules.load_issue = self.loads = LoadIssue(parameters=p)
        m.submodules.vector_issue = self.issue = VectorIssue(parameters=p)
        m.submodules.router = self.router = ResultRouter(parameters=p)
        m.submodules.softmax = self.softmax = SoftmaxRows(parameters=p)
        m.submodules.scheduler = self.scheduler = Scheduler(parameters=p)
        m.submodules.control = self.control = StepControl(parameters=p)
        self.placements = [
            Signal(placement_record(p), name=f"placement_{h}", reset_less=True)
            for h in range(p.heads)
        ]
        self._count(m)
        self._connect_array(m)
        self._connect_memory(m)
        self._connect_controller(m)
        self._send_outputs(m)
        return m

    def _count(self, m: Module) -> None:
        """Tell the scheduler, and who depends on it, how far the step has come."""
        p, ended = self.parameters, self.router.ended
        start = self.control.accepts
        progress = self.scheduler.progress
        scored, finished = Signal(p.count_shape), Signal(p.count_shape)
        strobes = (
            (progress.queries, ended[Operation.QUERY.value]),
            (progress.keys, ended[Operation.KEY.value]),
            (progress["values"], ended[Operation.VALUE.value]),
            (progress.placed, self.placed.valid),
            (progress.weighted, self.softmax.ended),
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

        # Slots in use before the arriving token has one.
        residents = [Signal(bits_for(p.slots), name=f"residents_{h}") for h in range(p.heads)]
        for h, count in enumerate(residents):
            with m.If(start):
                m.d.sync += count.eq(self.controller.filled[h])
            m.d.comb += [
                self.fetch.residents[h].eq(count),
                self.softmax.residents[h].eq(count),
                self.fetch.placements[h].eq(self.placements[h]),
            ]
        m.d.comb += [
            progress.arrived.eq(self.control.arrived),
            progress.loaded.eq(self.control.loaded),
            self.scheduler.start.eq(start),
            self.softmax.start.eq(start),
            self.softmax.scored.eq(scored),
            self.control.finished.eq(finished == p.query_heads),
        ]

    def _connect_array(self, m: Module) -> None:
        """Connect what the array takes, and what takes its results."""
        array, issue, router = self.array, self.issue, self.router
        connect_streams(m, self.scheduler.fetches, self.fetch.operations)
        connect_streams(m, self.scheduler.loads, self.loads.operations)
        connect_streams(m, self.scheduler.vectors, issue.operations)
        connect_streams(m, self.weights, self.loads.weights)
        connect_streams(m, self.fetch.beats, self.loads.blocks)
        connect_streams(m, self.loads.loads, array.weights)
        connect_streams(m, issue.vectors, array.vectors)
        connect_streams(m, self.scales, array.scales)
        m.d.comb += [
            issue.members.eq(self.control.members),
            issue.count.eq(self.control.count),
            issue.inputs.eq(self.control.inputs),
            issue.queries.eq(router.queries),
            issue.probabilities.eq(self.softmax.probabilities),
            issue.contexts.eq(router.contexts),
            router.members.eq(self.control.members),
            router.results.eq(array.results),
            self.fetch.computed.eq(router.computed),
            self.softmax.scores.eq(router.scores),
        ]

    def _connect_memory(self, m: Module) -> None:
        """Share the eDRAM's ports: the control reads only while the fetch has nothing to do."""
        memory, fetch, control = self.memory, self.fetch, self.control
        connect_streams(m, self.controller.scores, memory.scores)
        m.d.comb += [
            memory.settings.eq(self.settings),
            self.threshold.eq(memory.threshold),
            self.counts.eq(memory.counts),
        ]
        # A row from outside is written to one side, then to the other.
        second = Signal()
        rows_go = []
        for number, side in enumerate(SIDES):
            mine, its, port = (getattr(unit, f"{side}_read") for unit in (fetch, control, memory))
            own, write = getattr(fetch, f"{side}_write"), getattr(memory, f"{side}_write")
            turn = self.rows.valid & (second == number)
            m.d.comb += [
                port.valid.eq(mine.valid | its.valid),
                port.payload.eq(Mux(control.reading, its.payload, mine.payload)),
                mine.ready.eq(port.ready),
                its.ready.eq(port.ready),
                getattr(fetch, side).eq(getattr(memory, side)),
                getattr(control, side).eq(getattr(memory, side)),
                own.ready.eq(write.ready),
                write.valid.eq(own.valid | turn),
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
            rows_go.append(turn & ~own.valid & write.ready)
        m.d.comb += self.rows.ready.eq(rows_go[1])
        with m.If(rows_go[0] | rows_go[1]):
            m.d.sync += second.eq(~second)

    def _connect_controller(self, m: Module) -> None:
        """Announce scores a cycle before they come; keep placements; let steps begin."""
        p, controller, control = self.parameters, self.controller, self.control
        coming = self.array.coming
        header = data.View(header_layout(p), coming.user)
        scores = header.operation == Operation.SCORE
        own = header.operation == Operation.OWN
        placement = Array(self.placements)[header.head]
        wavefront = controller.wavefronts.payload
        compare = header.index == p.queries - 1
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
            controller.scores_in.eq(self.array.lanes),
            controller.placements.ready.eq(1),
            # The record of placements says the same, for as many heads as there are.
            controller.values.ready.eq(1),
        ]
        made = controller.placements.payload
        m.d.comb += [
            self.placed.placement.eq(made),
            self.placed.valid.eq(controller.placements.valid),
        ]
        with m.If(self.placed.valid):
            record = Array(self.placements)[made.head]
            m.d.sync += [
                record.slot.eq(made.slot),
                record.recomputed.eq(made.evicts & made.evicted.recomputed),
                record.vector.eq(made.evicted.vector),
            ]

        m.submodules.selector = selector = PrefillSelector(parameters=p.selector)
        connect_streams(m, self.prefill_scores, selector.scores)
        selected = selector.prefill
        m.d.comb += [
            controller.prefill.valid.eq(selected.valid | self.prefill.valid),
            controller.prefill.payload.eq(
                Mux(selected.valid, selected.payload.as_value(), self.prefill.payload.as_value())
            ),
            selected.ready.eq(controller.prefill.ready),
            self.prefill.ready.eq(controller.prefill.ready & ~selected.valid),
        ]
        connect_streams(m, controller.vector_stores, self.vector_stores)
        look = self.fetch.lookup_request
        m.d.comb += [
            controller.lookup_request.valid.eq(look.valid | self.lookup_request.valid),
            controller.lookup_request.payload.eq(
                Mux(look.valid, look.payload, self.lookup_request.payload)
            ),
            look.ready.eq(controller.lookup_request.ready),
            self.lookup_request.ready.eq(controller.lookup_request.ready & ~look.valid),
            self.fetch.lookup_response.eq(controller.lookup_response),
            self.lookup_response.eq(controller.lookup_response),
            self.filled.eq(controller.filled),
            self.vectors.eq(controller.vectors),
            control.vectors.eq(controller.vectors),
        ]

        edram = p.memory.edram
        vector_rows = edram.vector_entries * edram.entry_words
        owed = Signal(bits_for(vector_rows))
        asks = self.vector_stores.valid & self.vector_stores.ready
        with m.If(asks):
            m.d.sync += owed.eq(vector_rows)
        with m.Elif(self.rows.valid & self.rows.ready & (owed != 0)):
            m.d.sync += owed.eq(owed - 1)
        connect_streams(m, self.tokens, control.tokens)
        connect_streams(m, self.hidden, control.hidden)
        m.d.comb += [
            controller.tokens.payload.eq(self.tokens.payload),
            controller.tokens.valid.eq(control.accepts),
        ]
        self.may_start: Value = controller.tokens.ready & self.memory.scores.ready & (owed == 0)

    def _send_outputs(self, m: Module) -> None:
        """Keep the output's slices until they are taken; a step begins when all are."""
        p, written = self.parameters, self.router.outputs
        m.submodules.kept = kept = Memory(depth=p.inputs, width=p.slice_layout.size)
        count, sent = Signal(range(p.inputs + 1)), Signal(range(p.inputs + 1))
        move = ~self.outputs.valid | self.outputs.ready
        waits = sent != count
        m.d.comb += [
            kept.write_enable.eq(written.strobe),
            kept.write_address.eq(written.address),
            kept.write_data.eq(written["values"]),
            kept.read_enable.eq(move & waits),
            kept.read_address.eq(sent),
            self.outputs.payload.eq(kept.read_data),
            self.control.may_start.eq(self.may_start & ~waits & ~self.outputs.valid),
        ]
        with m.If(written.strobe):
            m.d.sync += count.eq(count + 1)
        with m.If(move):
            m.d.sync += [self.outputs.valid.eq(waits), sent.eq(sent + waits)]
        with m.If(self.control.accepts):
            m.d.sync += [count.eq(0), sent.eq(0)]
