"""Kelle: decoder layers with a KV cache in eDRAM that evicts, recomputes and refreshes tokens.

Section 5, Figure 9 and Section 6 of the paper.
"""

from dataclasses import dataclass, fields

from amaranth.hdl import Module, Mux
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.array.matrix_unit import MatrixUnit
from hdl.kelle.control.activated_products import ActivatedProducts
from hdl.kelle.control.gated_products import GatedProducts
from hdl.kelle.control.kv_fetch import KvFetch, overflow_ports
from hdl.kelle.control.load_issue import LoadIssue
from hdl.kelle.control.predictor import Predictor
from hdl.kelle.control.residual_stream import ResidualStream
from hdl.kelle.control.result_router import ResultRouter
from hdl.kelle.control.sequencer import Scheduler
from hdl.kelle.control.softmax_rows import SoftmaxRows
from hdl.kelle.control.step_control import StepControl
from hdl.kelle.control.step_progress import StepProgress
from hdl.kelle.control.step_state import StepState
from hdl.kelle.control.token_turns import TokenTurns
from hdl.kelle.control.vector_issue import VectorIssue
from hdl.kelle.control.vector_requests import VectorRequests
from hdl.kelle.control.wavefront_headers import WavefrontHeaders
from hdl.kelle.edram.kv_edram import SIDES
from hdl.kelle.edram.refreshed_edram import RefreshedEdram
from hdl.kelle.edram.row_writer import RowWriter
from hdl.kelle.eviction.eviction_controller import EvictionController
from hdl.kelle.eviction.eviction_parameters import placement_layout, prefill_layout, vector_layout
from hdl.kelle.eviction.prefill_selector import PrefillSelector
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.kelle.weight_memory import WeightMemory
from hdl.nonlinear.row_norm import EPSILON_BITS
from hdl.stream.connect import connect_prioritised, connect_streams
from hdl.unit import Unit


@dataclass(frozen=True)
class Parts:
    """The submodules of `Kelle`, one of each; the field names are the submodules' names."""

    array: MatrixUnit
    controller: EvictionController
    selector: PrefillSelector
    memory: RefreshedEdram
    row_writer: RowWriter
    fetch: KvFetch
    load_issue: LoadIssue
    vector_issue: VectorIssue
    router: ResultRouter
    headers: WavefrontHeaders
    softmax: SoftmaxRows
    scheduler: Scheduler
    control: StepControl
    state: StepState
    progress: StepProgress
    turns: TokenTurns
    requests: VectorRequests
    products: GatedProducts | ActivatedProducts
    residual: ResidualStream
    weight_memory: WeightMemory | None
    predictor: Predictor | None

    @classmethod
    def of(cls, p: KelleParameters) -> "Parts":
        """Create the parts of an accelerator, without connections."""
        products = GatedProducts if p.gated else ActivatedProducts
        return cls(
            array=MatrixUnit(parameters=p.array),
            controller=EvictionController(parameters=p.eviction),
            selector=PrefillSelector(parameters=p.selector),
            memory=RefreshedEdram(parameters=p.memory),
            row_writer=RowWriter(parameters=p.memory.edram),
            fetch=KvFetch(parameters=p),
            load_issue=LoadIssue(parameters=p),
            vector_issue=VectorIssue(parameters=p),
            router=ResultRouter(parameters=p),
            headers=WavefrontHeaders(parameters=p),
            softmax=SoftmaxRows(parameters=p),
            scheduler=Scheduler(parameters=p),
            control=StepControl(parameters=p),
            state=StepState(parameters=p),
            progress=StepProgress(parameters=p),
            turns=TokenTurns(parameters=p),
            requests=VectorRequests(parameters=p),
            products=products(parameters=p),
            residual=ResidualStream(parameters=p),
            weight_memory=WeightMemory(parameters=p) if p.weight_memory else None,
            predictor=Predictor(parameters=p) if p.vocabulary_size else None,
        )


class Kelle(Unit):
    """Compute decoder layers, one token per step, or one token of each sequence of a batch.

    A decode step takes the arriving token's position from `positions`, the layer's input hidden
    state from `hidden`, and the weights from `weights`, in the order of the program
    (`control.sequencer.Scheduler`). It gives the layer's output hidden state to `outputs`; software
    returns it on `hidden` for the next layer. With a `batch` of several sequences, each gives one
    position and one hidden state, in order; the weights are transferred once. In every key/value
    head, the arriving token takes a free slot, or else the slot of the token that it evicts: the
    one with the lowest sum of scores, ties to the lowest slot, except for the first `sinks` and the
    youngest `window` tokens of the text (`eviction.systolic_evictor`, a part of
    `EvictionController`). The evicted token still takes part in the attention of this step.

    The tokens that a prefill keeps are transferred before the first step: the unit selects them by
    `prefill_scores`, or they are selected elsewhere and given to `prefill`. The host then looks up
    with `lookup_request` which slot holds which token, and writes the tokens' keys and values on
    `row_writes`. `vector_stores` reports a token that becomes popular, as in `EvictionController`.
    The host then writes the input that `normalised` gave for this token on `row_writes`, and later
    steps recompute its keys and values.

    With `vocabulary_size` above 0, a step may compute the LM head, whose matrix has one scale, from
    the normalised output of the last layer. It gives a prediction instead of a hidden state.

    No port signals the end of a step. `positions` is ready for the next step when all results are
    complete, the eviction controller has finished, the output is transferred, all requested rows
    are written, and no prefill is offered.

    **Latency** of a step: for each tile of weights the larger of ``load_cycles`` and the number of
    vectors that are multiplied by it; for each tile of keys or values, once for each of their two
    bytes, the larger of ``load_cycles`` and the number of query heads per key/value head. The norms
    and the latencies of the parts add to this sum. ``load_cycles`` is that of
    `SystolicArrayParameters`, rows / bands for weights of 8 bits. **Throughput** one step at a
    time.

    **Numerics** integers: weights of 8 or 4 bits, activations of 16 or 8, exact sums, each
    requantised once (rounded to nearest, ties to even, saturating) by the scale and shift of its
    output channel. Rotary embedding, softmax and evictor as in their units; activations of 8 bits
    as in `VectorIssue`, probabilities as in `SoftmaxRows`, norms and residual sums as in
    `ResidualStream`, the activation as in `GatedProducts` or `ActivatedProducts`. Software folds
    the norms' weights and ``1 / sqrt(head_size)`` into matrices and scales, the norms' biases into
    the projections' biases.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions and options of the accelerator.

    Members
    -------
    settings : In(settings)
        Refresh intervals, as `RefreshSettings` checks them; must always be valid.
    epsilon : In
        Epsilon of the norms, times `hidden_size`, in squared steps of the hidden state, as in
        `RmsNorm` or `LayerNorm`; constant during a step.
    layer : In
        Layer of the offered token, prefill scores or kept tokens, until they are transferred.
    sequence_number : In
        With several sequences, the sequence of the offered prefill scores or kept tokens.
    predicts : In(1)
        With an LM head, 1 if the step of the offered token computes it; constant until the token
        is transferred. The position of such a step is ignored.
    scales : In(stream)
        Words of scales, at the addresses of `KelleParameters.scale`. The stream is always ready;
        scales of results in flight must not be written, so that the host writes them before the
        first step or after the last transfer of a step's output.
    clears : In(stream)
        Sequence whose text in the layer `layer` has ended, 0 with one sequence: its slots and
        stored vectors become free, as in `EvictionController`, before the next step or prefill.
        Not during a prefill of the sequence.
    prefill_scores : In(stream)
        As in `PrefillSelector`.
    prefill : In(stream)
        As in `EvictionController`.
    row_writes : In(stream)
        `address`, `keys`, `values`: rows of the KV eDRAM to write. The next step begins only when
        all rows that `vector_stores` requested have been written.
    positions, hidden, weights : In(stream)
        Positions of a step, from 0 for a text's first token; its hidden states, in ascending slices
        of `rows` elements of 16 bits; its beats of weights, each a row of weights for every band of
        the array. With a `weight_memory`, `weights` takes words of `channel_bytes` bytes instead,
        of which the unit assembles beats.
    overflow_reads, overflow_rows, overflow_writes : Out(stream), In(stream), Out(stream)
        With `overflow`, as in `KvFetch`: rows of the heads that are not in the eDRAM, in off-chip
        memory. The host writes the rows of a prefill's tokens there itself.
    outputs : Out(stream)
        Slices of the layer's output hidden states, each as soon as it is complete for
        all sequences.
    normalised : Out(stream)
        Slices of the attention block's inputs, after the norm. The step waits until they are taken.
    predictions : Out(stream)
        For each step of the LM head, the argmax: the `token` with the largest `sum`; ties resolve
        to the lowest token. The padding of the last tiles must repeat the weights of token 0.
    vector_stores : Out(stream)
        As in `EvictionController`, with the `sequence` of the token.
    placed : Out
        `placement` of a head's arriving token; `valid` is 1 in the cycle of the placement.
    lookup_request, lookup_response, filled, no_victim : In(stream), Out
        As in `EvictionController`: look up which tokens the slots of a tile hold; the records, one
        cycle later; slots in use per head; an illegal position left a head without a victim.
    vector_request, vector_response : In(stream), Out
        As in `EvictionController`, where each sequence of a layer is a layer of its own: look up
        the tokens of the stored input vectors.
    counts : Out
        As in `RefreshController`.

    Raises
    ------
    ValueError
        If `KelleParameters` rejects a dimension.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        eviction = p.eviction
        placed = {"placement": placement_layout(eviction), "valid": 1}
        several = {"sequence_number": In(p.sequence_bits)} if p.batch > 1 else {}
        predicting = {
            "predicts": In(1),
            "predictions": Out(stream.Signature(p.prediction_layout)),
        }
        super().__init__(
            several
            | (predicting if p.vocabulary_size else {})
            | {
                "settings": In(p.memory.refresh.settings_layout),
                "epsilon": In(EPSILON_BITS),
                "layer": In(p.layer_bits),
                "scales": In(stream.Signature(p.array.scales_layout)),
                "clears": In(stream.Signature(max(p.sequence_bits, 1))),
                "prefill_scores": In(stream.Signature(p.selector.scores_layout)),
                "prefill": In(stream.Signature(prefill_layout(eviction))),
                "row_writes": In(stream.Signature(p.row_write)),
                "positions": In(stream.Signature(p.arriving_layout)),
                "hidden": In(stream.Signature(p.slice_layout)),
                "weights": In(stream.Signature(p.channel_layout)),
                **overflow_ports(p),
                "outputs": Out(stream.Signature(p.slice_layout)),
                "normalised": Out(stream.Signature(p.slice_layout)),
                "vector_stores": Out(stream.Signature(p.store_layout)),
                "placed": Out(data.StructLayout(placed)),
                "lookup_request": In(stream.Signature(eviction.address_bits)),
                "lookup_response": Out(data.ArrayLayout(eviction.token_layout, p.rows)),
                "filled": Out(data.ArrayLayout(bits_for(p.slots), eviction.cached_heads)),
                "vector_request": In(stream.Signature(eviction.layer_bits)),
                "vector_response": Out(data.ArrayLayout(vector_layout(eviction), p.vectors)),
                "no_victim": Out(1),
                "counts": Out(p.memory.refresh.counts_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the parts."""
        m = Module()
        parts = Parts.of(self.parameters)
        for field in fields(parts):
            if (part := getattr(parts, field.name)) is not None:
                m.submodules[field.name] = part
        self._connect_operands(m, parts)
        self._connect_results(m, parts)
        self._connect_residual(m, parts)
        self._connect_edram(m, parts)
        self._connect_controller(m, parts)
        self._connect_prefill(m, parts)
        self._begin_steps(m, parts)
        self._count_progress(m, parts)
        return m

    def _connect_operands(self, m: Module, parts: Parts) -> None:
        """Connect the scheduler's three queues, and the sources of tiles and vectors."""
        array, control, fetch = parts.array, parts.control, parts.fetch
        loads, issue, router = parts.load_issue, parts.vector_issue, parts.router
        # One program in three queues: KV fetch, loads of tiles, and vectors to multiply by them.
        connect_streams(m, parts.scheduler.fetches, fetch.operations)
        connect_streams(m, parts.scheduler.loads, loads.operations)
        connect_streams(m, parts.scheduler.vectors, issue.operations)
        if parts.weight_memory is not None:
            connect_streams(m, self.weights, parts.weight_memory.words)
            connect_streams(m, parts.weight_memory.beats, loads.weights)
        else:
            connect_streams(m, self.weights, loads.weights)
        for name, member in overflow_ports(self.parameters).items():
            ours, theirs = getattr(self, name), getattr(fetch, name)
            if member.flow is Out:
                connect_streams(m, theirs, ours)
            else:
                connect_streams(m, ours, theirs)
        connect_streams(m, fetch.beats, loads.blocks)
        connect_streams(m, loads.loads, array.weights)
        connect_streams(m, issue.vectors, array.vectors)
        connect_streams(m, self.scales, array.scales)
        # Each result returns to the memory from which a later operation reads it. Vectors wait for
        # the slices of inputs that are held: `arrived` before the attention, `renewed` before the
        # feed-forward block.
        m.d.comb += [
            issue.members.eq(control.members),
            issue.count.eq(control.count),
            issue.last_token.eq(control.last_token),
            issue.inputs.eq(control.inputs),
            issue.arrived.eq(control.arrived),
            issue.renewed.eq(control.renewed),
            issue.queries.eq(router.queries),
            issue.probabilities.eq(parts.softmax.probabilities),
            issue.contexts.eq(router.contexts),
            issue.products.eq(parts.products.products),
            fetch.sequences.eq(control.sequences),
            fetch.listed.eq(control.listed),
            fetch.filled.eq(parts.controller.filled),
            fetch.computed_keys.eq(router.computed_keys),
            fetch.computed_values.eq(router.computed_values),
        ]

    def _connect_results(self, m: Module, parts: Parts) -> None:
        """Connect the consumers of the array's results."""
        p, array, router = self.parameters, parts.array, parts.router
        if p.gated:
            m.d.comb += parts.products.gates.eq(router.gates)
        m.d.comb += [
            router.results.eq(array.results),
            router.members.eq(parts.control.members),
            router.last_token.eq(parts.control.last_token),
            parts.products.last_token.eq(parts.control.last_token),
            parts.softmax.scores.eq(router.scores),
            parts.products.ups.eq(router.ups),
            # The controller receives the header of a vector of scores, which names their tile,
            # one cycle before lane 0 outputs its score.
            parts.headers.coming.eq(array.coming),
            parts.controller.scores_in.eq(array.lanes),
        ]
        if parts.predictor is not None:
            connect_streams(m, parts.predictor.predictions, self.predictions)
            m.d.comb += [
                array.clear.eq(parts.control.accepts),
                parts.predictor.ended.eq(router.ended[Operation.VOCABULARY.value]),
                parts.predictor.largest.eq(array.largest),
            ]

    def _connect_residual(self, m: Module, parts: Parts) -> None:
        """Connect the hidden states: into the layer, to its blocks, and out of it."""
        residual, router = parts.residual, parts.router
        connect_streams(m, self.hidden, residual.hidden)
        connect_streams(m, residual.inputs, parts.control.hidden)
        connect_streams(m, residual.normalised, self.normalised)
        connect_streams(m, residual.outputs, self.outputs)
        m.d.comb += [
            residual.start.eq(parts.control.accepts),
            residual.epsilon.eq(self.epsilon),
            residual.last_token.eq(parts.control.last_token),
            residual.sums.eq(router.sums),
            residual.leaves.eq(router.leaves),
        ]

    def _connect_edram(self, m: Module, parts: Parts) -> None:
        """Share the ports of the eDRAM between the fetch, the step control and the outside."""
        memory, fetch, control, writer = parts.memory, parts.fetch, parts.control, parts.row_writer
        connect_streams(m, parts.controller.scores, memory.scores)
        connect_streams(m, self.row_writes, writer.row_writes)
        m.d.comb += [memory.settings.eq(self.settings), self.counts.eq(memory.counts)]
        for side in SIDES:
            row = getattr(memory, side)
            m.d.comb += [getattr(fetch, side).eq(row), getattr(control, side).eq(row)]
            reads = [getattr(unit, f"{side}_read") for unit in (control, fetch)]
            # The fetch has priority over the outside, because the array waits for it.
            writes = [getattr(unit, f"{side}_write") for unit in (fetch, writer)]
            # Never both at once: the control reads only while the fetch is idle.
            connect_prioritised(m, reads, getattr(memory, f"{side}_read"))
            connect_prioritised(m, writes, getattr(memory, f"{side}_write"))

    def _connect_controller(self, m: Module, parts: Parts) -> None:
        """Connect tokens, scores, placements, lookups and requested vectors."""
        controller, state, requests = parts.controller, parts.state, parts.requests
        connect_streams(m, parts.turns.positions, controller.positions)
        connect_streams(m, parts.headers.wavefronts, controller.wavefronts)
        connect_streams(m, controller.vector_stores, requests.promoted)
        connect_streams(m, requests.vector_stores, self.vector_stores)
        # The fetch has priority, since the array waits for it.
        lookups = [parts.fetch.lookup_request, self.lookup_request]
        connect_prioritised(m, lookups, controller.lookup_request)
        requests_of_vectors = [parts.control.vector_request, self.vector_request]
        connect_prioritised(m, requests_of_vectors, controller.vector_request)
        m.d.comb += [
            # The controller treats each sequence of a layer as a layer of its own.
            controller.layer.eq(state.cache),
            controller.placements.ready.eq(1),
            # `values` repeats the slots at which the heads' values are written. The state of the
            # step holds these slots, so that the stream is only emptied.
            controller.values.ready.eq(1),
            state.turn.eq(parts.turns.turn),
            state.sequence.eq(parts.turns.sequence),
            state.listed.eq(parts.control.listed),
            state.placement.eq(controller.placements.payload),
            state.placed.eq(controller.placements.valid),
            parts.headers.placements.eq(state.placements),
            parts.fetch.placements.eq(state.placements),
            parts.softmax.residents.eq(state.residents),
            parts.fetch.lookup_response.eq(controller.lookup_response),
            parts.control.vector_response.eq(controller.vector_response),
            requests.sequence.eq(parts.turns.sequence),
            parts.control.promoted.eq(controller.vector_stores.payload),
            parts.control.promoted.valid.eq(controller.vector_stores.valid),
            parts.control.promoted_sequence.eq(parts.turns.sequence),
            requests.writes.eq(self.row_writes.valid & self.row_writes.ready),
            self.placed.placement.eq(controller.placements.payload),
            self.placed.valid.eq(controller.placements.valid),
            self.lookup_response.eq(controller.lookup_response),
            self.filled.eq(controller.filled),
            self.vector_response.eq(controller.vector_response),
            self.no_victim.eq(controller.no_victim),
        ]

    def _connect_prefill(self, m: Module, parts: Parts) -> None:
        """Pass prefilled tokens to the controller, selected by the selector or elsewhere."""
        controller, selector, busy = parts.controller, parts.selector, parts.state.busy
        connect_streams(m, self.prefill_scores, selector.scores)
        # The selector's tokens have priority: it cannot begin another head while they wait.
        kept = stream.Signature(prefill_layout(self.parameters.eviction)).create(path=("kept",))
        connect_prioritised(m, [selector.prefill, self.prefill], kept)
        # No token is transferred during a step, because the step's layer and sequence are others.
        m.d.comb += [
            controller.prefill.payload.eq(kept.payload),
            controller.prefill.valid.eq(kept.valid & ~busy),
            kept.ready.eq(controller.prefill.ready & ~busy),
        ]

    def _begin_steps(self, m: Module, parts: Parts) -> None:
        """Begin a step when the previous one has completely finished."""
        p, controller, control, state = (
            self.parameters,
            parts.controller,
            parts.control,
            parts.state,
        )
        connect_streams(m, self.positions, control.positions)
        # Controller and eDRAM also refuse a step until their memories are initialised after reset.
        ready = controller.positions.ready & parts.memory.scores.ready & ~parts.requests.pending
        # A prefill has priority, from its first scores until the controller has its last token.
        chosen = parts.selector.busy | parts.selector.prefill.valid
        prefills = self.prefill_scores.valid | chosen | self.prefill.valid
        m.d.comb += [
            control.may_start.eq(ready & ~state.busy & ~prefills & ~parts.residual.pending),
            state.offered_layer.eq(self.layer),
            state.starts.eq(control.accepts),
            # A step ends when its results are complete and the controller has finished. The next
            # one also waits for the conditions of `may_start`.
            state.ends.eq(control.rests & controller.positions.ready),
            # A step of the LM head does not concern the eviction controller.
            parts.turns.start.eq(control.accepts & ~control.predicts),
            *(
                parts.turns.arriving[t].eq(control.members[t].position)
                for t in range(p.step_tokens)
            ),
            parts.turns.sequences.eq(control.sequences),
            parts.turns.last_token.eq(control.last_token),
            parts.scheduler.last_token.eq(control.last_token),
        ]
        for unit in (control, parts.fetch, parts.vector_issue):
            m.d.comb += unit.layer.eq(state.layer)
        for unit in (parts.scheduler, parts.softmax, parts.progress):
            m.d.comb += unit.start.eq(control.accepts)
        if p.batch > 1:
            offered = Mux(self.clears.valid, self.clears.payload, self.sequence_number)
            m.d.comb += state.offered_sequence.eq(offered)
        # A requested row must not be written into a vector of the next text.
        may_clear = ~state.busy & ~parts.requests.pending
        m.d.comb += [
            controller.clears.valid.eq(self.clears.valid & may_clear),
            controller.clears.payload.eq(state.cache),
            self.clears.ready.eq(controller.clears.ready & may_clear),
        ]
        if p.vocabulary_size:
            for unit in (parts.scheduler, control, parts.residual):
                m.d.comb += unit.predicts.eq(self.predicts)

    def _count_progress(self, m: Module, parts: Parts) -> None:
        """Connect the counts of complete heads to the parts that wait for them."""
        # Each event has the name of its result: `weighted`, probabilities; `multiplied`, products;
        # `loaded`, all inputs are held; `begun`, tokens that the controller has taken.
        progress, scheduled = parts.progress, parts.scheduler.progress
        counts, finished = progress.counts, progress.finished
        if parts.predictor is not None:
            finished |= parts.predictor.finished
        m.d.comb += [
            progress.ended.eq(parts.router.ended),
            progress.of_last_token.eq(parts.router.of_last_token),
            progress.placed.eq(self.placed.valid),
            progress.weighted.eq(parts.softmax.ended),
            progress.multiplied.eq(parts.products.of_last_token),
            scheduled.loaded.eq(parts.control.loaded),
            scheduled.begun.eq(parts.turns.begun),
            *(
                scheduled[name].eq(counts[name])
                for name in ("queries", "keys", "values", "placed", "weighted")
            ),
            parts.turns.scored.eq(counts.scored),
            parts.softmax.scored.eq(counts.scored),
            parts.vector_issue.attended.eq(counts.attended),
            parts.vector_issue.multiplied.eq(counts.multiplied),
            parts.control.finished.eq(finished),
        ]
