"""MEADOW: decoder layers from packed weights, by GEMM and in the token-parallel pipeline.

Contains the accelerator of Sections 3 to 5 and Figure 2 of the paper: the tile, the weight
unpacker (WILU), the on-chip memory, norm and activation, and the instruction sequencer.
"""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, Value, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.control.activation_memory import ActivationMemory
from hdl.meadow.control.burst_list import BurstList
from hdl.meadow.control.cache_writer import CacheWriter
from hdl.meadow.control.combiner import Combiner, CombinerParameters
from hdl.meadow.control.normaliser import Normaliser
from hdl.meadow.control.sequencer import Sequencer
from hdl.meadow.control.weight_path import WeightPath
from hdl.meadow.instructions import Combine, Kind, Matrix, instruction_layout, matrix_layout
from hdl.meadow.parameters import MeadowParameters, Reader
from hdl.meadow.tile.hybrid_tile import HybridTile
from hdl.meadow.tile.pipelined_softmax import EXPONENTIAL_BITS
from hdl.meadow.tile.tile_parameters import HALVES
from hdl.memory.memory_fifo import MemoryFifo
from hdl.nonlinear.argmax import Argmax
from hdl.stream.connect import connect_streams
from hdl.stream.serialiser import Serialiser
from hdl.unit import Unit


@dataclass(frozen=True)
class Parts:
    """The parts through which operands and results of an instruction pass.

    Members
    -------
    sequencer : Sequencer
        Holds the current instruction, which selects the routes.
    memory : ActivationMemory
        Reads and writes words on chip.
    tile : HybridTile
        Computes GEMM and TPHS.
    group : MemoryFifo
        Holds the results of a group of tokens for the combiner.
    combiner : Combiner
        Combines results with old words.
    normaliser : Normaliser
        Normalises rows of hidden states.
    cache : CacheWriter
        Writes results to external memory.
    """

    sequencer: Sequencer
    memory: ActivationMemory
    tile: HybridTile
    group: MemoryFifo
    combiner: Combiner
    normaliser: Normaliser
    cache: CacheWriter


class Meadow(Unit):
    """Decoder layers and LM head in INT8, controlled by a stream of instructions.

    Hidden states are loaded once and stored once. All intermediate values of a layer are held in
    the activation memory; only new keys and values are written to external memory. No token is
    evicted. A layer is nine instructions: norm, keys and values by one GEMM each, attention
    (`TPHS`, which also computes the queries), its projection added to the hidden states, norm,
    `gate_proj`, `up_proj` multiplied by the activation of the gate (without a gate, one instruction
    less: `up_proj` and its activation), and `down_proj` added to the hidden states. A prefill block
    of many tokens and a decode step of one token use the same instructions. After the last layer, a
    norm and one GEMM for each slice of the LM head follow. These GEMMs discard their results
    (`COMPARE`) and update the argmax; `PREDICT` outputs it.

    Attention can also run stage by stage, as the paper's baseline does: queries by `GEMM`, scores
    by a GEMM of the queries with the cached keys, `SOFTMAX` of rows of scores, head outputs by a
    GEMM of the probabilities with the cached values. Scores and probabilities are then stored in
    external memory. Every value is equal to that of `TPHS`.

    Weights are fetched ahead of instructions. A separate stream describes the matrices. Packets of
    IDs are fetched, and the weight path replaces each ID by its chunk of weights from the matrix's
    unique matrix, until the tile's double buffers are full. Each matrix is read once per
    instruction, whatever the number of token groups.

    **Latency** of an instruction: about 20 cycles in addition to its work; of a block of attention:
    about 60 cycles and the work of three groups. **Throughput** a GEMM takes ``head_size / 2 *
    chunks`` cycles per group and tile, as in `HybridTile`, or the time to read its weights,
    whichever is longer; at most ``head_size`` weights per cycle.

    **Numerics** those of `HybridTile`, `Normaliser` and `Combiner`: linear layers are exact
    sums of INT8 products, requantised to INT8 or 16 bits; hidden states have 24 bits. The argmax
    compares the exact sums; ties resolve to the lowest index.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions of the model, the tile and the memories.

    Members
    -------
    instructions : In(stream)
        `kind`, and for a GEMM its `matrix`. `block` is a command of `HybridTile`; `tokens`
        is always valid, and the sequencer derives `mode` from kind and matrix. Activation memory:
        `source` and `words` locate the rows that are read, one per token; `target` and `stride`
        locate the rows that are written. `combine` and `lift` as in `Combiner`. `cached` writes the
        results of a GEMM to `cache_writes`, one head per tile, instead of the activation memory;
        scores are written so too. Without a gate, `block.output_scale` is the `scale` of
        `Combiner`. External addresses: `vectors` of hidden states, a norm's weights, or the table
        of exponentials; `keys` and `values` of the first key/value head. There are `shared`
        key/value heads, `spacing` apart. Cached results are written to `values`. Rows of scores and
        of probabilities are read from `keys`: then `words` is the length of a row that is read,
        `stride` that of a row that is written, and the heads are contiguous; with `wide` a
        probability has two bytes. `epsilon` as in `RowScaler`. A GEMM with `COMPARE` has one token
        and no `cached`.
    matrices : In(stream)
        As in `WeightPath`: one description for each `TPHS` and each `GEMM` with weights, in the
        order of the instructions.
    vector_reads : Out(port)
        Words of 24-bit elements: hidden states; a norm's weights and exponentials in the lower 16
        bits.
    state_writes : Out(port)
        Hidden states that `STORE` writes.
    key_reads, value_reads, cache_writes : Out(port)
        The key/value cache, one word per head and position; rows of scores and probabilities.
    table_reads, packet_reads : Out(port)
        Unique matrices and packets of the weights.
    bias_reads : Out(port)
        Biases of the linear layers; present with the parameter `biases`.
    predictions : Out(stream)
        One item per `PREDICT`: the `token` with the largest `sum`, which is the index of an output
        among all outputs since the previous prediction. Rows that pad the last tile of the LM head
        must repeat its first row; ties then resolve to the first row.
    idle : Out(1)
        No instruction is in progress.
    errors, clear_flags : Out, In
        As in `WeightPath`.

    Raises
    ------
    ValueError
        If a rule of `MeadowParameters` is broken.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        cached = p.element.word_layout
        biases = {"bias_reads": Out(p.reads(p.bias_layout))} if p.biases else {}
        super().__init__(
            {
                "instructions": In(stream.Signature(instruction_layout(p))),
                "matrices": In(stream.Signature(matrix_layout(p))),
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
                "errors": Out(p.unpacker.result_layout),
                "clear_flags": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the parts; the current instruction selects the routes between them."""
        m = Module()
        p = self.parameters
        m.submodules.sequencer = sequencer = Sequencer(parameters=p)
        m.submodules.weights = weights = WeightPath(parameters=p)
        m.submodules.memory = memory = ActivationMemory(parameters=p)
        m.submodules.tile = tile = HybridTile(parameters=p.tile)
        dimensions = CombinerParameters(
            size=p.head_size, units=p.activation_units, activation=p.activation, gated=p.gated
        )
        m.submodules.combiner = combiner = Combiner(parameters=dimensions)
        m.submodules.normaliser = normaliser = Normaliser(parameters=p)
        m.submodules.cache = cache = CacheWriter(parameters=p)
        m.submodules.keys = keys = BurstList(parameters=p)
        m.submodules.values = values = BurstList(parameters=p)
        # All lanes output their words of a group back to back; the combiner takes them one by one.
        m.submodules.group = group = MemoryFifo(
            shape=p.tile.result_word_layout, depth=max(p.lanes, 2)
        )
        # The sequencer holds the current instruction until its last result, so that it can select
        # the routes between the parts.
        now = sequencer.now
        for source, sink in (
            (self.instructions, sequencer.instructions),
            (self.matrices, weights.matrices),
            (sequencer.commands, tile.commands),
            (sequencer.reads, memory.reads),
            (sequencer.writes, memory.writes),
            (sequencer.keys, keys.blocks),
            (sequencer.values, values.blocks),
            (sequencer.cache, cache.blocks),
            (sequencer.vectors, self.vector_reads.requests),
            (sequencer.stores, self.state_writes.requests),
            (keys.requests, self.key_reads.requests),
            (values.requests, self.value_reads.requests),
            (self.value_reads.words, tile.values),
            (weights.weights, tile.weights),
            (group.sink, combiner.results),
        ):
            connect_streams(m, source, sink)
        self._fetch(m, weights, tile)
        connect_streams(m, cache.cache_writes.requests, self.cache_writes.requests)
        connect_streams(m, cache.cache_writes.words, self.cache_writes.words)
        m.d.comb += [
            weights.clear_flags.eq(self.clear_flags),
            self.errors.eq(weights.errors),
            self.idle.eq(sequencer.idle),
            cache.wide.eq(now.block.wide),
            combiner.combine.eq(now.combine),
            combiner.lift.eq(now.lift),
            normaliser.tokens.eq(now.block.tokens),
            normaliser.epsilon.eq(now.epsilon),
        ]
        if not p.gated:
            m.d.comb += combiner.scale.eq(now.block.output_scale)
        # Each instruction ends by exactly one of four events; a prediction needs none.
        parts = Parts(sequencer, memory, tile, group, combiner, normaliser, cache)
        queries = self._lead_rows(m, parts)
        stored = self._read(m, parts, queries)
        self._lead_results(m, parts)
        self._lead_vectors(m, parts)
        self._write(m, parts)
        compared = self._compare(m, parts)
        m.d.comb += sequencer.finished.eq(memory.written | cache.finished | stored | compared)
        return m

    def _fetch(self, m: Module, weights: WeightPath, tile: HybridTile) -> None:
        """Connect the weight path to the external ports."""
        names = ["table_reads", "packet_reads"]
        if self.parameters.biases:
            names.append("bias_reads")
            connect_streams(m, weights.biases, tile.biases)
        for name in names:
            inner, outer = getattr(weights, name), getattr(self, name)
            connect_streams(m, inner.requests, outer.requests)
            connect_streams(m, outer.words, inner.words)

    def _compare(self, m: Module, parts: Parts) -> Value:
        """Update the argmax; return whether the last result of a block is discarded."""
        sequencer, now = parts.sequencer, parts.sequencer.now
        results, sums = parts.tile.results, parts.tile.sums
        m.submodules.argmax = argmax = Argmax(parameters=self.parameters.argmax)
        slices, found = argmax.slices, argmax.results.payload
        compares = (now.kind == Kind.GEMM) & (now.combine == Combine.COMPARE)
        # The last result of a block is output many cycles after its sums, so that the argmax is
        # complete when the instruction ends.
        begins = Signal(init=1)
        with m.If(sequencer.predicted):
            m.d.sync += begins.eq(1)
        with m.Elif(slices.valid):
            m.d.sync += begins.eq(0)
        m.d.comb += [
            slices.valid.eq(sums.strobe & compares),
            slices.payload["values"].eq(sums.pair),
            slices.payload.count.eq(HALVES),
            slices.payload.first.eq(begins),
            argmax.results.ready.eq(1),
            self.predictions.valid.eq(sequencer.predict),
            self.predictions.payload.token.eq(found.index),
            self.predictions.payload.sum.eq(found.value),
            sequencer.predicted.eq(sequencer.predict & self.predictions.ready),
        ]
        return results.valid & results.payload.last & compares

    def _read(self, m: Module, parts: Parts, queries: stream.Interface) -> Value:
        """Route words of the memory to their reader; return whether the last word is stored."""
        words, outside = parts.memory.words, self.state_writes.words
        word, tokens = words.payload, parts.tile.tokens
        old, states = parts.combiner.old, parts.normaliser.states
        readers = {
            Reader.TILE: tokens,
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

    def _lead_rows(self, m: Module, parts: Parts) -> stream.Interface:
        """Route scores and probabilities from the key port; return the stream of queries."""
        words, now = self.key_reads.words, parts.sequencer.now
        keys, rows = parts.tile.keys, parts.tile.rows
        queries = stream.Signature(self.parameters.tile.word_layout).create()
        values = (now.kind == Kind.GEMM) & (now.matrix == Matrix.VALUES)
        with m.If((now.kind == Kind.SOFTMAX) | values):
            connect_streams(m, words, rows)
        with m.Else():
            connect_streams(m, words, keys)
            connect_streams(m, queries, rows)
        return queries

    def _lead_results(self, m: Module, parts: Parts) -> None:
        """Route the results of a block to the combiner or to the cache, or discard them."""
        now, results = parts.sequencer.now, parts.tile.results
        combined, cached = parts.group.source, parts.cache.results
        # Results for external memory bypass the combiner.
        to_cache = ((now.kind == Kind.GEMM) & now.cached) | (now.kind == Kind.SOFTMAX)
        nowhere = now.combine == Combine.COMPARE
        m.d.comb += [
            combined.payload.eq(results.payload.word),
            cached.payload.eq(results.payload),
            combined.valid.eq(results.valid & ~to_cache & ~nowhere),
            cached.valid.eq(results.valid & to_cache),
            results.ready.eq(Mux(to_cache, cached.ready, combined.ready | nowhere)),
        ]

    def _lead_vectors(self, m: Module, parts: Parts) -> None:
        """Extract a norm's weights and the exponentials from the words that are read."""
        p, words, now = self.parameters, self.vector_reads.words, parts.sequencer.now
        weights, entries = parts.normaliser.weights, parts.tile.entries
        m.submodules.table = table = Serialiser(shape=unsigned(EXPONENTIAL_BITS), items=p.head_size)
        # The port has 24 bits per element, as hidden states need; these elements have 16.
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
        # Only one kind of vector is in flight; the instruction determines its consumer.
        with m.Switch(now.kind):
            for kinds, sink in (((Kind.NORM,), weights), ((Kind.TPHS, Kind.SOFTMAX), group)):
                with m.Case(*kinds):
                    m.d.comb += words.ready.eq(sink.ready)

    def _write(self, m: Module, parts: Parts) -> None:
        """Write loaded, normalised or combined words to the activation memory."""
        words, results = self.vector_reads.words, parts.memory.results
        with m.Switch(parts.sequencer.now.kind):
            with m.Case(Kind.LOAD):
                m.d.comb += [
                    results.valid.eq(words.valid),
                    results.payload.eq(words.payload.word),
                    words.ready.eq(results.ready),
                ]
            # A store writes nothing here, and a GEMM that caches or compares requests no addresses.
            for kinds, source in (
                ((Kind.NORM,), parts.normaliser.results),
                ((Kind.GEMM, Kind.TPHS), parts.combiner.combined),
            ):
                with m.Case(*kinds):
                    connect_streams(m, source, results)
