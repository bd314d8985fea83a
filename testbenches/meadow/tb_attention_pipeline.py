"""Testbench of the attention pipeline: SmolLM2's attention, causal slots, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.llm import open_trace
from golden.meadow.attention_pipeline import (
    AttentionBlock,
    attend,
    block_of,
    slot_cycles,
    weight_words,
)
from hdl.meadow.attention_parameters import AttentionParameters
from testbenches.bench import Bench, catalog_parameters, context
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.streams import PAUSES

Reals = NDArray[np.float64]
LAYERS = (0, 14, 29)
TOKENS = 640
OVERHEAD = 90
"""Cycles that the stages' registers and the first tokens' arrival may add to a block."""


def prepare(p: AttentionParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def real_tensors(
    p: AttentionParameters, layer: int, *, tokens: int, context: int, heads: int, shared: int
) -> tuple[Reals, Reals, Reals, Reals]:
    """Return tokens, query weights, keys and values of SmolLM2, of the wanted numbers.

    Elements that the rotation pairs, half a head apart in the model, are neighbours here. Where
    dimensions are not the model's, its elements are taken from the first on, and again.
    """
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    linear = trace.linear(layer, "q_proj")
    size = trace.head_size
    half = np.arange(p.size // 2) % (size // 2)
    pairs = np.stack([half, half + size // 2], axis=-1).reshape(-1)
    elements = np.arange(p.width) % trace.width
    rows = np.arange(context) % TOKENS
    weight = linear.weight.T[elements].reshape(p.width, trace.heads, size)
    query = weight[:, np.arange(heads) % trace.heads][:, :, pairs].swapaxes(0, 1)
    # Each key-value head of the model serves three query heads.
    owners = [trace.attention_trace(layer, 3 * n % trace.heads) for n in range(heads // shared)]
    keys = np.stack([one.k[rows][:, pairs] for one in owners])
    values = np.stack([one.v[rows][:, np.arange(p.size) % size] for one in owners])
    states = linear.inputs[rows[context - tokens :]][:, elements]
    parts = (np.asarray(part, np.float64) for part in (states, query, keys, values))
    states, query, keys, values = parts
    return states, query, keys, values


def real_block(
    p: AttentionParameters,
    layer: int,
    *,
    tokens: int,
    context: int,
    heads: int,
    shared: int,
    **how: Any,
) -> AttentionBlock:
    """Return a block of SmolLM2's attention in INT8."""
    sizes = {"tokens": tokens, "context": context, "heads": heads, "shared": shared}
    return block_of(*real_tensors(p, layer, **sizes), p, **how)


def random_block(p: AttentionParameters, rng: np.random.Generator) -> AttentionBlock:
    """Return a block of random numbers of everything, operands at their ends often enough."""
    context = int(rng.integers(1, p.features + 1))
    tokens = int(rng.integers(1, min(p.tokens, context) + 1))
    shared = int(rng.choice([n for n in (1, 2, 3) if n <= p.heads]))
    heads = shared * int(rng.integers(1, max(p.heads // shared, 1) + 1))
    shapes = [(tokens, p.width), (heads, p.width, p.size)]
    shapes += [(heads // shared, context, p.size)] * 2
    parts: list[Reals] = [rng.normal(0, 1, shape) for shape in shapes]
    if rng.random() < 0.3:
        parts = [np.sign(part) for part in parts]
    states, query, keys, values = parts
    causal, skip = rng.random(2) < (0.7, 0.5)
    return block_of(states, query, keys, values, p, causal=bool(causal), skip=bool(skip))


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

    def words(self, blocks: list[Any]) -> list[int]:
        """Pack blocks of words, each with its end."""
        packed = []
        for block in blocks:
            last = (np.arange(len(block)) == len(block) - 1).astype(int)
            packed += to_integers(pack(self.p.word_layout, {"word": block, "last": last}))
        return packed

    def load(self, block: AttentionBlock) -> None:
        """Offer what does not wait for the command: weights, keys, values, the table."""
        size = self.p.size
        self.sources["entries"].send(int(entry) for entry in block.table)
        heads = [weight_words(head, self.p) for head in block.query]
        self.sources["query_weights"].send(self.words(heads))
        self.sources["keys"].send(self.words(list(block.keys)))
        self.sources["values"].send(self.words(list(block.values)))
        assert block.values.shape[2] == size

    def command(self, block: AttentionBlock) -> None:
        """Offer the command and the tokens."""
        names = ("query", "score", "output")
        scales = {
            f"{name}_{part}": value
            for name, factor in zip(names, block.factors, strict=True)
            for part, value in zip(("scale", "shift"), factor, strict=True)
        }
        fields = {
            "tokens": len(block.tokens),
            "context": block.context,
            "heads": len(block.query),
            "members": block.members,
            "causal": int(block.causal),
            "skip": int(block.skip),
            **scales,
        }
        payload = pack(self.p.command_layout, {name: np.array([v]) for name, v in fields.items()})
        self.sources["commands"].send(to_integers(payload))
        self.sources["tokens"].send(self.words([block.tokens.reshape(-1, self.p.size)]))

    async def run(self, blocks: list[AttentionBlock]) -> int:
        """Run blocks one behind the other and compare; return the cycles."""
        await self.bench.reset()
        self.results.received.clear()
        for block in blocks:
            self.load(block)
        # A head's weights and a table come in before the first command.
        head = min(self.p.query_steps * 2 * self.p.slices, 256)
        await self.bench.run(
            until=lambda: all(
                self.sources[name].taken >= least
                for name, least in (("query_weights", head), ("entries", 256))
            )
        )
        for block in blocks:
            self.command(block)
        begin = self.bench.cycle
        count = sum(len(block.query) * len(block.tokens) for block in blocks)
        await self.bench.run(until=lambda: len(self.results.received) == count)
        cycles = self.bench.cycle - begin
        for _ in range(20):
            await self.bench.step()
        self._check(blocks)
        return cycles

    def _check(self, blocks: list[AttentionBlock]) -> None:
        layout = self.p.word_layout
        packed = [payload for _cycle, payload in self.results.received]
        got = unpack(layout, from_integers(packed, layout.size))
        words, last = [], []
        for block in blocks:
            outputs = attend(block, self.p).reshape(-1, self.p.size)
            words.append(outputs)
            last.append(np.arange(len(outputs)) == len(outputs) - 1)
        seen = [cycle for cycle, _payload in self.results.received]
        self.bench.compare("word", np.concatenate(words), got["word"], cycles=seen)
        self.bench.compare("last", np.concatenate(last).astype(int), got["last"], cycles=seen)

    def moved(self) -> int:
        """Return the bytes that went over the streams of words."""
        names = ("tokens", "query_weights", "keys", "values")
        words = sum(self.sources[name].taken for name in names) + len(self.results.received)
        return words * self.p.size


@cocotb.test()
async def real_attention(dut: Any) -> None:
    """Attention of SmolLM2 with and without causal slots: the same values, cycles, bytes."""
    bench = AttentionBench(dut, "real_attention")
    p = bench.p
    everything = context()["full"] or p.tokens <= 64
    heads = p.heads if everything else min(p.heads, 3)
    shared = 3 if heads % 3 == 0 else 1
    sizes = {"tokens": p.tokens, "context": p.tokens, "heads": heads, "shared": shared}
    block = real_block(p, 14, **sizes)
    cycles = await bench.run([block])
    ideal = slot_cycles(block, p)
    # Each byte crosses once: weights, tokens, keys and values in, outputs out.
    kept = 2 * block.keys.size + block.query.size + block.tokens.size
    bytes_once = kept + len(block.query) * len(block.tokens) * p.size
    bench.bench.compare("bytes", np.array([bytes_once]), np.array([bench.moved()]))
    skipping = await bench.run([block.skipped(True)])
    least = slot_cycles(block.skipped(True), p)
    tensors = f"SmolLM2 layer 14, {len(block.tokens)} tokens, {heads} heads"
    bench.bench.record(
        cycles=cycles,
        ideal_cycles=ideal,
        tensors=tensors,
        skipping_cycles=skipping,
        skipping_ideal=least,
        bytes=bytes_once,
    )


@cocotb.test()
async def decode(dut: Any) -> None:
    """Decode a step: one token behind a context, layer after layer."""
    bench = AttentionBench(dut, "decode")
    p = bench.p
    shared = 3 if p.heads >= 3 else 1
    sizes = {"tokens": 1, "context": p.features, "heads": shared, "shared": shared}
    await bench.run([real_block(p, layer, **sizes) for layer in LAYERS])


@cocotb.test()
@cocotb.parametrize(source=["none", "random", "bursty"], sink=list(PAUSES))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Random blocks under pairs of pause patterns."""
    bench = AttentionBench(dut, f"stalls {source} {sink}", (source, sink))
    if bench.p.features > 64 and not context()["full"] and sink != "random":
        return
    await bench.run([random_block(bench.p, bench.bench.numpy_rng) for _ in range(2)])


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset in the middle of work, which leaves nothing behind."""
    bench = AttentionBench(dut, "resets", ("random", "random"))
    block = random_block(bench.p, bench.bench.numpy_rng)
    for _ in range(4):
        await bench.bench.reset()
        bench.load(block)
        bench.command(block)
        for _cycle in range(bench.bench.rng.randint(1, 3 * slot_cycles(block, bench.p) + 300)):
            await bench.bench.step()
    await bench.run([block])
