"""Testbench of the key smoothing: prompts and decoding of SmolLM2, edge cases, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import LARGEST, codes
from golden.p3llm.quantisers.key_smoothing import fused_queries, smoothed_keys, smoothing_factors
from hdl.p3llm.quantisers.key_smoothing import Operation
from testbenches.bench import catalog_parameters
from testbenches.p3llm.quantisers.real_vectors import LAYERS, cut, random_vectors, trace
from testbenches.packing import pack, to_integers
from testbenches.stream_bench import Fields, StreamBench
from testbenches.streams import PAUSES

Codes = NDArray[np.int64]
PROMPT, STEPS = 12, 4
"""Tokens of a prompt, and of the decoding after it."""
TEXTS = 96
"""Texts of small numbers."""


def prepare(p: Any) -> None:
    """Capture the tensors before the simulator starts."""
    trace()


class SmoothingBench(StreamBench):
    """The unit's two streams."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p = p = catalog_parameters()
        streams: dict[str, Any] = {
            "source": ("vectors", p.slice_layout),
            "sink": ("results", p.result_layout),
        }
        super().__init__(dut, salt, **streams, pauses=(source, sink))

    def fields(self, vectors: list[tuple[Operation, int, Codes]]) -> Fields:
        """Cut vectors into slices."""
        slices = self.p.slices
        last = np.tile(np.arange(slices) == slices - 1, len(vectors)).astype(int)
        return {
            "operation": np.repeat([vector[0].value for vector in vectors], slices),
            "head": np.repeat([vector[1] for vector in vectors], slices),
            "values": np.concatenate([vector[2] for vector in vectors]).reshape(-1, self.p.lanes),
            "last": last,
        }

    def text(self, keys: Codes, queries: Codes, *, by_head: bool = False) -> tuple[Fields, Fields]:
        """Return the slices of a text, with prompt and decoding, and the expected results.

        Keys and queries have the shape (heads, tokens, channels); a prompt's keys are ordered token
        by token, or head by head.
        """
        factors = smoothing_factors(keys[:, :PROMPT])
        heads, tokens = range(len(keys)), keys.shape[1]
        prompt = [(token, head) for token in range(PROMPT) for head in heads]
        if by_head:
            prompt.sort(key=lambda place: place[1])
        vectors = [
            (Operation.OBSERVE if token else Operation.BEGIN, head, keys[head, token])
            for token, head in prompt
        ]
        came = []
        for token in range(tokens):
            for head in heads:
                for operation, vector, model in (
                    (Operation.KEY, keys[head, token], smoothed_keys),
                    (Operation.QUERY, queries[head, token], fused_queries),
                ):
                    vectors.append((operation, head, vector))
                    came.append(model(vector[np.newaxis], factors[head]))
        offered = self.fields(vectors)
        results = np.concatenate(came).reshape(-1, self.p.lanes)
        return offered, {"values": results, "last": offered["last"][-len(results) :]}

    async def run_texts(self, texts: list[tuple[Codes, Codes]], *, by_head: bool = False) -> int:
        """Run texts back to back and compare all results; return the cycles."""
        parts = [self.text(*text, by_head=by_head) for text in texts]
        await self.bench.reset()
        self.sink.received.clear()
        for offered, _ in parts:
            self.source.send(to_integers(pack(self.shapes[0], offered)))
        expected = {
            name: np.concatenate([results[name] for _, results in parts])
            for name in ("values", "last")
        }
        count = len(expected["last"])
        cycles = await self.bench.run(until=lambda: len(self.sink.received) == count)
        for _ in range(20):
            await self.bench.step()
        self.check(expected)
        return cycles

    def random_text(self) -> tuple[Codes, Codes]:
        """Return random keys and queries; some channels are zero in the whole prompt."""
        rng, shape = self.bench.numpy_rng, (self.p.heads, PROMPT + STEPS, self.p.head_size)
        rows = shape[0] * shape[1]
        keys, queries = (
            random_vectors(rng, rows, self.p.head_size).reshape(shape) for _ in range(2)
        )
        keys[:, :PROMPT][..., rng.random(shape[-1]) < 0.2] = 0
        return keys, queries

    def small_text(self) -> tuple[Codes, Codes]:
        """Return keys and queries of channels down to subnormal ones, with some specials."""
        rng, shape = self.bench.numpy_rng, (self.p.heads, PROMPT + STEPS, self.p.head_size)
        tops = rng.integers(1, LARGEST + 1, (2, shape[0], 1, shape[2]))
        tops = np.where(rng.random(tops.shape) < 0.5, tops & 0x7FF, tops)
        keys, queries = rng.integers(0, tops + 1, (2, *shape)) | rng.integers(0, 2, shape) << 15
        # Infinities, and NaNs of one bit, are too rare in random codes.
        marks = rng.choice([0x7C00, *(0x7C00 | 1 << bit for bit in range(10))], shape)
        return np.where(rng.random(shape) < 0.05, keys & 0x8000 | marks, keys), queries


def real_text(p: Any, layer: int) -> tuple[Codes, Codes]:
    """Return keys and queries of SmolLM2 for all heads of the unit."""
    heads = [trace().attention_trace(layer, 3 * (head % 3)) for head in range(min(p.heads, 3))]
    return (
        np.stack([cut(head.k[: PROMPT + STEPS], p.head_size) for head in heads]),
        np.stack([cut(head.q[: PROMPT + STEPS], p.head_size) for head in heads]),
    )


@cocotb.test()
async def real(dut: Any) -> None:
    """Smooth SmolLM2's keys and fuse its queries at full rate; results are bit-identical."""
    bench = SmoothingBench(dut, "real")
    texts = [real_text(bench.p, layer) for layer in LAYERS]
    cycles = await bench.run_texts(texts)
    ideal = sum(len(bench.text(*text)[0]["last"]) for text in texts)
    bench.bench.compare("cycles", np.array([ideal + bench.p.stages + 1]), np.array([cycles]))
    tensors = f"SmolLM2 layers {LAYERS}, prompts of {PROMPT} tokens and {STEPS} steps"
    bench.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
async def extremes(dut: Any) -> None:
    """Infinities, NaNs, subnormal numbers: every FP16 code may occur."""
    bench = SmoothingBench(dut, "extremes")
    keys, queries = bench.random_text()
    rng = bench.bench.numpy_rng
    await bench.run_texts([(rng.integers(0, 1 << 16, keys.shape), queries)])
    await bench.run_texts([(codes(np.zeros(keys.shape)).astype(np.int64), queries)])


@cocotb.test()
async def head_by_head(dut: Any) -> None:
    """Process a head's keys back to back: each uses factors that were just updated."""
    bench = SmoothingBench(dut, "head by head")
    await bench.run_texts([bench.random_text() for _ in range(4)], by_head=True)


@cocotb.test()
async def small(dut: Any) -> None:
    """Subnormal keys, factors and queries, and special numbers in one token only."""
    bench = SmoothingBench(dut, "small")
    await bench.run_texts([bench.small_text() for _ in range(TEXTS)])


@cocotb.test()
@cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Random texts, back to back, under every pair of stall patterns."""
    bench = SmoothingBench(dut, f"stalls {source} {sink}", source, sink)
    await bench.run_texts([bench.random_text() for _ in range(2)])


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset during operation; the next text starts with new factors."""
    bench = SmoothingBench(dut, "resets", "random", "bursty")
    text = bench.random_text()
    await bench.disturb(bench.text(*text)[0], times=6, longest=60)
    await bench.run_texts([text])
