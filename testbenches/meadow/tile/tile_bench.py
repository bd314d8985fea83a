"""Bench of the tile: blocks of each mode, and their expected results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.meadow.tile.hybrid_tile import (
    AttentionBlock,
    LinearBlock,
    attend,
    attention_stages,
    linear,
    row_words,
    shifted_bias,
    weight_words,
)
from hdl.meadow.tile.tile_parameters import HALVES, BlockMode, TileParameters
from testbenches.bench import Bench, catalog_parameters
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.streams import read

Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class StageBlock:
    """A block of attention of which only one stage is computed.

    Members
    -------
    block : AttentionBlock
        The block; the golden model computes the inputs of its stage.
    mode : BlockMode
        The stage.
    wide : bool
        Whether probabilities at the input have two bytes.
    """

    block: AttentionBlock
    mode: BlockMode
    wide: bool = False

    @property
    def tokens(self) -> Integers:
        """Tokens of the block."""
        return self.block.tokens

    def given(self, p: TileParameters) -> Integers:
        """Return the words of rows, shape (words, size)."""
        stages = attention_stages(self.block, p)
        if self.mode is BlockMode.OUTPUTS:
            words = row_words(stages.probabilities, p)
            parts = [words & 255, words >> 8] if self.wide else [words]
            # The elements of a word at the port are INT8.
            return np.stack(parts, axis=1).reshape(-1, p.size).astype(np.int8).astype(np.int64)
        scores = self.mode is BlockMode.SOFTMAX
        return row_words(stages.scores if scores else stages.queries, p)

    def made(self, p: TileParameters) -> Integers:
        """Return words of results, shape (words, size)."""
        stages = attention_stages(self.block, p)
        if self.mode is BlockMode.OUTPUTS:
            return stages.outputs.reshape(-1, p.size)
        scores = self.mode is BlockMode.SCORES
        # A probability of 16 bits has no sign.
        rows = stages.scores if scores else stages.probabilities.astype(np.int16)
        return row_words(rows.astype(np.int64), p)


Block = AttentionBlock | LinearBlock | StageBlock


class Sums:
    """Monitor of the first lane's sums.

    Parameters
    ----------
    bench : Bench
        Bench of the design.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench, self.layout = bench, catalog_parameters().sums_layout
        self.packed: list[int] = []

    def clear(self) -> None:
        """Discard the recorded sums, for a reset."""
        self.packed.clear()

    def drive(self) -> None:
        """Drive nothing."""

    def sample(self) -> None:
        """Record the sums if the strobe is set."""
        packed = read(self.bench.dut.sums)
        if packed >> self.layout["strobe"].offset & 1:
            self.packed.append(packed)

    def found(self) -> Integers:
        """Return pairs, shape (pairs, 2)."""
        return unpack(self.layout, from_integers(self.packed, self.layout.size))["pair"]


class TileBench:
    """The streams of the tile.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Pause patterns of all inputs, and of the results.
    """

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: TileParameters = catalog_parameters()
        # While a group skips keys, no port transfers anything.
        self.bench = Bench(dut, salt, timeout=2000 + 8 * self.p.slots)
        names = ["commands", "entries", "tokens", "weights", "keys", "values", "rows"]
        names += ["biases"] * self.p.biases + ["scales"] * self.p.tile_scales
        self.sources = {name: self.bench.source(name, source) for name in names}
        self.results = self.bench.sink("results", sink)
        self.sums = self.bench.add(Sums(self.bench))

    def words(self, blocks: list[Any]) -> list[int]:
        """Pack blocks of words, with `last` at the end of each block."""
        packed = []
        for block in blocks:
            last = (np.arange(len(block)) == len(block) - 1).astype(int)
            packed += to_integers(pack(self.p.word_layout, {"word": block, "last": last}))
        return packed

    def load(self, block: Block) -> None:
        """Offer what precedes the command: weights, keys, values, the table of exponentials."""
        mode, attention = self._mode(block)
        whole = mode is BlockMode.TPHS
        if whole or mode is BlockMode.GEMM:
            weights = block.weights if isinstance(block, LinearBlock) else attention.query
            heads = [weight_words(head, self.p) for head in weights]
            self.sources["weights"].send(self.weights(heads))
            if self.p.biases:
                self.sources["biases"].send(self.biases(block))
            if self.p.tile_scales:
                factor = block.factor if isinstance(block, LinearBlock) else attention.factors[0]
                self.sources["scales"].send(self.scales(factor))
        if whole or mode is BlockMode.SOFTMAX:
            self.sources["entries"].send(int(entry) for entry in attention.table)
        if whole or mode is BlockMode.SCORES:
            self.sources["keys"].send(self.words(list(attention.keys)))
        if whole or mode is BlockMode.OUTPUTS:
            self.sources["values"].send(self.words(list(attention.values)))

    def weights(self, heads: Sequence[Integers]) -> list[int]:
        """Pack the words of heads, `weight_words` per item, with `last` at the end of each head."""
        packed = []
        for head in heads:
            items = head.reshape(-1, self.p.weight_words, self.p.size)
            last = (np.arange(len(items)) == len(items) - 1).astype(int)
            packed += to_integers(pack(self.p.weight_port_layout, {"word": items, "last": last}))
        return packed

    def biases(self, block: Block) -> list[int]:
        """Pack the biases of a block in pairs, with `last` at the end of each head."""
        assert not isinstance(block, StageBlock)
        assert block.bias is not None
        pairs = block.bias.reshape(-1, HALVES)
        last = np.arange(1, len(pairs) + 1) % (self.p.size // HALVES) == 0
        return to_integers(pack(self.p.bias_layout, {"word": pairs, "last": last.astype(int)}))

    def scales(self, factors: Any) -> list[int]:
        """Pack the scale and shift of each head or output tile."""
        scale, shift = np.asarray(factors).T
        word = {"scale": scale, "shift": shift}
        return to_integers(
            pack(self.p.scale_layout, {"word": word, "last": np.ones(len(scale), np.int64)})
        )

    def tokens(self, block: AttentionBlock | LinearBlock) -> list[int]:
        """Pack the words of a block's tokens, with the exponent of each token."""
        words = block.tokens.reshape(-1, self.p.size)
        last = (np.arange(len(words)) == len(words) - 1).astype(int)
        fields = {"word": words, "last": last}
        if block.exponents is not None:
            fields["exponent"] = np.repeat(block.exponents, len(words) // len(block.exponents))
        return to_integers(pack(self.p.token_layout, fields))

    def _mode(self, block: Block) -> tuple[BlockMode, Any]:
        """Return the mode of a block, and the block with its dimensions and operands."""
        if isinstance(block, StageBlock):
            return block.mode, block.block
        gemm = isinstance(block, LinearBlock)
        return (BlockMode.GEMM if gemm else BlockMode.TPHS), block

    def command(self, block: Block) -> None:
        """Offer the command, and the tokens or rows."""
        mode, whole = self._mode(block)
        fields = {
            "mode": mode.value,
            "tokens": len(block.tokens),
            "context": whole.context,
            "slice_words": block.tokens.shape[1] // (self.p.slices * self.p.size),
        }
        if isinstance(block, LinearBlock):
            factors = (block.factor, (0, 0), (0, 0))
            fields |= {"heads": len(block.weights), "members": 1, "causal": 0, "skip": 0}
            fields |= {"rotate": int(block.rotate), "wide": int(block.wide)}
        else:
            factors = whole.factors
            alone = isinstance(block, StageBlock)
            fields |= {"heads": len(whole.query), "members": whole.members}
            fields |= {"causal": int(whole.causal), "skip": int(whole.skip and not alone)}
            fields |= {"rotate": int(self.p.rotary), "wide": int(alone and block.wide)}
        for name, factor in zip(("gemm", "score", "output"), factors, strict=True):
            if name == "gemm" and self.p.tile_scales:
                continue
            fields |= {f"{name}_scale": factor[0], f"{name}_shift": factor[1]}
        payload = pack(self.p.command_layout, {name: np.array([v]) for name, v in fields.items()})
        self.sources["commands"].send(to_integers(payload))
        if isinstance(block, StageBlock):
            self.sources["rows"].send(self.words([block.given(self.p)]))
        else:
            self.sources["tokens"].send(self.tokens(block))

    def expected(self, block: Block) -> Integers:
        """Return the expected results of a block, shape (words, size)."""
        if isinstance(block, StageBlock):
            return block.made(self.p)
        results = linear(block, self.p) if isinstance(block, LinearBlock) else attend(block, self.p)
        return results.reshape(-1, self.p.size)

    def offer(self, blocks: Sequence[Block]) -> None:
        """Offer blocks, and their commands immediately."""
        for block in blocks:
            self.load(block)
            self.command(block)

    async def run(self, blocks: Sequence[Block]) -> int:
        """Run blocks back to back and compare; return the cycles."""
        await self.bench.reset()
        for block in blocks:
            self.load(block)
        # The weights of the first head and a table are transferred before the first command.
        waiting = {name: len(self.sources[name].waiting) for name in ("weights", "entries")}
        # A word of weights for each element of a token; stages that run alone have no weights.
        weighted = (block for block in blocks if not isinstance(block, StageBlock))
        first = next((block.tokens.shape[1] for block in weighted), 0) // self.p.weight_words
        await self.bench.run(
            until=lambda: (
                self.sources["weights"].taken >= min(first, waiting["weights"])
                and self.sources["entries"].taken >= min(256, waiting["entries"])
            )
        )
        for block in blocks:
            self.command(block)
        begin = self.bench.cycle
        count = sum(len(self.expected(block)) for block in blocks)
        await self.bench.run(until=lambda: len(self.results.received) == count)
        cycles = self.bench.cycle - begin
        for _ in range(20):
            await self.bench.step()
        self._check(blocks)
        return cycles

    def _check(self, blocks: Sequence[Block]) -> None:
        layout = self.p.result_layout
        packed = [payload for _cycle, payload in self.results.received]
        got = unpack(layout, from_integers(packed, layout.size))
        words, last = [], []
        for block in blocks:
            outputs = self.expected(block)
            words.append(outputs)
            last.append(np.arange(len(outputs)) == len(outputs) - 1)
        seen = [cycle for cycle, _payload in self.results.received]
        self.bench.compare("word", np.concatenate(words), got["word"], cycles=seen)
        self.bench.compare("last", np.concatenate(last).astype(int), got["last"], cycles=seen)
        self.bench.compare("sums", np.concatenate(list(map(self._sums, blocks))), self.sums.found())

    def _sums(self, block: Block) -> Integers:
        """Return the first lane's sums of a block, shape (pairs, 2)."""
        if isinstance(block, StageBlock):
            return np.zeros((0, 2), np.int64)
        weights = block.weights if isinstance(block, LinearBlock) else block.query
        sums = np.matmul(block.tokens[:: self.p.lanes], weights)
        if block.bias is not None:
            first_lane = None if block.exponents is None else block.exponents[:: self.p.lanes]
            sums = sums + shifted_bias(block.bias[:, np.newaxis], first_lane)
        return sums.reshape(-1, HALVES)

    def moved(self) -> int:
        """Return the number of bytes that the streams of words have transferred."""
        names = ("tokens", "keys", "values", "rows")
        words = sum(self.sources[name].taken for name in names) + len(self.results.received)
        words += self.sources["weights"].taken * self.p.weight_words
        return words * self.p.size
