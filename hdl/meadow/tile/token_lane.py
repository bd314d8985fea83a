"""A token lane of TPHS: query, scores, softmax and weighted values, one token of a group."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.attention_parameters import AttentionParameters
from hdl.meadow.tile.broadcasting_processing_element import BroadcastingProcessingElement
from hdl.meadow.tile.element_parameters import OPERAND, Mode
from hdl.meadow.tile.group_counter import group_counter
from hdl.meadow.tile.parallel_processing_element import ParallelProcessingElement
from hdl.meadow.tile.pipelined_softmax import EXPONENTIAL_BITS, PipelinedSoftmax
from hdl.meadow.tile.query_stage import QueryStage
from hdl.stream.collector import Collector
from hdl.stream.connect import buffered, connect_streams
from hdl.unit import Unit


class TokenLane(Unit):
    """One token of each group through all stages of a head, chained by valid signals alone.

    Each stage works on another group: while the elements of the first make a token's query, the
    next one multiplies the query before with the keys, whose scores go to MAX as they come; EXP
    has the token before that, and DIV with the broadcasting element the one before. In GEMM mode
    the first stage alone works, and what it makes leaves.

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
    outputs : Out(stream)
        The token's output of a head, group after group.
    sums : Out(struct)
        As of `QueryStage`.
    """

    def __init__(self, *, parameters: AttentionParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "lane": In(p.lane_bits),
                "command": In(p.command_layout),
                "entries": In(stream.Signature(unsigned(EXPONENTIAL_BITS))),
                "inputs": In(stream.Signature(p.inputs_layout)),
                "weights": In(stream.Signature(p.weights_layout)),
                "keys": In(stream.Signature(p.word_layout)),
                "values": In(stream.Signature(p.word_layout)),
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
        ):
            connect_streams(m, source, sink)
        # Two places each, so that a stage's ready does not reach through to the stage before.
        self._scores(m, buffered(m, "scores", score.results, depth=2), softmax.scores)
        probabilities = buffered(m, "probabilities", softmax.probabilities, depth=2)
        m.d.comb += [
            value.pipeline.valid.eq(probabilities.valid),
            value.pipeline.payload.value.eq(probabilities.payload.value),
            probabilities.ready.eq(value.pipeline.ready),
        ]
        self._outputs(m, value.results, query.queries, score.pipeline)
        return m

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

    def _outputs(self, m: Module, results: Any, queries: Any, passed: Any) -> None:
        """Collect a head's output of the token, or pass on what GEMM made instead of a query."""
        p, command = self.parameters, self.command
        m.submodules.words = words = Collector(shape=OPERAND, items=p.size)
        m.d.comb += [
            words.items.valid.eq(results.valid),
            words.items.payload["item"].eq(results.payload.value),
            results.ready.eq(words.items.ready),
        ]
        groups, outputs = words.groups, self.outputs
        # In a GEMM the first stage's word is the result; the other stages stand.
        gemm = command.mode == Mode.GEMM
        m.d.comb += [
            passed.valid.eq(queries.valid & ~gemm),
            *(
                own.eq(wide[: OPERAND.width])
                for own, wide in zip(passed.payload.word, queries.payload.word, strict=True)
            ),
            queries.ready.eq(Mux(gemm, outputs.ready, passed.ready)),
        ]
        first, _last = group_counter(
            m, "output_first", command.tokens, p.lanes, ends=outputs.valid & outputs.ready
        )
        m.d.comb += [
            outputs.valid.eq(Mux(gemm, queries.valid, groups.valid)),
            *(
                word.eq(Mux(gemm, own, output))
                for word, own, output in zip(
                    outputs.payload.word, queries.payload.word, groups.payload["items"], strict=True
                )
            ),
            # A lane beyond the last token works along, for nothing.
            outputs.payload.keep.eq(first + self.lane < command.tokens),
            groups.ready.eq(outputs.ready & ~gemm),
        ]
