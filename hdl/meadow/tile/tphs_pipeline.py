"""TPHS pipeline of one token (Figure 3): query, scores, softmax and weighted values."""

from dataclasses import replace

from amaranth.hdl import Array, Module, Mux, Signal, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hdl.meadow.tile.broadcasting_processing_element import BroadcastingProcessingElement
from hdl.meadow.tile.element_parameters import PIPELINED_ONLY
from hdl.meadow.tile.gemm_stage import GemmStage
from hdl.meadow.tile.group_counter import group_counter, group_position
from hdl.meadow.tile.parallel_processing_element import ParallelProcessingElement
from hdl.meadow.tile.pipelined_softmax import EXPONENTIAL_BITS, PipelinedSoftmax
from hdl.meadow.tile.tile_parameters import RESULT, BlockMode, TileParameters
from hdl.stream.collector import Collector
from hdl.stream.connect import buffered, connect_registered, connect_streams
from hdl.unit import Unit


class TphsPipeline(Unit):
    """All stages of attention for one token of each group: a lane of the tile.

    Each stage works on another group; only valid signals chain the stages. `GemmStage` (Q) computes
    the query of a token. A parallel PE (QK) multiplies the previous query by the keys and passes
    the scores to the softmax module's MAX as they are computed. EXP processes the token before
    that. DIV and the broadcasting PE (SM x V) process the token before EXP's. In every mode except
    `TPHS`, one stage runs alone and its results are output directly.

    **Throughput** one group in the cycles of its longest stage: ``max(features, size / 2 *
    slice_words)``, where features is the length of a pass.

    Parameters
    ----------
    parameters : TileParameters
        Dimensions of a lane.

    Members
    -------
    lane : In(range(lanes))
        Index of the lane; a constant input, so that all lanes are the same module.
    command : In
        As in `HybridTile`; constant during a block.
    inputs, weights, biases, scales : In(stream)
        As in `GemmStage`.
    sums : Out(struct)
        As in `GemmStage`.
    entries : In(stream)
        The table of exponentials of the next block.
    keys, values : In(stream)
        For each group the words of its passes; `ready` does not depend on `valid`.
    rows : In(stream)
        Operands of a stage that runs alone, in place of the previous stage: words of a query, or of
        a token's scores or probabilities.
    outputs : Out(stream)
        For each group the token's output of a head, or its scores or probabilities.
    """

    def __init__(self, *, parameters: TileParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                **p.gemm_members,
                "entries": In(stream.Signature(unsigned(EXPONENTIAL_BITS))),
                "keys": In(stream.Signature(p.word_layout)),
                "values": In(stream.Signature(p.word_layout)),
                "rows": In(stream.Signature(p.lane_word_layout)),
                "outputs": Out(stream.Signature(p.output_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Chain the stages that the mode of the block uses."""
        m = Module()
        p, command = self.parameters, self.command
        # Each stage has the token of another group; their valid bits are the only control.
        m.submodules.gemm = gemm = GemmStage(parameters=p)
        parts = replace(PIPELINED_ONLY, lookup=p.shared_multipliers)
        m.submodules.score = score = ParallelProcessingElement(
            parameters=p.score_element, parts=parts
        )
        m.submodules.softmax = softmax = PipelinedSoftmax(parameters=p.softmax)
        m.submodules.value = value = BroadcastingProcessingElement(
            parameters=p.output_element,
            parts=replace(parts, clamp=not p.token_exponents),
        )
        for element, name in ((score, "score"), (value, "output")):
            m.d.comb += [
                element.settings.scale.eq(command[f"{name}_scale"]),
                element.settings.shift.eq(command[f"{name}_shift"]),
            ]
        m.d.comb += [
            gemm.lane.eq(self.lane),
            gemm.command.eq(command),
            self.sums.eq(gemm.sums),
        ]
        for source, sink in (
            (self.inputs, gemm.inputs),
            (self.weights, gemm.weights),
            (self.keys, score.weights),
            (self.entries, softmax.entries),
            (self.values, value.weights),
            *([(self.biases, gemm.biases)] if p.biases else []),
            *([(self.scales, gemm.scales)] if p.tile_scales else []),
        ):
            connect_streams(m, source, sink)
        compared, results = (stream.Signature(p.feature_layout).create() for _ in range(2))
        passed = stream.Signature(p.lane_word_layout).create()
        # Buffers of two entries break the ready path between stages.
        scores = buffered(m, "scores", score.results, depth=2)
        probabilities = buffered(m, "probabilities", softmax.probabilities, depth=2)
        features = self._features(m)
        # A stage that runs alone reads external operands and outputs its results directly.
        chain = (gemm.results, score.pipeline), (scores, compared), (probabilities, value.pipeline)
        for mode, routes in (
            (BlockMode.GEMM, ((gemm.results, passed),)),
            (BlockMode.TPHS, (*chain, (value.results, results))),
            (BlockMode.SCORES, ((self.rows, score.pipeline), (scores, results))),
            (BlockMode.SOFTMAX, ((features, compared), (probabilities, results))),
            (BlockMode.OUTPUTS, ((features, value.pipeline), (value.results, results))),
        ):
            # The mode has a register for each route; no operand is in the lane when it changes.
            selected = Signal(name=f"selects_{mode.name.lower()}", reset_less=True)
            m.d.sync += selected.eq(command.mode == mode)
            with m.If(selected):
                for source, sink in routes:
                    self._connect(m, source, sink)
        # A register separates the selection of a score and its mask from the comparison in MAX.
        masked = stream.Signature(p.softmax.score_layout).create()
        self._mask(m, compared, masked)
        connect_registered(m, masked, softmax.scores)
        self._collect(m, results, passed)
        return m

    def _connect(self, m: Module, source: stream.Interface, sink: stream.Interface) -> None:
        """Connect a stage to another; truncate the elements to the width of the sink."""
        m.d.comb += [sink.valid.eq(source.valid), source.ready.eq(sink.ready)]
        for name, _field in sink.payload.shape():
            if name == "word":
                pairs = zip(sink.payload.word, source.payload.word, strict=True)
                m.d.comb += [own.eq(wide) for own, wide in pairs]
            else:
                m.d.comb += sink.payload[name].eq(source.payload[name])

    def _mask(self, m: Module, results: stream.Interface, scores: stream.Interface) -> None:
        """Mask keys after the token; make the first score of a block reload the table."""
        p, command = self.parameters, self.command
        # Scores arrive in the order of the keys, so that a counter identifies the key and token.
        feature, begins = Signal(range(p.slots)), Signal(init=1)
        taken, last = results.valid & results.ready, results.payload.last
        ends = taken & last
        group = group_counter(m, "score_first", command.tokens, p.lanes, ends=ends)
        head = Signal(range(p.heads + 1))
        base = command.context - command.tokens + self.lane
        position = group_position(m, "score_position", base, group, p.lanes, ends=ends)
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
            with m.If(last & group.last):
                m.d.sync += head.eq(head + 1)
                # Each block has its own table.
                with m.If(head + 1 == command.heads):
                    m.d.sync += [head.eq(0), begins.eq(1)]

    def _features(self, m: Module) -> stream.Interface:
        """Return the scores or probabilities of a row one at a time from its words."""
        p, command, rows = self.parameters, self.command, self.rows
        features, held = (stream.Signature(p.feature_layout).create() for _ in range(2))
        feature, last, taken = Signal(range(p.slots)), Signal(), Signal()
        # The queue's output holds the word while a counter selects its elements.
        element = feature[: exact_log2(p.size)]
        m.d.comb += [
            last.eq(feature + 1 == command.context),
            # A query is used as a whole word.
            features.valid.eq(rows.valid & (command.mode != BlockMode.SCORES)),
            features.payload.value.eq(Array(rows.payload.word)[element]),
            features.payload.last.eq(last),
            taken.eq(features.valid & features.ready),
            rows.ready.eq(taken & (last | element.all())),
        ]
        with m.If(taken):
            m.d.sync += feature.eq(Mux(last, 0, feature + 1))
        # A register separates the selection of an element from the stage that consumes it.
        connect_registered(m, features, held)
        return held

    def _collect(self, m: Module, results: stream.Interface, passed: stream.Interface) -> None:
        """Collect a row of results in words, or output the words of a GEMM."""
        p, command, outputs = self.parameters, self.command, self.outputs
        # A full buffer stops the stages upstream by a register.
        results = buffered(m, "collected", results, depth=1)
        m.submodules.words = words = Collector(shape=RESULT, items=p.size)
        place, fills, full = Signal(range(p.size)), Signal(), Signal()
        items, groups = words.items, words.groups
        m.d.comb += [
            full.eq(place == p.size - 1),
            # Zeros pad the last word of a row.
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
        # A lane without a token in the last group computes results that are discarded. The register
        # is correct before the first word of a group, since a word has at least two pairs.
        keep = Signal(reset_less=True)
        m.d.sync += keep.eq(first + self.lane < command.tokens)
        m.d.comb += [
            # In GEMM mode the word of stage Q is the result; the other stages are idle.
            outputs.valid.eq(passed.valid | groups.valid),
            outputs.payload.last.eq(passed.valid | groups.payload.last),
            *(
                word.eq(Mux(passed.valid, own, output))
                for word, own, output in zip(
                    outputs.payload.word, passed.payload.word, groups.payload["items"], strict=True
                )
            ),
            outputs.payload.keep.eq(keep),
            groups.ready.eq(outputs.ready),
            passed.ready.eq(outputs.ready),
        ]
