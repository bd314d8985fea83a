"""Testbench of the broadcasting processing element: GEMM and pipelined modes, real values."""

from functools import partial
from typing import Any

import cocotb
import numpy as np

from golden.llm import open_trace
from golden.meadow.tile.broadcasting_processing_element import weighted_sums
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


def gemm(inputs: list[Integers], words: Integers, p: ElementParameters, **settings: Any) -> Job:
    """Return a job in GEMM mode: blocks of rows [rows, elements], words [elements, outputs]."""
    width, elements = p.multipliers, len(words)
    streamed = settings.pop("streamed", False)
    factor = {name: settings.pop(name) for name in ("scale", "shift")}
    row_words = -(-elements // width)
    rows = np.concatenate(inputs)
    # The elements after the last one of a row are padding, which the unit ignores.
    padded = [
        np.pad(b, ((0, 0), (0, row_words * width - elements)), constant_values=77) for b in inputs
    ]
    return Job(
        mode=Mode.GEMM,
        streamed=streamed,
        row_words=row_words,
        inputs=[block.reshape(-1, width) for block in padded],
        weights=[words] * (len(rows) if streamed else len(inputs)),
        results=weighted_sums(rows, words, wide=settings.get("wide", False), **factor),
        steps=len(rows) * max(elements, width),
        **settings,
        **factor,
    )


def pipelined(scalars: Integers, words: Integers, *, streamed: bool, **own: Any) -> Job:
    """Return a job in pipelined mode: passes of scalars [passes, elements] over the same words."""
    factor = {name: own[name] for name in ("scale", "shift")}
    return Job(
        mode=Mode.PIPELINED,
        streamed=streamed,
        pipeline=scalars.reshape(-1),
        weights=[words] * len(scalars),
        results=weighted_sums(scalars, words, wide=own.get("wide", False), **factor),
        steps=len(scalars) * max(words.shape),
        **own,
    )


def real_jobs(p: ElementParameters, bench: Bench) -> list[Job]:
    """Return a part of SmolLM2's `q_proj`, and weighted values of a head."""
    elements = min(p.weight_file, p.input_file * p.multipliers)
    rows = min(4, p.input_file // -(-elements // p.multipliers))
    inputs, weights, factor = real_linear(p.multipliers, elements, 2 * rows)
    own = fitting(factor, p)
    features = 2 * p.multipliers
    trace = open_trace(text="prose", tokens=TOKENS, layers=(LAYER,)).attention_trace(LAYER, 3)
    largest = (1 << p.scalar_bits - 1) - 1
    numbers = [n * (TOKENS - 1) // 3 for n in range(4)]
    shares = np.resize(trace.probabilities[numbers], (4, features))
    _queries, _keys, values = real_attention(features, p.multipliers)
    probabilities = np.rint(shares * largest).astype(np.int64)
    return [
        gemm([inputs[:rows], inputs[rows:]], weights.T, p, **own),
        gemm([inputs[:1]], weights.T, p, streamed=True, wide=True, **own),
        pipelined(probabilities, values, streamed=True, **fitting(1 / largest, p)),
    ]


def random_jobs(p: ElementParameters, bench: Bench, count: int) -> list[Job]:
    """Return jobs of all modes, 30 % of them with operands at the ends of their range."""
    rng = bench.numpy_rng
    jobs = []
    for number in range(count):
        elements = int(rng.integers(1, p.weight_file + 1))
        row_words = -(-elements // p.multipliers)
        most = max(p.input_file // row_words, 1)
        extremes = rng.random() < 0.3

        def random(*shape: int, bits: int = 8, extremes: bool = extremes) -> Integers:
            low, high = -(1 << bits - 1), (1 << bits - 1) - 1
            both = (
                rng.choice([low, high], shape) if extremes else rng.integers(low, high + 1, shape)
            )
            return both.astype(np.int64)

        own = random_settings(rng)
        words = random(elements, p.multipliers)
        if number % 3 and row_words <= p.input_file:
            blocks = [random(int(n), elements) for n in rng.integers(1, most + 1, 2)]
            jobs.append(gemm(blocks, words, p, streamed=number % 3 == 2, **own))
        else:
            scalars = random(3, elements, bits=p.scalar_bits)
            jobs.append(pipelined(scalars, words, streamed=bool(rng.random() < 0.5), **own))
    return jobs


@cocotb.test()
async def real_tensors(dut: Any) -> None:
    """Run a part of a layer and weighted values of SmolLM2 at full rate."""
    bench = ElementBench(dut, "real_tensors")
    jobs = real_jobs(bench.p, bench.bench)
    cycles = await bench.run(jobs)
    # From the first to the last result of a job: all passes but the first, and the results of one.
    ideal = sum(
        (len(job.results) - 1) * (job.steps // len(job.results)) + bench.p.multipliers - 1
        for job in jobs
    )
    # Blocks of a few words do not hide the swap of the register files.
    if min(bench.p.input_file, bench.p.weight_file) >= 8:
        bench.bench.compare("cycles", np.array([ideal]), np.array([cycles]))
    tensors = f"SmolLM2 layer {LAYER}, q_proj and the values of one head"
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
