"""MEADOW: decoder layers from packed weights, by GEMM and in the token-parallel pipeline.

Sections 3 to 5 and Figure 2 of the paper: the tile of token lanes, the unpacker of the weights, the
memory on the chip, norm and activation, and the sequencer of instructions between them.
"""

from typing import Any

from amaranth.hdl import Module, Mux, Value, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.running_argmax import RunningArgmax
from hdl.meadow.attention_parameters import HALVES
from hdl.meadow.attention_pipeline import AttentionPipeline
from hdl.meadow.control.activation_memory import ActivationMemory
from hdl.meadow.control.burst_list import BurstList
from hdl.meadow.control.cache_writer import CacheWriter
from hdl.meadow.control.combiner import Combiner, CombinerParameters
from hdl.meadow.control.normaliser import Normaliser
from hdl.meadow.control.sequencer import Sequencer
from hdl.meadow.control.weight_path import WeightPath
from hdl.meadow.parameters import Combine, Kind, Matrix, MeadowParameters, Reader
from hdl.meadow.tile.pipelined_softmax import EXPONENTIAL_BITS
from hdl.stream.connect import connect_streams
from hdl.stream.serialiser import Serialiser
from hdl.unit import Unit


class Meadow(Unit):
    """Take tokens through decoder layers, instruction by instruction.

    Hidden states come in, and all that a layer makes of them stays in the activation memory until
    they leave; keys and values alone are written outside. A layer is seven instructions or more:
    norm, keys and values by GEMM into the cache, attention (`TPHS`, which makes the queries too),
    its projection added to the states, norm, gate, up with the activation of the gate, or up alone
    and activated, down added to the states. A prefill's block of tokens and a decode step's one
    token are the same instructions. Behind the last layer a norm and the vocabulary's matrices by
    GEMM, whose results go nowhere (`COMPARE`): the largest sum of all leaves with `PREDICT`.

    Attention also goes stage by stage, as the paper's baseline: queries by `GEMM`, scores by a GEMM
    of them with the cached keys, `SOFTMAX` of rows of scores, heads' outputs by a GEMM of the
    probabilities with the cached values. Scores and probabilities then stand outside; every value
    is what it is in `TPHS`.

    The weights do not wait for instructions: their descriptions are a stream of their own, and
    packets are fetched and unpacked as far ahead as the pipeline's double buffer takes them. Each
    matrix comes in once an instruction, however many groups of tokens there are.

    **Latency** of an instruction some 20 cycles beyond its work; a block of attention some 60 and
    three groups. **Throughput** a GEMM as the attention pipeline's, ``head_size / 2 * chunks``
    cycles a group and tile, or the weights' way in; ``head_size`` weights a cycle at most.

    **Numerics** those of `AttentionPipeline`, `Normaliser` and `Combiner`: linear layers are exact
    sums of INT8 products, requantised to INT8 or 16 bits; hidden states have 24 bits. What is
    compared are the sums themselves; of equal ones the first.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions.

    Members
    -------
    instructions : In(stream)
        `kind`, and of a GEMM its `matrix`; `block` as a command of `AttentionPipeline`, of which
        `tokens` count always, and `mode` follows from kind and matrix. Of the activation memory:
        `source` and `words` of a token's row that is read, `target` and `stride` of rows that are
        written. `combine` and `lift` as of `Combiner`; `cached`, whether a GEMM's results go to the
        cache, a head a tile, rather than to the memory, as scores do. Without a gate
        `block.output_scale` is the `scale` of `Combiner`. Addresses outside: `vectors` of hidden
        states, of a norm's weights, or of attention's table of exponentials; `keys` and
        `values` of the first head's, which are `spacing` apart, and there are `shared` of them;
        what is written goes to `values`. Rows of scores come from `keys`, and so do probabilities:
        `words` are then those of a row that comes, `stride` those of a row that is written, and
        heads stand one behind the other; with `wide` a probability has two octets. `epsilon` as of
        `RowScaler`. A GEMM that compares has one token, and is not `cached`.
    matrices : In(stream)
        As of `WeightPath`, for each instruction of `TPHS`, or of `GEMM` with weights, in turn.
    vector_reads, state_writes : Out(port)
        Words of 24-bit elements: hidden states; a norm's weights and exponentials in their lower 16
        bits. Hidden states leave by the other.
    key_reads, value_reads, cache_writes : Out(port)
        The cache: a word for each head and position; rows of scores and probabilities.
    table_reads, packet_reads : Out(port)
        Weights.
    bias_reads : Out(port)
        Their biases, if there are biases.
    predictions : Out(stream)
        Of each `PREDICT` the `token` with the largest `sum`: which of all outputs since the
        prediction before, counted from 0. What fills a vocabulary's last tile must repeat its first
        row, which stands before it.
    idle : Out(1)
        No instruction is under way.
    damage, clear_flags : Out, In
        As of `WeightPath`.

    Raises
    ------
    ValueError
        By `MeadowParameters`.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        cached = p.element.word_layout
        biases = {"bias_reads": Out(p.reads(p.bias_layout))} if p.biases else {}
        super().__init__(
            {
                "instructions": In(stream.Signature(p.instruction_layout)),
                "matrices": In(stream.Signature(p.matrix_layout)),
                "vector_reads": Out(p.reads(p.state_layout)),
                "state_writes": Out(p.writes(p.state_layout)),
                "key_reads": Out(p.reads(cached)),
                "value_reads": Out(p.reads(cached)),
                "cache_writes": Out(p.writes(cached)),
                "table_reads": Out(p.reads(p.unpacker.chunk_layout)),
                "packet_reads": Out(p.reads(p.unpacker.unpacker.packet_bits)),
                **biases,
                "predictions": Out(stream.Signature(p.prediction_layout)),
                "idle": Out(1),
                "damage": Out(p.unpacker.result_layout),
                "clear_flags": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect."""
        m = Module()
        p = self.parameters
        m.submodules.sequencer = sequencer = Sequencer(parameters=p)
        m.submodules.weights = weights = WeightPath(parameters=p)
        m.submodules.memory = memory = ActivationMemory(parameters=p)
        m.submodules.pipeline = pipeline = AttentionPipeline(parameters=p.attention)
        dimensions = CombinerParameters(size=p.head_size, activation=p.activation, gated=p.gated)
        m.submodules.combiner = combiner = Combiner(parameters=dimensions)
        m.submodules.normaliser = normaliser = Normaliser(parameters=p)
        m.submodules.cache = cache = CacheWriter(parameters=p)
        m.submodules.keys = keys = BurstList(parameters=p)
        m.submodules.values = values = BurstList(parameters=p)
        # What stands in the sequencer steers the ways between the parts until the last result.
        now = sequencer.now
        for source, sink in (
            (self.instructions, sequencer.instructions),
            (self.matrices, weights.matrices),
            (sequencer.commands, pipeline.commands),
            (sequencer.reads, memory.reads),
            (sequencer.writes, memory.writes),
            (sequencer.keys, keys.blocks),
            (sequencer.values, values.blocks),
            (sequencer.cache, cache.blocks),
            (sequencer.vectors, self.vector_reads.requests),
            (sequencer.stores, self.state_writes.requests),
            (keys.requests, self.key_reads.requests),
            (values.requests, self.value_reads.requests),
            (self.value_reads.words, pipeline.values),
            (weights.weights, pipeline.query_weights),
        ):
            connect_streams(m, source, sink)
        self._fetch(m, weights, pipeline)
        connect_streams(m, cache.cache_writes.requests, self.cache_writes.requests)
        connect_streams(m, cache.cache_writes.words, self.cache_writes.words)
        m.d.comb += [
            weights.clear_flags.eq(self.clear_flags),
            self.damage.eq(weights.damage),
            self.idle.eq(sequencer.idle),
            cache.wide.eq(now.block.wide),
            combiner.combine.eq(now.combine),
            combiner.lift.eq(now.lift),
            normaliser.tokens.eq(now.block.tokens),
            normaliser.epsilon.eq(now.epsilon),
        ]
        if not p.gated:
            m.d.comb += combiner.scale.eq(now.block.output_scale)
        # Of the four ends an instruction has one; a prediction needs none.
        queries = self._lead_rows(m, now, pipeline.keys, pipeline.rows)
        stored = self._read(
            m, memory.words, pipeline.tokens, combiner.old, normaliser.states, queries
        )
        self._lead_results(m, now, pipeline.results, combiner.results, cache.results)
        self._lead_vectors(m, now, normaliser.weights, pipeline.entries)
        self._write(m, now, memory.results, combiner.combined, normaliser.results)
        compared = self._compare(m, now, pipeline, sequencer)
        m.d.comb += sequencer.finished.eq(memory.written | cache.finished | stored | compared)
        return m

    def _fetch(self, m: Module, weights: WeightPath, pipeline: AttentionPipeline) -> None:
        """Let the weights' way have its ports."""
        names = ["table_reads", "packet_reads"]
        if self.parameters.biases:
            names.append("bias_reads")
            connect_streams(m, weights.biases, pipeline.biases)
        for name in names:
            inner, outer = getattr(weights, name), getattr(self, name)
            connect_streams(m, inner.requests, outer.requests)
            connect_streams(m, outer.words, inner.words)

    def _compare(self, m: Module, now: Any, pipeline: Any, sequencer: Sequencer) -> Value:
        """Look for the largest sum; return whether the last result of a block is dropped."""
        p, results = self.parameters, pipeline.results
        layout = p.prediction_layout
        m.submodules.argmax = argmax = RunningArgmax(
            lanes=HALVES, width=layout["sum"].width, number_bits=layout["token"].width
        )
        compares = (now.kind == Kind.GEMM) & (now.combine == Combine.COMPARE)
        # A block's last result leaves many cycles behind its sums: none is under way any more.
        m.d.comb += [
            argmax.values.eq(pipeline.sums.pair),
            argmax.strobe.eq(pipeline.sums.strobe & compares),
            argmax.clear.eq(sequencer.predicted),
            self.predictions.valid.eq(sequencer.predict),
            self.predictions.payload.token.eq(argmax.number),
            self.predictions.payload.sum.eq(argmax.largest),
            sequencer.predicted.eq(sequencer.predict & self.predictions.ready),
        ]
        return results.valid & results.payload.last & compares

    def _read(
        self, m: Module, words: Any, tokens: Any, old: Any, states: Any, queries: Any
    ) -> Value:
        """Hand words of the memory to who reads them; return whether the last is stored."""
        word, outside = words.payload, self.state_writes.words
        readers = {
            Reader.PIPELINE: tokens,
            Reader.COMBINER: old,
            Reader.NORM: states,
            Reader.OUTSIDE: outside,
            Reader.ROWS: queries,
        }
        for reader, sink in readers.items():
            chosen = word.reader == reader
            m.d.comb += sink.valid.eq(words.valid & chosen)
            with m.If(chosen):
                m.d.comb += words.ready.eq(sink.ready)
        m.d.comb += [
            *(sink.payload.last.eq(word.last) for sink in (tokens, queries)),
            *(
                token.eq(value[: token.shape().width])
                for sink in (tokens, queries)
                for token, value in zip(sink.payload.word, word.word, strict=True)
            ),
            old.payload.eq(word.word),
            states.payload["values"].eq(word.word),
            states.payload.last.eq(word.row_last),
            outside.payload.word.eq(word.word),
            outside.payload.last.eq(word.last),
        ]
        return outside.valid & outside.ready & outside.payload.last

    def _lead_rows(self, m: Module, now: Any, keys: Any, rows: Any) -> Any:
        """Let scores and probabilities come by the port of the keys; return where queries come."""
        words = self.key_reads.words
        queries = stream.Signature(self.parameters.attention.word_layout).create()
        values = (now.kind == Kind.GEMM) & (now.matrix == Matrix.VALUES)
        with m.If((now.kind == Kind.SOFTMAX) | values):
            connect_streams(m, words, rows)
        with m.Else():
            connect_streams(m, words, keys)
            connect_streams(m, queries, rows)
        return queries

    def _lead_results(self, m: Module, now: Any, results: Any, combined: Any, cached: Any) -> None:
        """Let a block's results go to the combiner, to the cache, or nowhere."""
        # What goes outside is combined with nothing.
        to_cache = ((now.kind == Kind.GEMM) & now.cached) | (now.kind == Kind.SOFTMAX)
        nowhere = now.combine == Combine.COMPARE
        m.d.comb += [
            combined.payload.eq(results.payload.word),
            cached.payload.eq(results.payload),
            combined.valid.eq(results.valid & ~to_cache & ~nowhere),
            cached.valid.eq(results.valid & to_cache),
            results.ready.eq(Mux(to_cache, cached.ready, combined.ready | nowhere)),
        ]

    def _lead_vectors(self, m: Module, now: Any, weights: Any, entries: Any) -> None:
        """Take a norm's weights and attention's exponentials out of the words that come in."""
        p, words = self.parameters, self.vector_reads.words
        m.submodules.table = table = Serialiser(shape=unsigned(EXPONENTIAL_BITS), items=p.head_size)
        # A word of the port has the hidden state's 24 bits an element; these need 16.
        group = table.groups
        m.d.comb += [
            weights.valid.eq(words.valid & (now.kind == Kind.NORM)),
            weights.payload.last.eq(words.payload.last),
            group.valid.eq(words.valid & ((now.kind == Kind.TPHS) | (now.kind == Kind.SOFTMAX))),
            group.payload.last.eq(words.payload.last),
            entries.valid.eq(table.items.valid),
            entries.payload.eq(table.items.payload["item"]),
            table.items.ready.eq(entries.ready),
        ]
        for i, value in enumerate(words.payload.word):
            m.d.comb += [
                weights.payload["item"][i].eq(value[: len(weights.payload["item"][i])]),
                group.payload["items"][i].eq(value[:EXPONENTIAL_BITS]),
            ]
        # Only one kind of vector is under way: whose it is, the instruction says.
        with m.Switch(now.kind):
            for kinds, sink in (((Kind.NORM,), weights), ((Kind.TPHS, Kind.SOFTMAX), group)):
                with m.Case(*kinds):
                    m.d.comb += words.ready.eq(sink.ready)

    def _write(self, m: Module, now: Any, results: Any, combined: Any, normalised: Any) -> None:
        """Write what comes in, is normalised, or is combined."""
        words = self.vector_reads.words
        with m.Switch(now.kind):
            with m.Case(Kind.LOAD):
                m.d.comb += [
                    results.valid.eq(words.valid),
                    results.payload.eq(words.payload.word),
                    words.ready.eq(results.ready),
                ]
            # A store writes nothing, and a GEMM that caches or compares has no write walk.
            for kinds, source in (
                ((Kind.NORM,), normalised),
                ((Kind.GEMM, Kind.TPHS), combined),
            ):
                with m.Case(*kinds):
                    connect_streams(m, source, results)
