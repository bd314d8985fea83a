"""MEADOW: decoder layers from packed weights, by GEMM and by TPHS.

Contains the accelerator of Sections 3 to 5 and Figure 2 of the paper: the tile, the weight
unpacker (WILU), the on-chip memory, norm and activation, and the instruction sequencer.
"""

from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.control.activation_memory import ActivationMemory
from hdl.meadow.control.burst_list import BurstList
from hdl.meadow.control.cache_writer import CacheWriter
from hdl.meadow.control.combiner import Combiner, CombinerParameters
from hdl.meadow.control.normaliser import Normaliser
from hdl.meadow.control.predictor import Predictor
from hdl.meadow.control.result_router import ResultRouter
from hdl.meadow.control.row_router import RowRouter
from hdl.meadow.control.sequencer import Sequencer
from hdl.meadow.control.vector_router import VectorRouter
from hdl.meadow.control.weight_path import WeightPath
from hdl.meadow.instructions import instruction_layout, matrix_layout
from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.hybrid_tile import HybridTile
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class Meadow(Unit):
    """Decoder layers and LM head in INT8, controlled by a stream of instructions.

    Hidden states are loaded once, and stored once unless the LM head follows. All intermediate
    values of a layer are held in the activation memory; only new keys and values are written to
    external memory. No token is evicted. A layer is nine instructions: norm, keys and values by one
    GEMM each, attention (`TPHS`, which also computes the queries), its projection added to the
    hidden states, norm, `gate_proj`, `up_proj` multiplied by the activation of the gate (without a
    gate, one instruction less: `up_proj` and its activation), and `down_proj` added to the hidden
    states. A prefill block of many tokens and a decode step of one token use the same instructions.
    After the last layer, a norm and one GEMM for each slice of the LM head follow. These GEMMs
    discard their results (`COMPARE`) and update the argmax; `PREDICT` outputs it and clears it. The
    host makes the program (`Program`). No port has settings: scales, shifts and addresses are
    fields of instructions and of matrices.

    Attention can also run stage by stage, as the paper's baseline does: queries by `GEMM`, scores
    by a GEMM of the queries with the cached keys, `SOFTMAX` of rows of scores, head outputs by a
    GEMM of the probabilities with the cached values. Scores and probabilities are then stored in
    external memory. Every value is equal to that of `TPHS`.

    Weights are fetched ahead of instructions. A separate stream describes the matrices, which the
    host has packed. Packets of IDs are fetched, and the weight path replaces each ID by its chunk
    of weights from the matrix's unique matrix, until the tile's double buffers are full. The unique
    matrix is loaded before, `unpacker.rows` chunks per cycle, while the previous matrix streams.
    Each matrix is read once per instruction, whatever the number of token groups.

    **Latency** of an instruction: about 20 cycles in addition to its work; of a block of attention:
    about 60 cycles, and the time of three groups of tokens in the pipeline. **Throughput** a GEMM
    takes ``head_size / 2 * slice_words`` cycles per group of tokens and output tile, or the time to
    read its weights, whichever is longer. Each of the `unpackers` outputs at most ``head_size``
    weights per cycle, and at most `MeadowParameters.unpacker_items`. An output tile is
    ``head_size`` outputs, which two halves of a lane's elements compute in pairs; `slice_words` is
    the number of words of a row that one element multiplies, ``inputs / (slices * head_size)``.

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
        An operation, `kind`. `block` is a command of `HybridTile`: every kind uses its `tokens`;
        its `context` counts the cached tokens and those of the block, which have the last
        positions; the sequencer derives its `mode`. Of a GEMM, `matrix` is the right-hand operand,
        `combine` and `lift` are as in `Combiner`, and without a gate ``block.output_scale`` is the
        `scale` of `Combiner`. A GEMM with `COMPARE` has one token and no `cached`.

        Activation memory: `source` and `words` locate the rows that are read, one per token;
        `target` and `stride` locate the rows that are written. With token exponents, `combined`
        specifies that the combiner wrote the rows that a GEMM of weights reads, and not the
        normaliser.

        External memory: `vector_address` locates hidden states, a norm's weights, or the table of
        exponentials. `key_address` and `value_address` locate the first key/value head; `shared` is
        the number of key/value heads, which are `spacing` words apart. With `cached`, the results
        of a GEMM are written to `cache_writes` from `value_address` on, one head per output tile,
        and not to the activation memory. `epsilon` is as in `RowScaler`.

        Attention stage by stage: scores and probabilities are written from `value_address` on, and
        read from `key_address` on. `words` is then the length in words of a row that is read,
        `stride` that of a row that is written, and the heads are contiguous. With `wide` a
        probability has two bytes.
    matrices : In(stream)
        As in `WeightPath`: one description for each `TPHS` and each `GEMM` with weights, in the
        order of the instructions.
    vector_reads : Out(port)
        Words of ``head_size`` elements of 24 bits: hidden states, each token's elements in order; a
        norm's weights and exponentials in the lower 16 bits. Addresses of every port count words.
    state_writes : Out(port)
        Hidden states that `STORE` writes, in the same form.
    key_reads, value_reads, cache_writes : Out(port)
        The key/value cache, one word of ``head_size`` INT8 elements per head and position; rows of
        scores and probabilities. A request must see all words of earlier `cache_writes`.
    table_reads, packet_reads : Out(port)
        Unique matrices and packets of the weights; with several `unpackers` the ports
        `packet_reads_0`, `packet_reads_1`, ...
    bias_reads : Out(port)
        Biases of the linear layers; present with the parameter `biases`.
    scale_reads : Out(port)
        Scale and shift of each output tile; present with the parameter `tile_scales`.
    predictions : Out(stream)
        One item per `PREDICT`: the largest exact `sum` since the previous prediction, biases
        included, and its `token`, the index among all outputs of these GEMMs. Sums are compared
        before any scale, so that the LM head must have one scale. Outputs that pad the last output
        tile must repeat the first output of the LM head; ties then resolve to token 0.
    idle : Out(1)
        No instruction is in progress.
    errors, clear_flags : Out, In
        `errors`: errors of all matrices since `clear_flags`. `table`: its unique matrix; `packets`:
        `mode`, `range`, `truncated`, `excess`, as in `WeightUnpacker`.

    Raises
    ------
    ValueError
        If a rule of `MeadowParameters` is broken.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        cached = p.element.word_layout
        biases = {"bias_reads": Out(p.reads(p.bias_layout))} if p.biases else {}
        scales = {"scale_reads": Out(p.reads(p.factor_layout))} if p.tile_scales else {}
        super().__init__(
            {
                "instructions": In(stream.Signature(instruction_layout(p))),
                "matrices": In(stream.Signature(matrix_layout(p))),
                "vector_reads": Out(p.reads(p.state_layout)),
                "state_writes": Out(p.writes(p.state_layout)),
                "key_reads": Out(p.reads(cached)),
                "value_reads": Out(p.reads(cached)),
                "cache_writes": Out(p.writes(cached)),
                "table_reads": Out(p.reads(p.unpacker.rows_layout)),
                **{name: Out(p.reads(p.unpacker.unpacker.packet_bits)) for name in p.packet_ports},
                **biases,
                **scales,
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
            size=p.head_size,
            units=p.activation_units,
            activation=p.activation,
            gated=p.gated,
            wide=p.token_exponents,
        )
        m.submodules.combiner = combiner = Combiner(parameters=dimensions)
        m.submodules.normaliser = normaliser = Normaliser(parameters=p)
        m.submodules.predictor = predictor = Predictor(parameters=p)
        m.submodules.cache = cache = CacheWriter(parameters=p)
        m.submodules.keys = keys = BurstList(parameters=p)
        m.submodules.values = values = BurstList(parameters=p)
        m.submodules.vector_router = vectors = VectorRouter(parameters=p)
        m.submodules.row_router = rows = RowRouter(parameters=p)
        m.submodules.result_router = results = ResultRouter(parameters=p)
        # All lanes output their words of a group of tokens back to back, and stall until the last
        # one is taken; the combiner and external memory take several cycles per word.
        m.submodules.group = group = MemoryFifo(shape=p.tile.result_layout, depth=max(p.lanes, 2))
        ready_weights = weights.weights
        if p.weights_ahead:
            m.submodules.weights_ahead = ahead = MemoryFifo(
                shape=p.tile.weight_port_layout, depth=p.weights_ahead
            )
            connect_streams(m, weights.weights, ahead.source)
            ready_weights = ahead.sink
        ports = [
            (weights.table_reads, self.table_reads),
            *((getattr(weights, name), getattr(self, name)) for name in p.packet_ports),
            *([(weights.bias_reads, self.bias_reads)] if p.biases else []),
            *([(weights.scale_reads, self.scale_reads)] if p.tile_scales else []),
        ]
        for source, sink in (
            # Instructions and their requests.
            (self.instructions, sequencer.instructions),
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
            # Weights, which are fetched ahead of the instructions.
            (self.matrices, weights.matrices),
            (ready_weights, tile.weights),
            *([(weights.biases, tile.biases)] if p.biases else []),
            *([(weights.scales, tile.scales)] if p.tile_scales else []),
            *((inner.requests, outer.requests) for inner, outer in ports),
            *((outer.words, inner.words) for inner, outer in ports),
            # Vectors: hidden states, norm weights, tables of exponentials.
            (self.vector_reads.words, vectors.words),
            (vectors.loaded, memory.loaded),
            (vectors.weights, normaliser.weights),
            (vectors.entries, tile.entries),
            # Operands and results of the activation memory.
            (memory.tokens, tile.tokens),
            (memory.old, combiner.old),
            (memory.states, normaliser.states),
            (memory.stored, self.state_writes.words),
            (normaliser.results, memory.normalised),
            (combiner.combined, memory.combined),
            # Operands of attention.
            (self.key_reads.words, rows.words),
            (memory.queries, rows.queries),
            (rows.keys, tile.keys),
            (rows.rows, tile.rows),
            (self.value_reads.words, tile.values),
            # Results.
            (tile.results, group.source),
            (group.sink, results.results),
            (results.combined, combiner.results),
            (results.cached, cache.results),
            (cache.cache_writes.requests, self.cache_writes.requests),
            (cache.cache_writes.words, self.cache_writes.words),
            (predictor.predictions, self.predictions),
        ):
            connect_streams(m, source, sink)
        # The sequencer holds the current instruction until its last result, so that it can select
        # the routes between the parts.
        now = sequencer.now
        m.d.comb += [
            weights.clear_flags.eq(self.clear_flags),
            self.errors.eq(weights.errors),
            self.idle.eq(sequencer.idle),
            vectors.kind.eq(now.kind),
            rows.now.eq(now),
            results.now.eq(now),
            predictor.now.eq(now),
            predictor.sums.eq(tile.sums),
            predictor.predict.eq(sequencer.predict),
            sequencer.predicted.eq(predictor.predicted),
            cache.wide.eq(now.block.wide),
            combiner.combine.eq(now.combine),
            combiner.lift.eq(now.lift),
            normaliser.tokens.eq(now.block.tokens),
            normaliser.epsilon.eq(now.epsilon),
            # Each instruction but `PREDICT` ends by exactly one of four events. The sequencer ends
            # `PREDICT` by `predicted`.
            sequencer.finished.eq(
                memory.written | memory.emptied | cache.finished | results.discarded
            ),
        ]
        if not p.gated:
            m.d.comb += combiner.scale.eq(now.block.output_scale)
        return m
