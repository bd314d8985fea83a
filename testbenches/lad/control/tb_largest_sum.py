"""Testbench of the argmax: real sums, difficult cases in every lane, stalls, resets."""

from collections.abc import Callable, Iterator
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import INFINITY, LARGEST, codes
from golden.lad.control.largest_sum import argmax_token
from golden.llm import open_trace
from golden.llm.language_model import open_language_model
from golden.llm.layers import rms_norm
from hdl.lad.control.largest_sum import LargestSumParameters
from testbenches.bench import Bench, catalog_parameters
from testbenches.lad.layer_driver import resized
from testbenches.lad.vectors import LAYERS, TOKENS
from testbenches.lad.vectors import prepare as prepare
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.streams import PAUSES, four_states

Codes = NDArray[np.uint16]
Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[Any]]

SIGN = 0x8000
LEAST = SIGN | INFINITY
"""Codes of all numbers, in order."""

BUDGET = 24_000
"""Transfers per test; large vocabularies have few rounds, and small ones many."""


class SearchBench:
    """Connections to the unit; it computes one argmax per sample and round.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Stall patterns of sums and predictions.
    """

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: LargestSumParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.sums = self.bench.source("sums", source)
        self.predictions = self.bench.sink("predictions", sink)
        self.rng = self.bench.numpy_rng

    @property
    def transfers(self) -> int:
        """Transfers of a round."""
        return self.p.groups * self.p.batch

    def fitting(self, searches: Iterator[Codes], share: int = 1) -> list[Codes]:
        """Return as many rounds as fit into a test, or into a part of one, at least one."""
        budget = BUDGET // (10 if four_states() else 1) // share
        most = max(1, budget // self.transfers)
        return [sums for _number, sums in zip(range(most), searches, strict=False)]

    def offer(self, sums: Codes) -> None:
        """Queue a round's sums [batch, vocabulary]: for each group of rows all samples."""
        p = self.p
        # Rows that are no tokens have the largest possible sum.
        rows = np.full((p.batch, p.groups * p.units), INFINITY)
        rows[:, : p.vocabulary] = sums
        turns = rows.reshape(p.batch, p.groups, p.units).swapaxes(0, 1).reshape(-1, p.units)
        self.sums.send(to_integers(pack(p.sums_layout, turns)))

    async def run(self, searches: list[Codes]) -> int:
        """Reset, compute all rounds, compare all predictions, and return the cycles."""
        await self.bench.reset()
        received = self.predictions.received
        received.clear()
        for sums in searches:
            self.offer(sums)
        expected = np.array([argmax_token(own) for sums in searches for own in sums])
        cycles = await self.bench.run(until=lambda: len(received) == len(expected))
        # No further prediction follows.
        await self.bench.step(20)
        seen, payloads = zip(*received, strict=True)
        layout = self.p.prediction_layout
        got = unpack(layout, from_integers(list(payloads), layout.size))
        self.bench.compare("token", expected[:, 0], got["token"], cycles=list(seen))
        self.bench.compare("sum", expected[:, 1], got["sum"], cycles=list(seen), show=hex)
        return cycles


def real_sums(p: LargestSumParameters, first: int) -> Codes:
    """Return the sums of SmolLM2's LM head for some tokens [batch, vocabulary], in FP16.

    A small vocabulary has rows of a feed-forward layer instead, to avoid loading the LM head.
    """
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    tokens = np.arange(first, first + p.batch) % TOKENS
    gate = trace.linear(LAYERS[-1], "gate_proj")
    if p.vocabulary <= len(gate.weight):
        return codes(gate.inputs[tokens] @ gate.weight[: p.vocabulary].T)
    states = rms_norm(trace.hidden(LAYERS[-1])[1][tokens].astype(np.float64))
    return codes(resized(states @ open_language_model().projection(), p.vocabulary, axis=1))


def ranked(ranks: Any) -> NDArray[Any]:
    """Return the codes of numbers by rank: 0 is +0, the infinities are at both ends."""
    ranks = np.clip(ranks, -INFINITY, INFINITY)
    return np.where(ranks < 0, SIGN - ranks, ranks)


def few(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[Any]:
    """Return few different values, each in many lanes, with zeros of both signs."""
    numbers = codes(rng.integers(-3, rng.integers(-2, 4), shape) / 2)
    return np.where(numbers == 0, rng.choice([0, SIGN], shape), numbers)


def noise(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[Any]:
    """Return random codes, of one sign or of both."""
    return rng.integers(0, 1 << 16, shape) | rng.choice([0, SIGN])


def next_ones(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[Any]:
    """Return a number and its neighbours: few bits differ, or all bits above a carry."""
    power = rng.integers(-INFINITY, INFINITY + 1) & -(1 << rng.integers(0, 16))
    return ranked(power + rng.integers(-2, 3, shape))


def stairs(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[Any]:
    """Return ascending or descending numbers: in ascending ones each is a new maximum."""
    step = int(rng.choice([-1, 1])) * int(rng.integers(1, 1 + max(1, INFINITY // shape[1])))
    start = rng.integers(-INFINITY, INFINITY, (shape[0], 1))
    return ranked(start + step * np.arange(shape[1]))


def special(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[Any]:
    """Return codes at the ends of the ranges of numbers and of NaNs."""
    ends = np.array([0, 1, 0x3FF, 0x400, LARGEST, INFINITY, INFINITY + 1, 0x7E00, 0x7FFF])
    kept = rng.choice(np.concatenate([ends, ends | SIGN]), rng.integers(1, 5))
    return rng.choice(kept, shape)


def no_numbers(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[Any]:
    """Return NaNs with any mantissa."""
    return rng.integers(INFINITY + 1, SIGN, shape) | rng.choice([0, SIGN], shape)


KINDS: tuple[Draw, ...] = (few, noise, next_ones, stairs, special, no_numbers)
"""Generators of random sums."""


def drawn(p: LargestSumParameters, rng: np.random.Generator) -> Iterator[Codes]:
    """Generate rounds of all kinds, also with one kind per sample."""
    while True:
        for draw in rng.permutation(np.array(KINDS, object)):
            rows = [draw(rng, (1, p.vocabulary)) for _ in range(p.batch)]
            yield np.concatenate(rows).astype(np.uint16)


def token_in(p: LargestSumParameters, rng: np.random.Generator, lane: int) -> int:
    """Return a random token of a lane."""
    return int(rng.choice(np.arange(lane, p.vocabulary, p.units)))


def beside(p: LargestSumParameters, rng: np.random.Generator, token: int) -> int:
    """Return another random token, if there is one: of the same transfer, or any."""
    group = token // p.units * p.units
    near = np.arange(group, min(group + p.units, p.vocabulary))
    others = near if rng.random() < 0.5 and len(near) > 1 else np.arange(p.vocabulary)
    others = others[others != token]
    return int(rng.choice(others)) if len(others) else token


def duels(p: LargestSumParameters, rng: np.random.Generator) -> Iterator[Codes]:
    """Let each bit of a code decide in each lane: against one other sum, or against all others."""
    lanes = min(p.units, p.vocabulary)
    while True:
        for place in rng.permutation(16 * lanes):
            rows = []
            for _ in range(p.batch):
                token, bit = token_in(p, rng, place % lanes), int(place // lanes)
                code = int(rng.integers(0, 1 << 16))
                row = np.full(p.vocabulary, rng.choice([code, LEAST, 0x7E00, 0x7C01]))
                row[beside(p, rng, token)] = code
                row[token] = code ^ 1 << bit
                rows.append(row)
            yield np.array(rows, np.uint16)


def edges(p: LargestSumParameters, rng: np.random.Generator) -> Iterator[Codes]:
    """Put zeros among negative sums, numbers among NaNs, NaNs among the least, in each lane."""
    nans = [sign | INFINITY | 1 << bit for sign in (0, SIGN) for bit in range(10)]
    nans += [0x7FFF, 0xFFFF]
    lanes = min(p.units, p.vocabulary)
    cases = [(lane, code) for lane in range(lanes) for code in [0, SIGN, INFINITY, LEAST, *nans]]
    while True:
        for number in rng.permutation(len(cases)):
            lane, code = cases[number]
            rows = []
            for _ in range(p.batch):
                token = token_in(p, rng, lane)
                if code in nans:
                    # The least number is above a NaN, in all lanes or in one.
                    row = np.full(p.vocabulary, rng.choice([LEAST, 0x7E00]))
                    row[beside(p, rng, token)] = LEAST
                elif code == LEAST:
                    row = no_numbers(rng, (1, p.vocabulary))[0]
                else:
                    row = SIGN | rng.integers(1, INFINITY + 1, p.vocabulary)
                    # Alone, or with an equal number, or with the other zero, which is equal.
                    if rng.random() < 0.6:
                        row[beside(p, rng, token)] = code ^ rng.choice([0, SIGN])
                row[token] = code
                rows.append(row)
            yield np.array(rows, np.uint16)


def alone(p: LargestSumParameters, rng: np.random.Generator) -> Iterator[Codes]:
    """Let each token be the only maximum in one of the rounds."""
    while True:
        # The last token is after all others and before rows that are no tokens.
        for first in (p.vocabulary - 1, *rng.permutation(p.vocabulary)):
            sums = ranked(rng.integers(-INFINITY, INFINITY, (p.batch, p.vocabulary)))
            for sample in range(p.batch):
                sums[sample, (first + 5 * sample) % p.vocabulary] = INFINITY
            yield sums.astype(np.uint16)


def search_cycles(p: LargestSumParameters) -> int:
    """Return the cycles of a round without stalls: transfers, latency, predictions."""
    levels = (p.units - 1).bit_length()
    return p.groups * p.batch + levels + 2 + p.batch


@cocotb.test()
async def texts(dut: Any) -> None:
    """Predict SmolLM2's tokens, one transfer per cycle."""
    one = SearchBench(dut, "texts")
    p = one.p
    searches = [real_sums(p, first) for first in (0, 100, 200)]
    cycles = await one.run(searches)
    expected = len(searches) * search_cycles(p)
    one.bench.compare("cycles", np.array([expected]), np.array([cycles]))
    one.bench.record(
        cycles=cycles,
        ideal_cycles=len(searches) * one.transfers,
        tensors=f"SmolLM2's sums of {p.vocabulary} rows behind layer {LAYERS[-1]}, "
        f"{len(searches)} times {p.batch}",
    )


@cocotb.test()
@cocotb.parametrize(searches=[drawn, duels, edges, alone])
async def choices(dut: Any, searches: Any) -> None:
    """Run difficult rounds back to back."""
    one = SearchBench(dut, f"choices {searches.__name__}")
    hard = one.fitting(searches(one.p, one.rng))
    cycles = await one.run(hard)
    expected = len(hard) * search_cycles(one.p)
    one.bench.compare("cycles", np.array([expected]), np.array([cycles]))


@cocotb.test()
@cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Run all stall patterns of both streams."""
    one = SearchBench(dut, f"stalls {source} {sink}", source, sink)
    await one.run(one.fitting(drawn(one.p, one.rng), share=50))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset during a round or its predictions; no state may remain."""
    one = SearchBench(dut, "resets", sink="random")
    p, rng = one.p, one.rng
    searches = drawn(p, rng)
    for _ in range(2 if one.transfers > BUDGET // 10 or four_states() else 40):
        await one.bench.reset()
        one.offer(next(searches))
        one.offer(next(searches))
        # Often near the end, while the result is computed and output.
        start = rng.choice([1, one.transfers])
        await one.bench.step(int(rng.integers(start, one.transfers + 3 * p.batch + 8)))
    await one.run(one.fitting(searches, share=50))
