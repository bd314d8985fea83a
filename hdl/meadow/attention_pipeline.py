"""Token lanes in both dataflows of MEADOW: attention by TPHS, and every linear layer by GEMM."""

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal, Value, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.tile.attention_parameters import HALVES, AttentionParameters, BlockMode
from hdl.meadow.tile.block_buffer import BlockBuffer
from hdl.meadow.tile.group_counter import group_counter
from hdl.meadow.tile.pass_sequencer import Passed, PassSequencer
from hdl.meadow.tile.pipelined_softmax import EXPONENTIAL_BITS
from hdl.meadow.tile.row_dealer import RowDealer
from hdl.meadow.tile.token_lane import TokenLane
from hdl.meadow.tile.token_store import TokenStore
from hdl.stream.collector import Collector
from hdl.stream.connect import connect_streams, fork_handshake
from hdl.unit import Unit


class AttentionPipeline(Unit):
    """Token lanes that run TPHS or GEMM mode: attention (Section 4), or a linear layer of a block.

    ============  ================================  ==========================================
    mode          stages of a lane                  operands, results
    ============  ================================  ==========================================
    ``GEMM``      Q alone (`GemmStage`)             tokens, weights; a linear layer's outputs
    ``TPHS``      Q, QK, MAX, EXP, DIV, SM x V      tokens, weights, keys, values; head outputs
    ``SCORES``    QK alone                          queries, keys; scores
    ``SOFTMAX``   MAX, EXP, DIV                     scores; probabilities
    ``OUTPUTS``   SM x V alone                      probabilities, values; head outputs
    ============  ================================  ==========================================

    The unit reads the tokens of a block once and stores them. It processes heads sequentially, and
    in each head groups of tokens, one token per lane. It reads a head's query weights once, and
    keys and values once for all query heads that share them. Queries, scores and probabilities stay
    on chip. The stages form a pipeline: while one group's queries are computed, the previous
    group's queries are multiplied by the keys, and so on. Valid signals chain the stages, so that
    each stage takes only the cycles of its own work.

    The elements of the first stage (Q) also run GEMM mode: a linear layer of any number of outputs,
    in tiles of `size` outputs, whose results are output directly. So the key, value and output
    projections and the feed-forward layers run here too, each as a command of its own.

    The stages of attention can also run one at a time, as in the paper's baseline: scores by a GEMM
    of queries with keys, softmax of rows of scores, outputs by a GEMM of probabilities with values.
    Intermediate values are then output as `results` and input again as `rows`.

    **Latency** three groups of tokens and about 60 cycles.

    **Throughput** ``max(F, Qc)`` cycles per group. F is the context, or with `skip` the part of it
    that a pass needs; Qc = ``size / 2 * chunks``. A block of H heads takes ``(H * ceil(tokens /
    lanes) + 3) * max(F, Qc)`` cycles and about 60 more, after the tokens of its first group and the
    weights of its first head have arrived. Each input port accepts one word per cycle.

    **Numerics** queries: exact sums plus biases, rotated with rounding to nearest by sine and
    cosine of 15 fraction bits, requantised to INT8. Scores: exact dot products, requantised to
    INT8. Softmax: as `PipelinedSoftmax`. Outputs: exact sums of INT8 values times probabilities,
    requantised to INT8. Requantisation is ``sum * scale / 2**shift``, rounded half to even and
    clamped. `skip` does not change any value.

    Parameters
    ----------
    parameters : AttentionParameters
        Dimensions of the lanes and the largest block.

    Members
    -------
    commands : In(stream)
        A block. `mode` is a `BlockMode`. `tokens` tokens of `chunks` words per slice have the last
        positions of `context`. `heads` counts query heads, of which `members` neighbours share keys
        and values, or tiles of a GEMM's outputs. `rotate` applies the rotary embedding to queries
        or GEMM results. `wide` selects results of 16 bits instead of 8 for a GEMM of weights, and
        probabilities of two bytes for `OUTPUTS`. `causal` masks keys after a token's own position.
        `skip` (only `TPHS`) omits keys that no token of a group attends to. Queries,
        scores and outputs have a `scale` and a `shift` each. `tokens` is at most `context`, which
        is at most `features`; `heads` is a multiple of `members`.
    entries : In(stream)
        A table of 256 exponentials for each block of attention or softmax.
    tokens : In(stream)
        The tokens of each block, ``slices * chunks`` words each: word i is word i // slices of
        slice i % slices. The tokens of one lane have at most `lane_words` words per slice.
    query_weights : In(stream)
        For each head or tile, for each pair of outputs, for each word of a slice: for both outputs
        of the pair, one word per slice; `last` with the last word of a head.
    keys, values : In(stream)
        For each key/value head, one word per token of the context; `last` with the last word of a
        head.
    biases : In(stream)
        Present with the parameter `biases`: for each head or tile its biases in steps of the sums,
        one pair of neighbouring outputs per item; `last` with the last pair of a head.
    rows : In(stream)
        Operands of a stage that runs alone, in the order of the results: rotated INT8 queries, INT8
        scores, or probabilities. A probability of two bytes occupies two words, the one of the
        lower bytes first. `last` is ignored.
    results : Out(stream)
        For each head or tile, one word per token; `last` with the last word of a block. Scores and
        probabilities: for each head, for each group of tokens, for each word of a row, that word
        of each token of the group; zeros pad the last word of a row.
    sums : Out(struct)
        The exact sums of the first lane before rounding: each `pair` of neighbouring outputs with a
        `strobe`, many cycles before the word that contains them. No backpressure.

    Raises
    ------
    ValueError
        If a rule of `AttentionParameters` is broken.
    """

    def __init__(self, *, parameters: AttentionParameters) -> None:
        self.parameters = p = parameters
        words = ("tokens", "query_weights", "keys", "values", "rows")
        biases = {"biases": In(stream.Signature(p.bias_layout))} if p.biases else {}
        super().__init__(
            {
                "commands": In(stream.Signature(p.command_layout)),
                "entries": In(stream.Signature(unsigned(EXPONENTIAL_BITS))),
                **{name: In(stream.Signature(p.word_layout)) for name in words},
                **biases,
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

        lanes = [TokenLane(parameters=p) for _ in range(p.lanes)]
        m.submodules.tokens = store = TokenStore(parameters=p)
        m.submodules.rows = dealer = RowDealer(parameters=p)
        tphs = command.mode == BlockMode.TPHS
        weighs = tphs | (command.mode == BlockMode.GEMM)
        m.d.comb += [
            store.command.eq(command),
            dealer.command.eq(command),
            # Blocks with weights read tokens; stages that run alone read rows.
            store.start.eq(start & weighs),
            dealer.start.eq(start & ~weighs),
        ]
        connect_streams(m, self.tokens, store.tokens)
        connect_streams(m, self.rows, dealer.rows)
        for number, lane in enumerate(lanes):
            m.submodules[f"lane_{number}"] = lane
            # The lane number is an input and not a parameter, so that all lanes are one module.
            m.d.comb += [lane.lane.eq(number), lane.command.eq(command)]
            connect_streams(m, getattr(store, f"lane_{number}"), lane.inputs)
            connect_streams(m, getattr(dealer, f"lane_{number}"), lane.rows)

        m.submodules.weights = words = Collector(
            shape=p.element.word_layout, items=HALVES * p.slices
        )
        m.d.comb += [
            words.items.valid.eq(self.query_weights.valid),
            words.items.payload["item"].eq(self.query_weights.payload.word),
            words.items.payload.last.eq(self.query_weights.payload.last),
            self.query_weights.ready.eq(words.items.ready),
        ]
        # Several query heads share keys and values; weights and biases belong to one head.
        for name, source, wanted, over in (
            ("keys", self.keys, tphs | (command.mode == BlockMode.SCORES), Passed.KEYS),
            ("values", self.values, tphs | (command.mode == BlockMode.OUTPUTS), Passed.KEYS),
            ("weights", words.groups, weighs, Passed.WEIGHTS),
            *([("biases", self.biases, weighs, Passed.BIASES)] if p.biases else []),
        ):
            # A pass over a block that never arrives would not end.
            buffer = self._buffer(m, name, source, command, start & wanted, over)
            self._multicast(m, buffer.sink, [getattr(lane, name) for lane in lanes])
        self._multicast(m, self.entries, [lane.entries for lane in lanes])
        m.d.comb += self.sums.eq(lanes[0].sums)
        done = self._results(m, command, [lane.outputs for lane in lanes])
        with m.If(done):
            m.d.sync += busy.eq(0)
        return m

    def _buffer(
        self, m: Module, name: str, source: Any, command: Any, start: Value, over: Passed
    ) -> BlockBuffer:
        """Add a double buffer and the sequencer that requests its passes."""
        p = self.parameters
        sequencer = PassSequencer(parameters=p, over=over)
        payload = source.payload["items" if over is Passed.WEIGHTS else "word"]
        width = len(Value.cast(payload))
        buffer = BlockBuffer(width=width, depth=sequencer.depth)
        m.submodules[f"{name}_passes"], m.submodules[f"{name}_buffer"] = sequencer, buffer
        m.d.comb += [
            sequencer.command.eq(command),
            sequencer.start.eq(start),
            buffer.source.valid.eq(source.valid),
            buffer.source.payload.word.eq(Value.cast(payload)),
            buffer.source.payload.last.eq(source.payload.last),
            source.ready.eq(buffer.source.ready),
        ]
        connect_streams(m, sequencer.passes, buffer.passes)
        return buffer

    def _multicast(self, m: Module, source: Any, sinks: list[Any]) -> None:
        """Multicast each word to all lanes."""
        # Each lane takes the word when it is ready; the next word follows when all have taken it.
        m.d.comb += source.ready.eq(fork_handshake(m, source.valid, sinks))
        for sink in sinks:
            m.d.comb += Value.cast(sink.payload).eq(Value.cast(source.payload))

    def _results(self, m: Module, command: Any, outputs: list[Any]) -> Value:
        """Merge the lanes' outputs in lane order, without padding; return the end of the block."""
        p, results = self.parameters, self.results
        lane, head = Signal(range(p.lanes)), Signal(range(p.heads + 1))
        passes, keep, row_last = Signal(), Signal(), Signal()
        lane_last, head_last = lane == p.lanes - 1, head + 1 == command.heads
        group_ends = passes & lane_last & row_last
        first, group_last = group_counter(m, "first", command.tokens, p.lanes, ends=group_ends)
        m.d.comb += [
            # Lanes without a token in the last group also output a word, which is discarded.
            keep.eq(Array(output.payload.keep for output in outputs)[lane]),
            row_last.eq(Array(output.payload.last for output in outputs)[lane]),
            results.valid.eq(Array(output.valid for output in outputs)[lane] & keep),
            Value.cast(results.payload.word).eq(
                Array(Value.cast(output.payload.word) for output in outputs)[lane]
            ),
            results.payload.last.eq(row_last & head_last & (first + lane + 1 == command.tokens)),
            passes.eq(Array(output.valid for output in outputs)[lane] & (results.ready | ~keep)),
        ]
        for number, output in enumerate(outputs):
            m.d.comb += output.ready.eq((lane == number) & (results.ready | ~keep))
        with m.If(passes):
            m.d.sync += lane.eq(Mux(lane_last, 0, lane + 1))
            with m.If(lane_last & row_last & group_last):
                m.d.sync += head.eq(Mux(head_last, 0, head + 1))
        return group_ends & group_last & head_last
