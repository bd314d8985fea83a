"""Kelle: decoder layers with a KV cache in eDRAM that evicts, recomputes and refreshes tokens.

Section 5, Figure 9 and Section 6 of the paper.
"""

from dataclasses import dataclass, fields
from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.array.matrix_unit import MatrixUnit
from hdl.kelle.control.activated_products import ActivatedProducts
from hdl.kelle.control.gated_products import GatedProducts
from hdl.kelle.control.kv_fetch import KvFetch
from hdl.kelle.control.load_issue import LoadIssue
from hdl.kelle.control.residual_stream import ResidualStream
from hdl.kelle.control.result_router import ResultRouter
from hdl.kelle.control.sequence_turns import SequenceTurns
from hdl.kelle.control.sequencer import Scheduler
from hdl.kelle.control.softmax_rows import SoftmaxRows
from hdl.kelle.control.step_control import StepControl
from hdl.kelle.control.step_progress import count_progress
from hdl.kelle.control.vector_issue import VectorIssue
from hdl.kelle.control.wavefronts import announce_wavefronts
from hdl.kelle.edram.kv_edram import SIDES
from hdl.kelle.edram.refreshed_edram import RefreshedEdram
from hdl.kelle.eviction.eviction_controller import EvictionController
from hdl.kelle.eviction.eviction_parameters import placement_layout, prefill_layout, vector_layout
from hdl.kelle.eviction.prefill_selector import PrefillSelector
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.kelle.weight_memory import connect_weights
from hdl.nonlinear.row_norm import EPSILON_BITS
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


@dataclass(frozen=True)
class Parts:
    """The submodules of `Kelle`, one of each; the field names are the submodules' names."""

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
    turns: SequenceTurns
    products: GatedProducts | ActivatedProducts
    residual: ResidualStream

    @classmethod
    def of(cls, p: KelleParameters) -> "Parts":
        """Create the parts of an accelerator, without connections."""
        products = GatedProducts if p.gated else ActivatedProducts
        return cls(
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
            turns=SequenceTurns(parameters=p),
            products=products(parameters=p),
            residual=ResidualStream(parameters=p),
        )


class Kelle(Unit):
    """Compute decoder layers, one token per step, or one token of each sequence of a batch.

    A decode step takes the arriving token's position from `tokens`, the layer's input hidden state
    from `hidden`, and the weights from `weights`, in the order of the program
    (`control.scheduler.Scheduler`). It gives the layer's output hidden state to `outputs`. With
    several `sequences`, each gives one position and one hidden state, in order; the weights are
    transferred once. In every key/value head, the arriving token takes a free slot, or else evicts
    the token with the lowest sum of scores, except for the first `sinks` and the youngest `window`
    tokens of the text. The evicted token still takes part in the attention of this step.

    The tokens that a prefill keeps are transferred before the first step: the unit selects them by
    `prefill_scores`, or they are selected elsewhere and given to `prefill`. Their rows of the KV
    eDRAM are then written by `rows`, at the slots that the lookups show. `vector_stores` reports a
    token that becomes popular, as in `EvictionController`. The host then writes the input that
    `normalised` gave for this token by `rows`, and later steps recompute its keys and values.

    With a `vocabulary`, a step may compute the LM head, whose matrix has one scale, from the
    normalised output of the last layer. It gives a prediction instead of a hidden state.

    **Latency** of a step: about ``load_cycles`` per tile of weights, or one cycle per token if that
    is more, and per byte of a tile of keys or values. **Throughput** one step at a time.

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
        Refresh intervals, as `RefreshSettings` checks them.
    epsilon : In
        Epsilon of the norms, as in `RmsNorm` or `LayerNorm`; constant during a step.
    layer : In
        Layer of the offered token, prefill scores or kept tokens, until they are transferred.
    sequence_number : In
        With several sequences, the sequence of the offered prefill scores or kept tokens.
    predicts : In(1)
        With a vocabulary, 1 if the step of the offered token computes the LM head; constant until
        the token is transferred. The position of such a step is ignored.
    scales : In(stream)
        Words of scales, at the addresses of `KelleParameters.scale`; always ready, not in a step.
    prefill_scores : In(stream)
        As in `PrefillSelector`.
    prefill : In(stream)
        As in `EvictionController`.
    rows : In(stream)
        `address`, `keys`, `values`: rows of the KV eDRAM to write. The next step begins only when
        all rows that `vector_stores` requested have been written.
    tokens, hidden, weights : In(stream)
        Positions of a step; its hidden states, in slices of `rows` elements of 16 bits; its beats
        of weights, each a row of weights for every band of the array, or with a `weight_memory` the
        words of which the unit assembles beats.
    outputs : Out(stream)
        Slices of the layer's output hidden states.
    normalised : Out(stream)
        Slices of the attention block's inputs, after the norm.
    predictions : Out(stream)
        For each step of the LM head, the argmax: the `token` with the largest `sum`; ties resolve
        to the lowest token. The padding of the last tiles must repeat the weights of token 0.
    vector_stores : Out(stream)
        As in `EvictionController`, with the `sequence` of the token.
    placed : Out
        `placement` of a head's arriving token; `valid` is 1 in the cycle of the placement.
    lookup_request, lookup_response, filled, vectors, no_victim : In(stream), Out
        As in `EvictionController`.
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
                "prefill_scores": In(stream.Signature(p.selector.scores_layout)),
                "prefill": In(stream.Signature(prefill_layout(eviction))),
                "rows": In(stream.Signature(p.row_write)),
                "tokens": In(stream.Signature(p.position_bits)),
                "hidden": In(stream.Signature(p.slice_layout)),
                "weights": In(stream.Signature(p.channel_layout)),
                "outputs": Out(stream.Signature(p.slice_layout)),
                "normalised": Out(stream.Signature(p.slice_layout)),
                "vector_stores": Out(stream.Signature(p.store_layout)),
                "placed": Out(data.StructLayout(placed)),
                "lookup_request": In(stream.Signature(eviction.address_bits)),
                "lookup_response": Out(data.ArrayLayout(eviction.token_layout, p.rows)),
                "filled": Out(data.ArrayLayout(bits_for(p.slots), eviction.cached_heads)),
                "vectors": Out(data.ArrayLayout(vector_layout(eviction), p.layers * p.stored)),
                "no_victim": Out(1),
                "counts": Out(p.memory.refresh.counts_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the parts, and count the progress of the step."""
        m = Module()
        p = self.parameters
        parts = Parts.of(p)
        for field in fields(parts):
            m.submodules[field.name] = getattr(parts, field.name)
        count_progress(m, p, parts, self.placed.valid)
        self._connect_array(m, parts)
        self._connect_edram(m, parts)
        placements = self._record_placements(m, parts)
        layer, busy = self._choose_layer(m, parts)
        self._hold_residents(m, parts, placements, layer)
        # The controller receives a header one cycle before its scores are at the array's lane 0.
        announce_wavefronts(m, p, parts.array.coming, placements, parts.controller.wavefronts)
        m.d.comb += parts.controller.scores_in.eq(parts.array.lanes)
        self._connect_prefill(m, parts, busy)
        self._connect_lookups(m, parts)
        self._begin_steps(m, parts, busy)
        if p.vocabulary_size:
            self._predict(m, parts)
        return m

    def _predict(self, m: Module, parts: Parts) -> None:
        """Connect the steps of the LM head, and offer the argmax of each."""
        p, array, predictions = self.parameters, parts.array, self.predictions
        start = parts.control.accepts
        for unit in (parts.scheduler, parts.control, parts.residual):
            m.d.comb += unit.predicts.eq(self.predicts)
        m.d.comb += [
            array.clear.eq(start),
            predictions.payload.token.eq(array.largest.number),
            predictions.payload.sum.eq(array.largest.total),
        ]
        ended, compared = parts.router.ended[Operation.VOCABULARY.value], Signal(p.head_bits)
        last = compared == p.vocabulary_heads - 1
        with m.If(ended):
            m.d.sync += compared.eq(Mux(last, 0, compared + 1))
        # The aligned results are later than the totals, so that the last total has been compared.
        with m.If(ended & last):
            m.d.sync += predictions.valid.eq(1)
        with m.Elif(predictions.ready):
            m.d.sync += predictions.valid.eq(0)
        with m.If(predictions.valid & predictions.ready):
            m.d.comb += parts.control.finished.eq(1)

    def _connect_array(self, m: Module, parts: Parts) -> None:
        """Connect the sources of the array's operands and the consumers of its results."""
        p, array, router = self.parameters, parts.array, parts.router
        loads, issue = parts.load_issue, parts.vector_issue
        # One program in three queues: KV fetch, loads of tiles, and vectors to multiply by them.
        connect_streams(m, parts.scheduler.fetches, parts.fetch.operations)
        connect_streams(m, parts.scheduler.loads, loads.operations)
        connect_streams(m, parts.scheduler.vectors, issue.operations)
        connect_weights(m, p, self.weights, loads.weights)
        connect_streams(m, parts.fetch.beats, loads.blocks)
        connect_streams(m, loads.loads, array.weights)
        connect_streams(m, issue.vectors, array.vectors)
        connect_streams(m, self.scales, array.scales)
        # Each result returns to the memory from which a later operation reads it.
        if p.gated:
            m.d.comb += parts.products.gates.eq(router.gates)
        m.d.comb += [
            issue.members.eq(parts.control.members),
            issue.count.eq(parts.control.count),
            issue.inputs.eq(parts.control.inputs),
            issue.arrived.eq(parts.control.arrived),
            issue.renewed.eq(parts.control.renewed),
            issue.queries.eq(router.queries),
            issue.probabilities.eq(parts.softmax.probabilities),
            issue.contexts.eq(router.contexts),
            issue.products.eq(parts.products.products),
            parts.products.ups.eq(router.ups),
            router.members.eq(parts.control.members),
            router.results.eq(array.results),
            parts.fetch.computed_keys.eq(router.computed_keys),
            parts.fetch.computed_values.eq(router.computed_values),
            parts.softmax.scores.eq(router.scores),
        ]

    def _connect_edram(self, m: Module, parts: Parts) -> None:
        """Share the ports of the eDRAM between the fetch, the step control and the outside."""
        memory, fetch, control = parts.memory, parts.fetch, parts.control
        connect_streams(m, parts.controller.scores, memory.scores)
        m.d.comb += [
            memory.settings.eq(self.settings),
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
                # Never both at once: the control reads only while the fetch is idle.
                read.valid.eq(fetch_read.valid | control_read.valid),
                read.payload.eq(Mux(control.reading, control_read.payload, fetch_read.payload)),
                fetch_read.ready.eq(read.ready),
                control_read.ready.eq(read.ready),
                getattr(fetch, side).eq(getattr(memory, side)),
                getattr(control, side).eq(getattr(memory, side)),
                # The fetch has priority, because the array waits for it.
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

    def _choose_layer(self, m: Module, parts: Parts) -> tuple[Signal, Signal]:
        """Return the current layer, which is held during a step, and whether a step is running."""
        p, controller, control = self.parameters, parts.controller, parts.control
        layer, held, busy = Signal(p.layer_bits), Signal(p.layer_bits), Signal()
        # A step ends when the controller has finished as well. The paths from the layer extend into
        # the slot table, hence the register.
        ends = control.rests & controller.tokens.ready
        m.d.sync += [busy.eq(control.accepts | (busy & ~ends)), held.eq(layer)]
        m.d.comb += layer.eq(Mux(busy, held, self.layer))
        for unit in (control, parts.fetch, parts.vector_issue):
            m.d.comb += unit.layer.eq(layer)
        # The controller treats every sequence of a layer as a layer of its own.
        sequence = parts.turns.turn
        if p.batch > 1:
            sequence = Mux(busy, sequence, self.sequence_number)
        m.d.comb += controller.layer.eq(p.cache(layer, sequence))
        vectors = Array(controller.vectors[n].as_value() for n in range(p.layers * p.stored))
        first = layer * p.stored if p.layers > 1 else 0
        for v in range(p.stored):
            m.d.comb += control.vectors[v].eq(vectors[first + v])
        return layer, busy

    def _record_placements(self, m: Module, parts: Parts) -> list[Any]:
        """Record the slot of the arriving token in each head, and how its victim was stored."""
        p, controller = self.parameters, parts.controller
        placements = [
            Signal(p.placement_layout, name=f"placement_{n}", reset_less=True)
            for n in range(p.items)
        ]
        made = controller.placements.payload
        m.d.comb += [
            controller.placements.ready.eq(1),
            # The records below hold the slots of all heads, so this stream is not needed.
            controller.values.ready.eq(1),
            self.placed.placement.eq(made),
            self.placed.valid.eq(controller.placements.valid),
        ]
        with m.If(self.placed.valid):
            record = Array(placements)[p.item(parts.turns.turn, made.head)]
            m.d.sync += [
                record.slot.eq(made.slot),
                record.recomputed.eq(made.evicts & made.evicted.recomputed),
                record.vector.eq(made.evicted.vector),
            ]
        return placements

    def _hold_residents(
        self, m: Module, parts: Parts, placements: list[Any], layer: Signal
    ) -> None:
        """Hold how many slots were in use before the arriving token had one."""
        p = self.parameters
        # Search and softmax refer to the cache before the step; counts may change during it.
        residents = [Signal(bits_for(p.slots), name=f"residents_{n}") for n in range(p.items)]
        filled = Array(parts.controller.filled[n] for n in range(p.eviction.cached_heads))
        first = layer * p.items if p.layers > 1 else 0
        for n, count in enumerate(residents):
            with m.If(parts.control.accepts):
                m.d.sync += count.eq(filled[first + n])
            m.d.comb += [
                parts.fetch.residents[n].eq(count),
                parts.softmax.residents[n].eq(count),
                parts.fetch.placements[n].eq(placements[n]),
            ]

    def _connect_prefill(self, m: Module, parts: Parts, busy: Signal) -> None:
        """Pass prefilled tokens to the controller, selected by the selector or elsewhere."""
        controller, selector = parts.controller, parts.selector
        connect_streams(m, self.prefill_scores, selector.scores)
        # The selector's tokens have priority: it cannot begin another head while they wait. No
        # token is transferred during a step, because the step's layer and sequence are others.
        selected = selector.prefill
        m.d.comb += [
            controller.prefill.valid.eq((selected.valid | self.prefill.valid) & ~busy),
            controller.prefill.payload.eq(
                Mux(selected.valid, selected.payload.as_value(), self.prefill.payload.as_value())
            ),
            selected.ready.eq(controller.prefill.ready & ~busy),
            self.prefill.ready.eq(controller.prefill.ready & ~selected.valid & ~busy),
        ]

    def _connect_lookups(self, m: Module, parts: Parts) -> None:
        """Share the lookups of the slot table; the fetch has priority, since the array waits."""
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
        ]

    def _begin_steps(self, m: Module, parts: Parts, busy: Signal) -> None:
        """Begin a step when the previous one has completely finished."""
        controller, control, turns = parts.controller, parts.control, parts.turns
        connect_streams(m, self.tokens, control.tokens)
        connect_streams(m, turns.tokens, controller.tokens)
        pending_rows = self._request_vectors(m, parts)
        residual = parts.residual
        connect_streams(m, self.hidden, residual.hidden)
        connect_streams(m, residual.inputs, control.hidden)
        connect_streams(m, residual.normalised, self.normalised)
        connect_streams(m, residual.outputs, self.outputs)
        # Controller and eDRAM also refuse a step until their memories are initialised after reset.
        ready = controller.tokens.ready & parts.memory.scores.ready & (pending_rows == 0)
        # A prefill has priority, from its first scores until the controller has its last token.
        chosen = parts.selector.busy | parts.selector.prefill.valid
        prefills = self.prefill_scores.valid | chosen | self.prefill.valid
        m.d.comb += [
            # A step of the LM head does not concern the eviction controller.
            turns.start.eq(control.accepts & ~control.predicts),
            *(
                turns.positions[s].eq(control.members[s].position)
                for s in range(self.parameters.batch)
            ),
            residual.start.eq(control.accepts),
            residual.epsilon.eq(self.epsilon),
            residual.sums.eq(parts.router.sums),
            residual.leaves.eq(parts.router.leaves),
            control.may_start.eq(ready & ~busy & ~prefills & ~residual.pending),
        ]

    def _request_vectors(self, m: Module, parts: Parts) -> Signal:
        """Request the input of a promoted token; return how many of its rows are outstanding."""
        p, stores, asked = self.parameters, self.vector_stores, parts.controller.vector_stores
        edram = p.memory.edram
        vector_rows = edram.vector_entries * edram.entry_words
        m.d.comb += [
            stores.valid.eq(asked.valid),
            asked.ready.eq(stores.ready),
            stores.payload.position.eq(asked.payload.position),
            stores.payload.vector.eq(asked.payload.vector),
            stores.payload.valid.eq(asked.payload.valid),
            stores.payload.sequence.eq(parts.turns.turn),
        ]
        pending_rows = Signal(bits_for(p.batch * vector_rows))
        # A sequence may request the rows of its input while another sequence's are outstanding.
        comes = self.rows.valid & self.rows.ready & (pending_rows != 0)
        requested = Mux(stores.valid & stores.ready, vector_rows, 0)
        m.d.sync += pending_rows.eq(pending_rows + requested - comes)
        return pending_rows
