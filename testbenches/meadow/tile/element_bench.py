"""Common parts of the testbenches of parallel and broadcasting processing elements."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.requantiser import scale_and_shift
from golden.llm import open_trace
from golden.meadow.tile.requantisation import quantised
from hdl.meadow.tile.element_parameters import ElementParameters, Mode
from testbenches.arith.requantiser_factors import random_factor
from testbenches.bench import Bench, catalog_parameters
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.streams import Port

Integers = NDArray[np.int64]
LAYER = 14
TOKENS = 640
SUM_BITS = 18
"""Bits of the sums of a few products."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """The operands and expected results of an element under one group of settings.

    Members
    -------
    mode, streamed, hold, wide, row_words, scale, shift
        As in the element's settings; `row_words` is the number of words per row, `last_word` + 1.
    inputs, weights : Sequence[numpy.ndarray]
        Blocks of words, shape (words, multipliers).
    pipeline : numpy.ndarray
        Words or scalars for the pipeline register.
    results : numpy.ndarray
        Expected results, shape (passes, results per pass).
    steps : int
        Pairs of operand words, which are the cycles at full rate.
    """

    mode: Mode
    streamed: bool
    weights: Sequence[Integers]
    results: Integers
    steps: int
    inputs: Sequence[Integers] = ()
    pipeline: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    hold: bool = False
    wide: bool = False
    row_words: int = 1
    scale: int = 1
    shift: int = 0


class ElementBench:
    """The settings and the four streams of an element.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Pause patterns of inputs and pipeline, and of results.
    weights : str
        Pause pattern of the weights.
    """

    def __init__(
        self,
        dut: Any,
        salt: str,
        source: str = "none",
        sink: str = "none",
        weights: str = "none",
    ) -> None:
        self.p: ElementParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.settings = Port(dut.settings)
        self.settings.value = 0
        self.inputs = self.bench.source("inputs", source)
        self.pipeline = self.bench.source("pipeline", source)
        self.weights = self.bench.source("weights", weights)
        self.results = self.bench.sink("results", sink)

    def offer(self, jobs: Sequence[Job]) -> None:
        """Apply the settings of the first job, and offer its words; the others need its results."""
        p, job = self.p, jobs[0]
        settings = {
            "mode": job.mode.value,
            "streamed": int(job.streamed),
            "hold": int(job.hold),
            "wide": int(job.wide),
            "last_word": job.row_words - 1,
            "scale": job.scale,
            "shift": job.shift,
        }
        (self.settings.value,) = to_integers(
            pack(p.settings_layout(), {name: np.array([v]) for name, v in settings.items()})
        )
        for source, blocks in ((self.inputs, job.inputs), (self.weights, job.weights)):
            for block in blocks:
                last = np.arange(len(block)) == len(block) - 1
                fields = {"word": block, "last": last.astype(int)}
                source.send(to_integers(pack(p.block_layout, fields)))
        if len(job.pipeline):
            words = job.pipeline.ndim == 2
            layout = p.vector_layout if words else p.scalar_layout
            name = "word" if words else "value"
            self.pipeline.send(to_integers(pack(layout, {name: job.pipeline})))

    async def run(self, jobs: Sequence[Job]) -> int:
        """Reset, run jobs, and compare; return the cycles from first to last result of each."""
        await self.bench.reset()
        cycles = 0
        for number, job in enumerate(jobs):
            before = len(self.results.received)
            self.offer(jobs[number:])
            count = before + job.results.size
            await self.bench.run(until=lambda count=count: len(self.results.received) >= count)
            cycles += self.results.received[-1][0] - self.results.received[before][0]
        for _ in range(20):
            await self.bench.step()
        self._check(jobs)
        return cycles

    def _check(self, jobs: Sequence[Job]) -> None:
        layout = self.p.result_layout
        packed = [payload for _cycle, payload in self.results.received]
        got = unpack(layout, from_integers(packed, layout.size))
        last = [np.arange(job.results.size) % job.results.shape[1] for job in jobs]
        ends = [one == job.results.shape[1] - 1 for one, job in zip(last, jobs, strict=True)]
        seen = [cycle for cycle, _payload in self.results.received]
        expected = np.concatenate([job.results.reshape(-1) for job in jobs])
        self.bench.compare("value", expected, got["value"], cycles=seen)
        self.bench.compare("last", np.concatenate(ends).astype(np.int64), got["last"], cycles=seen)


def random_settings(rng: np.random.Generator) -> dict[str, Any]:
    """Return a random scale and shift, and whether results are wide, as settings of a `Job`."""
    scale, shift = random_factor(rng, SUM_BITS)
    return {"scale": scale, "shift": shift, "wide": bool(rng.random() < 0.3)}


def fitting(factor: float, p: ElementParameters) -> dict[str, int]:
    """Return the scale and shift nearest to a factor."""
    scale, shift = scale_and_shift(factor)
    return {"scale": scale, "shift": min(shift, p.sum_bits + 15)}


def real_linear(outputs: int, elements: int, rows: int) -> tuple[Integers, Integers, float]:
    """Return inputs and weights of SmolLM2's `q_proj` in INT8, and a factor to INT8 results."""
    linear = open_trace(text="prose", tokens=TOKENS, layers=(LAYER,)).linear(LAYER, "q_proj")
    inputs, _ = quantised(linear.inputs)
    weights, _ = quantised(linear.weight)
    inputs = np.resize(inputs[: max(rows, 1)], (rows, inputs.shape[1]))
    take = np.arange(elements) % inputs.shape[1]
    weights = weights[np.arange(outputs) % len(weights)][:, take]
    sums = inputs[:, take] @ weights.T
    return inputs[:, take], weights, 127 / max(int(np.abs(sums).max()), 1)


def real_attention(tokens: int, size: int) -> tuple[Integers, Integers, Integers]:
    """Return queries, keys and values of a head of SmolLM2 in INT8."""
    head = open_trace(text="prose", tokens=TOKENS, layers=(LAYER,)).attention_trace(LAYER, 3)
    take = np.arange(size) % head.q.shape[1]
    rows = np.arange(tokens) % len(head.q)
    query, key, value = (
        quantised(part[np.ix_(rows, take)])[0] for part in (head.q, head.k, head.v)
    )
    return query, key, value


def most_cycles(bench: ElementBench) -> int:
    """Return the most cycles from the start of random jobs to a reset.

    After the end of the jobs no transfer occurs, so that the bench's timeout is the bound.
    """
    p = bench.p
    return min(2 * p.input_file * p.weight_file + 20, bench.bench.timeout - 1)
