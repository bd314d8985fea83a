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
from testbenches.shared_tests import reset_test, stall_test
from testbenches.unit_bench import Fields, UnitBench

Codes = NDArray[np.int64]
Texts = list[tuple[Codes, Codes]]
"""Keys and queries [heads, tokens, channels] of each text."""

PROMPT, STEPS = 12, 4
"""Tokens of a prompt, and of the decoding after it."""
TEXTS = 96
"""Texts of small numbers."""


def prepare(p: Any) -> None:
    """Capture the tensors before the simulator starts."""
    trace()


class SmoothingBench(UnitBench[Texts]):
    """The unit's two streams."""

    def __init__(
        self,
        dut: Any,
        salt: str,
        source: str = "none",
        sink: str = "none",
        *,
        by_head: bool = False,
    ) -> None:
        p = catalog_parameters()
        super().__init__(
            dut,
            salt,
            source,
            sink,
            inputs={"vectors": p.slice_layout},
            outputs={"results": p.result_layout},
            offered=lambda texts: {"vectors": self.slices_of(texts, by_head=by_head)[0]},
            expected=lambda texts: {"results": self.slices_of(texts, by_head=by_head)[1]},
        )

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

    def text(self, keys: Codes, queries: Codes, *, by_head: bool) -> tuple[Fields, Fields]:
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

    def slices_of(self, texts: Texts, *, by_head: bool) -> tuple[Fields, Fields]:
        """Return the slices of texts back to back, and the expected results."""
        parts = [self.text(*text, by_head=by_head) for text in texts]
        offered, results = (
            {name: np.concatenate([fields[name] for fields in side]) for name in side[0]}
            for side in zip(*parts, strict=True)
        )
        return offered, results

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
    cycles = await bench.run(texts)
    ideal = sum(len(bench.text(*text, by_head=False)[0]["last"]) for text in texts)
    bench.bench.compare("cycles", np.array([ideal + bench.p.stages + 1]), np.array([cycles]))
    tensors = f"SmolLM2 layers {LAYERS}, prompts of {PROMPT} tokens and {STEPS} steps"
    bench.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
async def extremes(dut: Any) -> None:
    """Infinities, NaNs, subnormal numbers: every FP16 code may occur."""
    bench = SmoothingBench(dut, "extremes")
    keys, queries = bench.random_text()
    rng = bench.bench.numpy_rng
    await bench.run([(rng.integers(0, 1 << 16, keys.shape), queries)])
    await bench.run([(codes(np.zeros(keys.shape)).astype(np.int64), queries)])


@cocotb.test()
async def head_by_head(dut: Any) -> None:
    """Process a head's keys back to back: each uses factors that were just updated."""
    bench = SmoothingBench(dut, "head by head", by_head=True)
    await bench.run([bench.random_text() for _ in range(4)])


@cocotb.test()
async def small(dut: Any) -> None:
    """Subnormal keys, factors and queries, and special numbers in one token only."""
    bench = SmoothingBench(dut, "small")
    await bench.run([bench.small_text() for _ in range(TEXTS)])


stalls = stall_test(SmoothingBench, lambda bench: [bench.random_text() for _ in range(2)])
resets = reset_test(SmoothingBench, lambda bench: [bench.random_text()], longest=60, times=6)
