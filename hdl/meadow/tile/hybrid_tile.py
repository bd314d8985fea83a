"""MEADOW's tile (Figure 2 (a)): hybrid PEs and softmax modules, which run GEMM mode and TPHS."""

from collections.abc import Sequence

from amaranth.hdl import Module, Signal, Value, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.tile.operand_buffer import OperandBuffer
from hdl.meadow.tile.pass_sequencer import Passed
from hdl.meadow.tile.pipelined_softmax import EXPONENTIAL_BITS
from hdl.meadow.tile.result_merger import ResultMerger
from hdl.meadow.tile.row_distributor import RowDistributor
from hdl.meadow.tile.tile_parameters import HALVES, BlockMode, TileParameters
from hdl.meadow.tile.token_store import TokenStore
from hdl.meadow.tile.tphs_pipeline import TphsPipeline
from hdl.stream.collector import Collector
from hdl.stream.connect import connect_handshake, connect_streams, fork_handshake
from hdl.unit import Unit


class HybridTile(Unit):
    """Lanes of hybrid PEs that run a linear layer in GEMM mode, or attention by TPHS (Section 4).

    ===================================  =======================================================
    in the paper                         here
    ===================================  =======================================================
    TPHS pipeline of a token, Figure 3   a lane, `TphsPipeline`
    stage Q, and GEMM mode               `GemmStage`: ``2 * slices`` parallel PEs of a lane
    parallel PE, Figure 2 (c)            `ParallelProcessingElement`; also stage QK of a lane
    pipelined SM module, Figure 2 (d)    `PipelinedSoftmax`: stages MAX, EXP, DIV of a lane
    broadcasting PE, Figure 2 (c)        `BroadcastingProcessingElement`: stage SM x V of a lane
    Input BRAM                           `TokenStore`
    NoC                                  multicast of operands to all lanes, without arbitration
    ===================================  =======================================================

    ============  ================================  ==========================================
    mode          stages of a lane                  operands, results
    ============  ================================  ==========================================
    ``GEMM``      Q alone                           tokens, weights; a linear layer's outputs
    ``TPHS``      Q, QK, MAX, EXP, DIV, SM x V      tokens, weights, keys, values; head outputs
    ``SCORES``    QK alone                          queries, keys; scores
    ``SOFTMAX``   MAX, EXP, DIV                     scores; probabilities
    ``OUTPUTS``   SM x V alone                      probabilities, values; head outputs
    ============  ================================  ==========================================

    GEMM mode computes a linear layer of any number of outputs, in output tiles of `size` outputs:
    the key, value and output projections and the feed-forward layers, each as a command of its own.

    TPHS computes attention. It processes heads sequentially, and in each head groups of tokens, one
    token per lane. Queries, scores and probabilities stay on chip. The stages form a pipeline:
    while one group's queries are computed, the previous group's queries are multiplied by the keys,
    and so on. Valid signals chain the stages, so that each stage takes only the cycles of its own
    work.

    The unit reads the tokens of a block once and stores them. It reads the weights of a head or an
    output tile once, and keys and values once for all query heads that share them.

    The last three modes run one stage of attention at a time, as the paper's GEMM baseline does:
    scores by a GEMM of queries with keys, softmax of rows of scores, outputs by a GEMM of
    probabilities with values. Intermediate values are output as `results` and input again as
    `rows`.

    **Latency** three groups of tokens and about 60 cycles.

    **Throughput** ``max(F, Qc)`` cycles per group. F is the context, or with `skip` the part of it
    that a pass needs; Qc = ``size / 2 * slice_words``. A block of H heads takes ``(H *
    ceil(tokens / lanes) + 3) * max(F, Qc)`` cycles and about 60 more, after the tokens of its first
    group and the weights of its first head have arrived. Each input port accepts one word per
    cycle, and that of the weights `weight_words` words.

    **Numerics** queries: exact sums plus biases, rotated with rounding to nearest by sine and
    cosine of 15 fraction bits, requantised to INT8. Scores: exact dot products, requantised to
    INT8. Softmax: as `PipelinedSoftmax`. Outputs: exact sums of INT8 values times probabilities,
    requantised to INT8. Requantisation is ``sum * scale / 2**shift``, rounded half to even and
    clamped. `skip` does not change any value.

    With the parameter `token_exponents`, the elements of a token are in steps that are smaller by
    two to the power of its exponent. The shift of its results of stage Q is larger by the exponent;
    the sum of both is at most 63. Biases have the steps of `BASE_EXPONENT` and are shifted to those
    of the token, rounded down. Outputs are requantised to 16 bits, since the exponent of a token's
    outputs depends on all heads.

    Parameters
    ----------
    parameters : TileParameters
        Dimensions of the lanes and the largest block.

    Members
    -------
    commands : In(stream)
        A block. `mode` is a `BlockMode`. `tokens` tokens of `slice_words` words per slice have the
        last positions of `context`. `heads` counts query heads, of which `members` neighbours share
        keys and values, or output tiles of a GEMM. `rotate` applies the rotary embedding to queries
        or GEMM results. `wide` selects results of 16 bits instead of 8 for a GEMM of weights, and
        probabilities of two bytes for `OUTPUTS`. `causal` masks keys after a token's own position.
        `skip` (only `TPHS`) omits keys that no token of a group attends to. Results of stage Q
        (``gemm``, unless `tile_scales`), scores and outputs have a `scale` and a `shift` each.
        `tokens` is at most `context`, which is at most `slots`; `heads` is a multiple of `members`.
    entries : In(stream)
        A table of 256 exponentials for each block of attention or softmax.
    tokens : In(stream)
        The tokens of each block, ``slices * slice_words`` words each: word i is word i // slices of
        slice i % slices. The tokens of one lane have at most `lane_words` words per slice. With
        the parameter `token_exponents`, each word has the `exponent` of its token.
    weights : In(stream)
        For each head or output tile, for each pair of outputs, for each word of a slice: for both
        outputs of the pair, one word per slice, `weight_words` words per item; `last` with the last
        words of a head.
    keys, values : In(stream)
        For each key/value head, one word per token of the context; `last` with the last word of a
        head.
    biases : In(stream)
        Present with the parameter `biases`: for each head or output tile its biases in steps of the
        sums, one pair of neighbouring outputs per item; `last` with the last pair of a head.
    scales : In(stream)
        Present with the parameter `tile_scales`: for each head or output tile the scale and shift
        of its results; the shift is at most ``sum_bits + 15``, and `last` is 1.
    rows : In(stream)
        Operands of a stage that runs alone, in the order of the results: rotated INT8 queries, INT8
        scores, or probabilities. A probability of two bytes occupies two words, the one of the
        lower bytes first. `last` is ignored.
    results : Out(stream)
        For each head or output tile, one word per token; `last` with the last word of a block.
        Scores and probabilities: for each head, for each group of tokens, for each word of a row,
        that word of each token of the group; zeros pad the last word of a row.
    sums : Out(struct)
        The exact sums of the first lane before rounding: each `pair` of neighbouring outputs with a
        `strobe`, many cycles before the word that contains them. No backpressure.

    Raises
    ------
    ValueError
        If a rule of `TileParameters` is broken.
    """

    def __init__(self, *, parameters: TileParameters) -> None:
        self.parameters = p = parameters
        words = ("keys", "values", "rows")
        biases = {"biases": In(stream.Signature(p.bias_layout))} if p.biases else {}
        scales = {"scales": In(stream.Signature(p.scale_layout))} if p.tile_scales else {}
        super().__init__(
            {
                "commands": In(stream.Signature(p.command_layout)),
                "entries": In(stream.Signature(unsigned(EXPONENTIAL_BITS))),
                "tokens": In(stream.Signature(p.token_layout)),
                "weights": In(stream.Signature(p.weight_port_layout)),
                **{name: In(stream.Signature(p.word_layout)) for name in words},
                **biases,
                **scales,
                "results": Out(stream.Signature(p.result_layout)),
                "sums": Out(p.sums_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect buffers and lanes; accept one block at a time."""
        m = Module()
        p = self.parameters
        # A register holds the command; all stages read it until the block ends.
        command, busy, start = Signal(p.command_layout, reset_less=True), Signal(), Signal()
        taken = self.commands.valid & self.commands.ready
        # The start follows the command by one cycle, so that no stage reads the old command.
        m.d.comb += self.commands.ready.eq(~busy & ~start)
        m.d.sync += start.eq(taken)
        with m.If(taken):
            m.d.sync += [command.eq(self.commands.payload), busy.eq(1)]

        lanes = [TphsPipeline(parameters=p) for _ in range(p.lanes)]
        m.submodules.tokens = store = TokenStore(parameters=p)
        m.submodules.rows = distributor = RowDistributor(parameters=p)
        m.submodules.merger = merger = ResultMerger(parameters=p)
        mode = command.mode
        tphs = mode == BlockMode.TPHS
        weighs = tphs | (mode == BlockMode.GEMM)
        m.d.comb += [
            *(part.command.eq(command) for part in (store, distributor, merger)),
            # Blocks with weights read tokens; stages that run alone read rows.
            store.start.eq(start & weighs),
            distributor.start.eq(start & ~weighs),
        ]
        connect_streams(m, self.tokens, store.tokens)
        connect_streams(m, self.rows, distributor.rows)
        connect_streams(m, merger.results, self.results)
        for number, lane in enumerate(lanes):
            m.submodules[f"lane_{number}"] = lane
            # The lane number is an input and not a parameter, so that all lanes are one module.
            m.d.comb += [lane.lane.eq(number), lane.command.eq(command)]
            name = f"lane_{number}"
            connect_streams(m, getattr(store, name), lane.inputs)
            connect_streams(m, getattr(distributor, name), lane.rows)
            connect_streams(m, lane.outputs, getattr(merger, name))

        # Each operand has a double buffer, which all lanes read together.
        keys, weights, biases = Passed.KEYS, Passed.WEIGHTS, Passed.BIASES
        operands = [
            ("keys", keys, self.keys, tphs | (mode == BlockMode.SCORES)),
            ("values", keys, self.values, tphs | (mode == BlockMode.OUTPUTS)),
            ("weights", weights, self._collected(m, self.weights), weighs),
            *([("biases", biases, self.biases, weighs)] if p.biases else []),
            *([("scales", Passed.SCALES, self.scales, weighs)] if p.tile_scales else []),
        ]
        for name, over, source, wanted in operands:
            m.submodules[f"{name}_buffer"] = buffer = OperandBuffer(parameters=p, over=over)
            # A pass over a block that never arrives would not end.
            m.d.comb += [buffer.command.eq(command), buffer.start.eq(start & wanted)]
            connect_streams(m, source, buffer.source)
            self._multicast(m, buffer.sink, [getattr(lane, name) for lane in lanes])
        self._multicast(m, self.entries, [lane.entries for lane in lanes])
        m.d.comb += self.sums.eq(lanes[0].sums)
        with m.If(merger.done):
            m.d.sync += busy.eq(0)
        return m

    def _collected(self, m: Module, weights: stream.Interface) -> stream.Interface:
        """Collect the weights of all PEs of a lane that one cycle uses."""
        p = self.parameters
        collected = stream.Signature(p.weights_layout).create()
        if p.weight_words == HALVES * p.slices:
            connect_handshake(m, weights, collected)
            m.d.comb += Value.cast(collected.payload).eq(Value.cast(weights.payload))
            return collected
        m.submodules.weights = words = Collector(
            shape=weights.payload.word.shape(), items=HALVES * p.slices // p.weight_words
        )
        m.d.comb += [
            words.items.valid.eq(weights.valid),
            words.items.payload["item"].eq(weights.payload.word),
            words.items.payload.last.eq(weights.payload.last),
            weights.ready.eq(words.items.ready),
            collected.valid.eq(words.groups.valid),
            Value.cast(collected.payload).eq(Value.cast(words.groups.payload)),
            words.groups.ready.eq(collected.ready),
        ]
        return collected

    def _multicast(
        self, m: Module, source: stream.Interface, sinks: Sequence[stream.Interface]
    ) -> None:
        """Multicast each word to all lanes."""
        # Each lane takes the word when it is ready; the next word follows when all have taken it.
        m.d.comb += source.ready.eq(fork_handshake(m, source.valid, sinks))
        m.d.comb += [sink.payload.eq(source.payload) for sink in sinks]
