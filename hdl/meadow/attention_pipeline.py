"""MEADOW's token-parallel head-sequential attention: Q, QK^T, softmax, SM x V in a pipeline."""

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal, Value, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.attention_parameters import HALVES, AttentionParameters, BlockMode
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
    """Attention of a block of tokens, from tokens and weights to heads' outputs (Section 4).

    Tokens come in once and stay; then heads follow one another, and in each head groups of tokens,
    one a lane. A head's query weights come in once; keys and values once for all query heads that
    share them. Queries, scores and probabilities never leave the chip. While a group's queries are
    made, the group before it is multiplied with the keys, and so on: stages are chained by valid
    signals, and each takes as long as it has work.

    The elements that make queries are also those of GEMM mode: a linear layer of any number of
    outputs, in tiles of a head's size, whose results leave at once. So K and V, the projection and
    the feed-forward layers run here too, each by a command of its own.

    The stages of attention can also work one at a time, as the paper's baseline has it: scores by a
    GEMM of queries with keys, softmax of rows of scores, outputs by a GEMM of probabilities with
    values. What lies between them leaves with the results, and comes in again by `rows`.

    **Throughput** ``max(F, Qc)`` cycles a group, F being the context, or what of it a pass needs
    with `skip`, and Qc = ``size / 2 * chunks``; a block of H heads takes ``(H * ceil(tokens /
    lanes) + 3) * max(F, Qc)`` cycles and some 60 more, behind what comes first: a group's tokens,
    a head's weights. One word a cycle comes in at each port.

    **Numerics** queries: exact sums and their biases, rotated to the nearest by sine and cosine of
    15 fraction bits, requantised to INT8. Scores: exact dot products, requantised to INT8. Softmax:
    as `PipelinedSoftmax`. Outputs: exact sums of INT8 values times probabilities, requantised to
    INT8.
    Requantised is ``sum * scale / 2**shift``, rounded half to even and clamped. With `skip` every
    value is what it is without.

    Parameters
    ----------
    parameters : AttentionParameters
        Dimensions.

    Members
    -------
    commands : In(stream)
        A block: its `mode`, a `BlockMode`; `tokens` of `chunks` words a slice, whose positions are
        the last of
        `context`; `heads`, of which each `members` neighbours share keys and values, or tiles of a
        GEMM's outputs; `rotate`, whether queries, or what a GEMM makes, are rotated; `wide`, of a
        GEMM of weights, whether results have 16 bits instead of 8, and of `OUTPUTS`, whether
        probabilities have two octets; `causal`, whether a token sees only what is not behind it;
        `skip`, of a pipelined block alone, whether what no token of a group sees is left out; a
        `scale` and a `shift` each of queries, scores and outputs. Tokens are at most the context,
        that is at most `features`; heads are a multiple of members.
    entries : In(stream)
        For each block of attention, or of softmax, a table of 256 exponentials.
    tokens : In(stream)
        For each block its tokens, ``slices * chunks`` words each: word i is word i // slices of
        slice i % slices. A lane's tokens are at most `lane_words` words of a slice.
    query_weights : In(stream)
        For each head or tile: for each pair of outputs, for each word of a slice, of each of both
        outputs a word for each slice; `last` with a head's last.
    keys, values : In(stream)
        For each key-value head a word for each token of the context; `last` with a head's last.
    biases : In(stream)
        With the parameter `biases`, for each head or tile its biases in steps of the sums, a pair
        of neighbours at a time; `last` with a head's last.
    rows : In(stream)
        For a stage that works alone, in the order of the results: rotated queries in INT8, INT8
        scores, or probabilities, of two octets the word of the lower ones first. `last` is not
        looked at.
    results : Out(stream)
        For each head or tile, for each token its output; `last` with a block's last. Of scores and
        probabilities for each head, for each group of tokens, for each word of a row, for each
        token of the group that word; a row's last word is filled up with zeros.
    sums : Out(struct)
        What the first lane's queries or results are made of: each `pair` of neighbours as exact
        sums, with a `strobe`, long before the word that they become part of. They do not wait.

    Raises
    ------
    ValueError
        By `AttentionParameters`.
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

    def elaborate(self, platform: Any) -> Module:
        """Connect buffers and lanes; one block at a time."""
        m = Module()
        p = self.parameters
        # The command stands in a register: all stages read it for as long as the block lasts.
        command, busy, start = Signal(p.command_layout, reset_less=True), Signal(), Signal()
        taken = self.commands.valid & self.commands.ready
        # One cycle lies between a command and its start, so that no stage sees an old one.
        m.d.comb += self.commands.ready.eq(~busy & ~start)
        m.d.sync += start.eq(taken)
        with m.If(taken):
            m.d.sync += [command.eq(self.commands.payload), busy.eq(1)]

        lanes = [TokenLane(parameters=p) for _ in range(p.lanes)]
        m.submodules.tokens = store = TokenStore(parameters=p)
        m.submodules.rows = dealer = RowDealer(parameters=p)
        whole = command.mode == BlockMode.PIPELINED
        weighs = whole | (command.mode == BlockMode.GEMM)
        m.d.comb += [
            store.command.eq(command),
            dealer.command.eq(command),
            # What comes in as tokens and weights, and what as rows.
            store.start.eq(start & weighs),
            dealer.start.eq(start & ~weighs),
        ]
        connect_streams(m, self.tokens, store.tokens)
        connect_streams(m, self.rows, dealer.rows)
        for number, lane in enumerate(lanes):
            m.submodules[f"lane_{number}"] = lane
            # A lane's number is an input and no parameter: the lanes stay one module.
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
        # Keys and values outlive a head that shares them; weights are one head's.
        for name, source, wanted, over in (
            ("keys", self.keys, whole | (command.mode == BlockMode.SCORES), Passed.KEYS),
            ("values", self.values, whole | (command.mode == BlockMode.OUTPUTS), Passed.KEYS),
            ("weights", words.groups, weighs, Passed.WEIGHTS),
            *([("biases", self.biases, weighs, Passed.BIASES)] if p.biases else []),
        ):
            # Passes over what does not come would wait for ever.
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
        """Place a double buffer and what requests its passes."""
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
        """Hand each word to all lanes at once."""
        # Each lane takes a word when it can; the next one follows when all have it.
        m.d.comb += source.ready.eq(fork_handshake(m, source.valid, sinks))
        for sink in sinks:
            m.d.comb += Value.cast(sink.payload).eq(Value.cast(source.payload))

    def _results(self, m: Module, command: Any, outputs: list[Any]) -> Value:
        """Take the lanes' outputs in turn, leave out what is no token's; return the block's end."""
        p, results = self.parameters, self.results
        lane, head = Signal(range(p.lanes)), Signal(range(p.heads + 1))
        passes, keep, row_last = Signal(), Signal(), Signal()
        lane_last, head_last = lane == p.lanes - 1, head + 1 == command.heads
        group_ends = passes & lane_last & row_last
        first, group_last = group_counter(m, "first", command.tokens, p.lanes, ends=group_ends)
        m.d.comb += [
            # Lanes of a last group that have no token give an output too, which goes nowhere.
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
