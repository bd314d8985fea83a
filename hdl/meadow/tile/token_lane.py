"""A token lane of TPHS: query, scores, softmax and weighted values, one token of a group."""

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.meadow.attention_parameters import RESULT, AttentionParameters, BlockMode
from hdl.meadow.tile.broadcasting_processing_element import BroadcastingProcessingElement
from hdl.meadow.tile.element_parameters import Mode
from hdl.meadow.tile.group_counter import group_counter
from hdl.meadow.tile.parallel_processing_element import ParallelProcessingElement
from hdl.meadow.tile.pipelined_softmax import EXPONENTIAL_BITS, PipelinedSoftmax
from hdl.meadow.tile.query_stage import QueryStage
from hdl.stream.collector import Collector
from hdl.stream.connect import buffered, connect_registered, connect_streams
from hdl.unit import Unit


class TokenLane(Unit):
    """One token of each group through all stages of a head, chained by valid signals alone.

    Each stage works on another group: while the elements of the first make a token's query, the
    next one multiplies the query before with the keys, whose scores go to MAX as they come; EXP
    has the token before that, and DIV with the broadcasting element the one before. In every other
    mode one stage alone works, and what it makes leaves.

    **Throughput** a group in as many cycles as its longest stage: ``max(features, size / 2 *
    chunks)``, features as far as a pass goes.

    Parameters
    ----------
    parameters : AttentionParameters
        Dimensions.

    Members
    -------
    lane : In(range(lanes))
        Which token of a group is this one; a constant, so that all lanes are the same module.
    command : In
        As of the pipeline; it stands while there is work.
    entries : In(stream)
        The table of exponentials, for the block that begins.
    inputs : In(stream)
        The lane's token, group after group.
    weights, keys, values : In(stream)
        For each group what its passes want; `ready` does not depend on `valid`.
    biases : In(stream)
        For each group a head's biases, if there are biases.
    rows : In(stream)
        Words of what a stage that works alone is given instead of the stage before: a query, or a
        token's scores or probabilities.
    outputs : Out(stream)
        The token's output of a head, or its scores or probabilities, group after group.
    sums : Out(struct)
        As of `QueryStage`.
    """

    def __init__(self, *, parameters: AttentionParameters) -> None:
        self.parameters = p = parameters
        biases = {"biases": In(stream.Signature(p.bias_layout))} if p.biases else {}
        super().__init__(
            {
                "lane": In(p.lane_bits),
                "command": In(p.command_layout),
                "entries": In(stream.Signature(unsigned(EXPONENTIAL_BITS))),
                "inputs": In(stream.Signature(p.inputs_layout)),
                "weights": In(stream.Signature(p.weights_layout)),
                "keys": In(stream.Signature(p.word_layout)),
                "values": In(stream.Signature(p.word_layout)),
                **biases,
                "rows": In(stream.Signature(p.query_layout)),
                "outputs": Out(stream.Signature(p.output_layout)),
                "sums": Out(p.sums_layout),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Chain the stages."""
        m = Module()
        p, command = self.parameters, self.command
        # Each stage has another group's token; their valid bits are the whole control.
        m.submodules.query = query = QueryStage(parameters=p)
        m.submodules.score = score = ParallelProcessingElement(parameters=p.element)
        m.submodules.softmax = softmax = PipelinedSoftmax(parameters=p.softmax)
        m.submodules.value = value = BroadcastingProcessingElement(parameters=p.element)
        for element, name in ((score, "score"), (value, "output")):
            m.d.comb += [
                element.settings.mode.eq(Mode.PIPELINED),
                element.settings.streamed.eq(1),
                element.settings.scale.eq(command[f"{name}_scale"]),
                element.settings.shift.eq(command[f"{name}_shift"]),
            ]
        m.d.comb += [
            query.lane.eq(self.lane),
            query.command.eq(command),
            self.sums.eq(query.sums),
        ]
        for source, sink in (
            (self.inputs, query.inputs),
            (self.weights, query.weights),
            (self.keys, score.weights),
            (self.entries, softmax.entries),
            (self.values, value.weights),
            *([(self.biases, query.biases)] if p.biases else []),
        ):
            connect_streams(m, source, sink)
        compared, results = (stream.Signature(p.feature_layout).create() for _ in range(2))
        passed = stream.Signature(p.query_layout).create()
        # Two places each, so that a stage's ready does not reach through to the stage before.
        scores = buffered(m, "scores", score.results, depth=2)
        probabilities = buffered(m, "probabilities", softmax.probabilities, depth=2)
        features = self._features(m)
        # A stage that works alone has its operands from outside, and what it makes leaves.
        chain = (query.queries, score.pipeline), (scores, compared), (probabilities, value.pipeline)
        for mode, ways in (
            (BlockMode.GEMM, ((query.queries, passed),)),
            (BlockMode.PIPELINED, (*chain, (value.results, results))),
            (BlockMode.SCORES, ((self.rows, score.pipeline), (scores, results))),
            (BlockMode.SOFTMAX, ((features, compared), (probabilities, results))),
            (BlockMode.OUTPUTS, ((features, value.pipeline), (value.results, results))),
        ):
            with m.If(command.mode == mode):
                for source, sink in ways:
                    self._lead(m, source, sink)
        self._scores(m, compared, softmax.scores)
        self._outputs(m, results, passed)
        return m

    def _lead(self, m: Module, source: Any, sink: Any) -> None:
        """Let a stage take what another offers, as narrow as it wants it."""
        m.d.comb += [sink.valid.eq(source.valid), source.ready.eq(sink.ready)]
        for name, _field in sink.payload.shape():
            if name == "word":
                pairs = zip(sink.payload.word, source.payload.word, strict=True)
                m.d.comb += [own.eq(wide) for own, wide in pairs]
            else:
                m.d.comb += sink.payload[name].eq(source.payload[name])

    def _scores(self, m: Module, results: Any, scores: Any) -> None:
        """Mask what lies behind the token, and have the block's first score reload the table."""
        p, command = self.parameters, self.command
        # Scores come in the order of keys: counting them says which key and whose token it is.
        feature, begins = Signal(range(p.features)), Signal(init=1)
        taken, last = results.valid & results.ready, results.payload.last
        first, group_last = group_counter(
            m, "score_first", command.tokens, p.lanes, ends=taken & last
        )
        head = Signal(range(p.heads + 1))
        position = command.context - command.tokens + first + self.lane
        m.d.comb += [
            scores.valid.eq(results.valid),
            results.ready.eq(scores.ready),
            scores.payload.value.eq(results.payload.value),
            scores.payload.keep.eq(~command.causal | (feature <= position)),
            scores.payload.reload.eq(begins),
            scores.payload.last.eq(last),
        ]
        with m.If(taken):
            m.d.sync += [feature.eq(feature + 1), begins.eq(0)]
            with m.If(last):
                m.d.sync += feature.eq(0)
            with m.If(last & group_last):
                m.d.sync += head.eq(head + 1)
                # The next block has a table of its own.
                with m.If(head + 1 == command.heads):
                    m.d.sync += [head.eq(0), begins.eq(1)]

    def _features(self, m: Module) -> Any:
        """Return a row's scores or probabilities one by one, out of its words."""
        p, command, rows = self.parameters, self.command, self.rows
        features, held = (stream.Signature(p.feature_layout).create() for _ in range(2))
        feature, last, taken = Signal(range(p.features)), Signal(), Signal()
        # The word stands at its queue's output: its elements are looked at in turn.
        element = feature[: exact_log2(p.size)]
        m.d.comb += [
            last.eq(feature + 1 == command.context),
            # A query is a word, and is not taken apart.
            features.valid.eq(rows.valid & (command.mode != BlockMode.SCORES)),
            features.payload.value.eq(Array(rows.payload.word)[element]),
            features.payload.last.eq(last),
            taken.eq(features.valid & features.ready),
            rows.ready.eq(taken & (last | element.all())),
        ]
        with m.If(taken):
            m.d.sync += feature.eq(Mux(last, 0, feature + 1))
        # Between the choice of an element and the stage that takes it.
        connect_registered(m, features, held)
        return held

    def _outputs(self, m: Module, results: Any, passed: Any) -> None:
        """Collect a row of results in words, or pass on what GEMM made instead of a query."""
        p, command, outputs = self.parameters, self.command, self.outputs
        m.submodules.words = words = Collector(shape=RESULT, items=p.size)
        place, fills, full = Signal(range(p.size)), Signal(), Signal()
        items, groups = words.items, words.groups
        m.d.comb += [
            full.eq(place == p.size - 1),
            # A row's last word is filled up with zeros.
            items.valid.eq(results.valid | fills),
            items.payload["item"].eq(Mux(fills, 0, results.payload.value)),
            items.payload.last.eq(full & (results.payload.last | fills)),
            results.ready.eq(items.ready & ~fills),
        ]
        with m.If(items.valid & items.ready):
            m.d.sync += [place.eq(place + 1), fills.eq(~full & (results.payload.last | fills))]
        first, _last = group_counter(
            m,
            "output_first",
            command.tokens,
            p.lanes,
            ends=outputs.valid & outputs.ready & outputs.payload.last,
        )
        m.d.comb += [
            # In a GEMM the first stage's word is the result; the other stages stand.
            outputs.valid.eq(passed.valid | groups.valid),
            outputs.payload.last.eq(passed.valid | groups.payload.last),
            *(
                word.eq(Mux(passed.valid, own, output))
                for word, own, output in zip(
                    outputs.payload.word, passed.payload.word, groups.payload["items"], strict=True
                )
            ),
            # A lane beyond the last token works along, for nothing.
            outputs.payload.keep.eq(first + self.lane < command.tokens),
            groups.ready.eq(outputs.ready),
            passed.ready.eq(outputs.ready),
        ]
