"""A bench around the attention pipeline: blocks of either mode, and what must come of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.meadow.attention_pipeline import (
    AttentionBlock,
    LinearBlock,
    attend,
    linear,
    weight_words,
)
from hdl.meadow.attention_parameters import AttentionParameters
from hdl.meadow.tile.element_parameters import Mode
from testbenches.bench import Bench, catalog_parameters
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.streams import read

Integers = NDArray[np.int64]
Block = AttentionBlock | LinearBlock


class Sums:
    """Keeps the first lane's sums.

    Parameters
    ----------
    bench : Bench
        Of the design.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench, self.layout = bench, catalog_parameters().sums_layout
        self.clear()

    def clear(self) -> None:
        """Forget them, as in a reset."""
        self.packed: list[int] = []

    def drive(self) -> None:
        """Drive nothing."""

    def sample(self) -> None:
        """Look for the strobe."""
        packed = read(self.bench.dut.sums)
        if packed >> self.layout["strobe"].offset & 1:
            self.packed.append(packed)

    def found(self) -> Integers:
        """Return pairs, shape (pairs, 2)."""
        return unpack(self.layout, from_integers(self.packed, self.layout.size))["pair"]


class AttentionBench:
    """The pipeline's seven streams.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    pauses : tuple[str, str]
        Pause patterns of everything that comes in, and of the results.
    """

    def __init__(self, dut: Any, salt: str, pauses: tuple[str, str] = ("none", "none")) -> None:
        self.p: AttentionParameters = catalog_parameters()
        # Nothing moves at the ports while a group's keys are passed over.
        self.bench = Bench(dut, salt, patience=2000 + 8 * self.p.features)
        names = ("commands", "entries", "tokens", "query_weights", "keys", "values")
        self.sources = {name: self.bench.source(name, pauses[0]) for name in names}
        self.results = self.bench.sink("results", pauses[1])
        self.sums = self.bench.add(Sums(self.bench))

    def words(self, blocks: list[Any]) -> list[int]:
        """Pack blocks of words, each with its end."""
        packed = []
        for block in blocks:
            last = (np.arange(len(block)) == len(block) - 1).astype(int)
            packed += to_integers(pack(self.p.word_layout, {"word": block, "last": last}))
        return packed

    def load(self, block: Block) -> None:
        """Offer what does not wait for the command: weights, keys, values, the table."""
        weights = block.weights if isinstance(block, LinearBlock) else block.query
        heads = [weight_words(head, self.p) for head in weights]
        self.sources["query_weights"].send(self.words(heads))
        if isinstance(block, AttentionBlock):
            self.sources["entries"].send(int(entry) for entry in block.table)
            self.sources["keys"].send(self.words(list(block.keys)))
            self.sources["values"].send(self.words(list(block.values)))

    def command(self, block: Block) -> None:
        """Offer the command and the tokens."""
        fields = {
            "tokens": len(block.tokens),
            "context": block.context,
            "chunks": block.tokens.shape[1] // (self.p.slices * self.p.size),
        }
        if isinstance(block, LinearBlock):
            factors = (block.factor, (0, 0), (0, 0))
            fields |= {"heads": len(block.weights), "members": 1, "causal": 0, "skip": 0}
            fields |= {"mode": Mode.GEMM.value, "rotate": int(block.rotate)}
            fields |= {"wide": int(block.wide)}
        else:
            factors = block.factors
            fields |= {"heads": len(block.query), "members": block.members}
            fields |= {"causal": int(block.causal), "skip": int(block.skip)}
            fields |= {"mode": Mode.PIPELINED.value, "rotate": int(self.p.rotary), "wide": 0}
        for name, factor in zip(("query", "score", "output"), factors, strict=True):
            fields |= {f"{name}_scale": factor[0], f"{name}_shift": factor[1]}
        payload = pack(self.p.command_layout, {name: np.array([v]) for name, v in fields.items()})
        self.sources["commands"].send(to_integers(payload))
        self.sources["tokens"].send(self.words([block.tokens.reshape(-1, self.p.size)]))

    def expected(self, block: Block) -> Integers:
        """Return a block's results, shape (words, size)."""
        model = linear if isinstance(block, LinearBlock) else attend
        return model(block, self.p).reshape(-1, self.p.size)  # pyright: ignore[reportArgumentType]

    async def run(self, blocks: Sequence[Block]) -> int:
        """Run blocks one behind the other and compare; return the cycles."""
        await self.bench.reset()
        self.results.received.clear()
        self.sums.clear()
        for block in blocks:
            self.load(block)
        # A head's weights and a table come in before the first command.
        waiting = {name: len(self.sources[name].waiting) for name in ("query_weights", "entries")}
        first = blocks[0].tokens.shape[1]
        await self.bench.run(
            until=lambda: (
                self.sources["query_weights"].taken >= min(first, waiting["query_weights"])
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
        weights = block.weights if isinstance(block, LinearBlock) else block.query
        return np.matmul(block.tokens[:: self.p.lanes], weights).reshape(-1, 2)

    def moved(self) -> int:
        """Return the bytes that went over the streams of words."""
        names = ("tokens", "query_weights", "keys", "values")
        words = sum(self.sources[name].taken for name in names) + len(self.results.received)
        return words * self.p.size
