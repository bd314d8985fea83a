"""Testbench of the parallel processing element: GEMM and pipelined modes on SmolLM2's tensors."""

from functools import partial
from typing import Any

import cocotb
import numpy as np

from golden.llm import open_trace
from golden.meadow.tile.parallel_processing_element import dot_products
from hdl.meadow.tile.element_parameters import ElementParameters, Mode
from testbenches.bench import Bench
from testbenches.meadow.tile.element_bench import (
    LAYER,
    TOKENS,
    ElementBench,
    Integers,
    Job,
    fitting,
    most_cycles,
    random_settings,
    real_attention,
    real_linear,
)
from testbenches.shared_tests import reset_test, stall_test


def prepare(p: ElementParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=(LAYER,))


def gemm(inputs: list[Integers], weights: Integers, p: ElementParameters, **settings: Any) -> Job:
    """Return a job in GEMM mode: blocks of rows [rows, elements], weights [outputs, elements]."""
    width, row_words = p.multipliers, weights.shape[1] // p.multipliers
    streamed = settings.get("streamed", False)
    factor = {name: settings.pop(name) for name in ("scale", "shift")}
    rows = np.concatenate(inputs)
    words = weights.reshape(-1, width)
    return Job(
        mode=Mode.GEMM,
        row_words=row_words,
        inputs=[block.reshape(-1, width) for block in inputs],
        weights=[words] * (len(rows) if streamed else settings.pop("weight_blocks", len(inputs))),
        results=dot_products(rows, weights, wide=settings.get("wide", False), **factor),
        steps=len(rows) * len(words),
        **{"streamed": streamed, **settings},
        **factor,
    )


def pipelined(
    vectors: Integers, weights: list[Integers], p: ElementParameters, *, streamed: bool, **own: Any
) -> Job:
    """Return a job in pipelined mode: a pass over [outputs, multipliers] for each vector."""
    factor = {name: own[name] for name in ("scale", "shift")}
    passes = [
        dot_products(vector[np.newaxis], block, wide=own.get("wide", False), **factor)
        for vector, block in zip(vectors, weights, strict=True)
    ]
    return Job(
        mode=Mode.PIPELINED,
        streamed=streamed,
        pipeline=vectors,
        weights=weights,
        results=np.concatenate(passes),
        steps=sum(len(block) for block in weights),
        **own,
    )


def real_jobs(p: ElementParameters, bench: Bench) -> list[Job]:
    """Return a part of SmolLM2's `q_proj`, and the scores of some queries."""
    row_words = min(3, p.input_file, p.weight_file)
    outputs, rows = p.weight_file // row_words, p.input_file // row_words
    inputs, weights, factor = real_linear(outputs, row_words * p.multipliers, 2 * rows)
    blocks = [inputs[:rows], inputs[rows:]]
    own = fitting(factor, p)
    queries, keys, _values = real_attention(2 * p.weight_file, p.multipliers)
    scores = fitting(127 / max(int(np.abs(queries @ keys.T).max()), 1), p)
    passes = [keys] * 4
    return [
        gemm(blocks, weights, p, **own),
        gemm(blocks, weights, p, streamed=True, wide=True, **own),
        gemm(blocks, weights, p, hold=True, weight_blocks=1, **own),
        # The held block of weights is used once more, and then released.
        gemm(blocks[:1], weights, p, weight_blocks=0, **own),
        pipelined(queries[-4:], passes, p, streamed=True, **scores),
    ]


def random_jobs(p: ElementParameters, bench: Bench, count: int) -> list[Job]:
    """Return jobs of all modes, 30 % of them with operands at the ends of their range."""
    rng = bench.numpy_rng
    jobs = []
    for number in range(count):
        row_words = int(rng.integers(1, min(4, p.input_file, p.weight_file) + 1))
        outputs = int(rng.integers(1, p.weight_file // row_words + 1))
        rows = [int(n) for n in rng.integers(1, p.input_file // row_words + 1, 3)]
        extremes = rng.random() < 0.3

        def random(*shape: int, extremes: bool = extremes) -> Integers:
            both = rng.choice([-128, 127], shape) if extremes else rng.integers(-128, 128, shape)
            return both.astype(np.int64)

        own = random_settings(rng)
        width = p.multipliers
        weights = random(outputs, row_words * width)
        blocks = [random(n, row_words * width) for n in rows]
        if number % 3:
            jobs.append(gemm(blocks, weights, p, streamed=number % 3 == 2, **own))
        else:
            passes = [random(outputs, width)] * 3
            streamed = bool(rng.random() < 0.5)
            jobs.append(pipelined(random(3, width), passes, p, streamed=streamed, **own))
    return jobs


@cocotb.test()
async def real_tensors(dut: Any) -> None:
    """Run a part of a layer and scores of SmolLM2 at full rate: one step per cycle."""
    bench = ElementBench(dut, "real_tensors")
    jobs = real_jobs(bench.p, bench.bench)
    cycles = await bench.run(jobs)
    # From its first to its last result, a job executes all steps but those of its first output.
    ideal = sum(job.steps - job.row_words for job in jobs)
    # Blocks of a few words do not hide the swap of the register files.
    if min(bench.p.input_file, bench.p.weight_file) >= 8:
        bench.bench.compare("cycles", np.array([ideal]), np.array([cycles]))
    tensors = f"SmolLM2 layer {LAYER}, q_proj and the scores of one head"
    bench.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


stalls = stall_test(
    partial(ElementBench, weights="random"), lambda bench: random_jobs(bench.p, bench.bench, 4)
)
resets = reset_test(
    partial(ElementBench, weights="random"),
    lambda bench: random_jobs(bench.p, bench.bench, 3),
    longest=most_cycles,
    times=9,
)
