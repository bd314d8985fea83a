"""Testbench of the argmax of logits: real logits, deciding bits, order of requests, resets."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.llm import open_trace
from golden.llm.language_model import open_language_model
from golden.llm.layers import rms_norm
from golden.p3llm.npu.logit_argmax import largest_so_far, ordered
from hdl.arith.float_format import BINARY32
from hdl.p3llm.npu.logit_argmax import LogitArgmaxParameters
from testbenches.bench import Bench, catalog_parameters
from testbenches.p3llm.npu.lanes_bench import LAYERS, TOKENS, any_singles
from testbenches.p3llm.npu.lanes_bench import prepare as prepare
from testbenches.p3llm.pim.cycle_driver import NEVER_MOVES, CycleDriver
from testbenches.streams import PAUSES, four_states

Codes = NDArray[np.uint32]
Orders = NDArray[np.int64]

BUDGET = 24_000
"""Cycles of a test; large vocabularies have few texts, and small ones many."""

BITS = 32
LEAST, MOST = -(1 << 31), (1 << 31) - 1
"""Limits of the order."""


@dataclass(frozen=True, kw_only=True)
class Cycles:
    """Values of the inputs, one row per cycle."""

    request: NDArray[np.int64]
    values: Codes
    strobe: NDArray[np.bool_]
    last: NDArray[np.bool_]
    clear: NDArray[np.bool_]


def latency_of(p: LogitArgmaxParameters) -> int:
    """Return the cycles from a slice to its outputs: one per level of the comparator tree."""
    return p.lanes.bit_length()


def woven(
    p: LogitArgmaxParameters,
    rng: np.random.Generator,
    texts: list[list[Codes]],
    pauses: Iterator[bool],
    *,
    eager: bool = False,
) -> Cycles:
    """Interleave each request's texts [slices, lanes] in pieces of any length, in any order.

    Each text is followed by a clear, often in the first possible cycle; `eager` never delays it.
    Idle cycles have random values.
    """
    latency, requests = latency_of(p), range(p.requests)
    waiting = [deque(own) for own in texts]
    slices = [deque(own.popleft()) if own else deque() for own in waiting]
    free = [0 if own else -1 for own in slices]
    rows: list[tuple[int, Codes | None, bool, bool]] = []
    request = left = 0
    while any(cycle >= 0 for cycle in free):
        able = [one for one in requests if slices[one] or 0 <= free[one] <= len(rows)]
        if next(pauses) or not able:
            rows.append((int(rng.choice(requests)), None, bool(rng.integers(2)), False))
            continue
        if not left or request not in able:
            request, left = int(rng.choice(able)), int(rng.choice([1, 2, 5, 40]))
        if not slices[request]:
            rows.append((request, None, bool(rng.integers(2)), True))
            free[request] = -1
            left = 0
            if waiting[request]:
                slices[request] = deque(waiting[request].popleft())
                free[request] = 0
            continue
        left -= 1
        one = slices[request].popleft()
        last = not left or not slices[request] or rng.random() < 0.2
        late = 0 if eager or rng.random() < 0.6 else int(rng.integers(1, 6))
        free[request] = len(rows) + latency + late
        rows.append((request, one, last, False))
    # The last results are observed for some cycles.
    rows += [(number % p.requests, None, True, False) for number in range(latency + 4)]
    values = any_singles(rng, len(rows) * p.lanes).reshape(len(rows), p.lanes).astype(np.uint32)
    for row, (_request, one, _last, _clear) in zip(values, rows, strict=True):
        if one is not None:
            row[:] = one
    request_of, given, last, clear = zip(*rows, strict=True)
    return Cycles(
        request=np.array(request_of),
        values=values,
        strobe=np.array([one is not None for one in given]),
        last=np.array(last),
        clear=np.array(clear),
    )


def shown(
    p: LogitArgmaxParameters, cycles: Cycles
) -> tuple[NDArray[np.bool_], Orders, Orders, NDArray[np.bool_]]:
    """Return the expected outputs of every cycle.

    Returns
    -------
    tuple
        Whether a piece has been compared; token; logit; and whether there is a logit.
    """
    latency, total = latency_of(p), len(cycles.strobe)
    compared = np.concatenate([np.zeros(latency, bool), (cycles.strobe & cycles.last)[:-latency]])
    token, code, known = np.zeros(total, int), np.zeros(total, int), np.zeros(total, bool)
    for request in range(p.requests):
        mine = cycles.request == request
        # A text extends from a clear to the next.
        ends = np.flatnonzero(mine & cycles.clear) + 1
        for first, end in pairwise([0, *ends.tolist(), total]):
            at = first + np.flatnonzero((mine & cycles.strobe)[first:end])
            if not len(at):
                continue
            assert len(at) <= p.slices, "no more sums than the vocabulary has"
            assert end == total or at[-1] + latency < end, "no clear while a slice is under way"
            tokens, codes = largest_so_far(cycles.values[at].reshape(-1))
            there = first + np.flatnonzero(mine[first:end])
            counted = np.searchsorted(at + latency, there, side="right")
            there, counted = there[counted > 0], counted[counted > 0]
            behind = counted * p.lanes - 1
            token[there], code[there], known[there] = tokens[behind], codes[behind], True
    return compared, token, code, known


class ArgmaxBench:
    """The unit, with the values at its ports in every cycle.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    """

    def __init__(self, dut: Any, salt: str) -> None:
        self.p: LogitArgmaxParameters = catalog_parameters()
        self.bench = Bench(dut, salt, timeout=NEVER_MOVES)
        self.rng = self.bench.numpy_rng
        inputs = {"values": self.p.slice_layout, "strobe": 1, "last": 1, "clear": 1}
        if self.p.requests > 1:
            inputs["request"] = range(self.p.requests)
        self.ports = self.bench.add(CycleDriver(dut, inputs, ("compared", "token", "sum")))

    def fitting(self, texts: Iterator[Codes], share: float = 1) -> list[list[Codes]]:
        """Return the number of texts per request for which a test, or a part of it, has time."""
        budget = BUDGET // (10 if four_states() else 1) / share / self.p.requests
        found: list[list[Codes]] = []
        for _ in range(self.p.requests):
            own, left = [next(texts)], budget
            while (left := left - len(own[-1]) - latency_of(self.p)) > 0:
                own.append(next(texts))
            found.append(own)
        return found

    async def start(self, cycles: Cycles) -> None:
        """Reset, and apply all cycles."""
        await self.bench.reset()
        self.ports.send({name: getattr(cycles, name) for name in self.ports.shapes})

    async def run(self, cycles: Cycles) -> None:
        """Run from a reset, and compare all outputs in every cycle."""
        await self.start(cycles)
        await self.bench.step(len(cycles.strobe))
        compared, token, code, known = shown(self.p, cycles)
        got = {name: np.array(seen) for name, seen in self.ports.recorded.items()}
        numbers = np.arange(len(known))
        self.bench.compare("compared", compared.astype(int), got["compared"], cycles=numbers)
        self.bench.compare("token", token, got["token"], cycles=numbers)
        seen = numbers[known]
        self.bench.compare("sum", code[known], got["sum"][known], cycles=seen, show=hex)

    def woven(self, texts: list[list[Codes]], pattern: str = "none", **how: bool) -> Cycles:
        """Return cycles of each request's texts, with gaps of a pattern."""
        return woven(self.p, self.rng, texts, self.bench.pauses(pattern), **how)


def real_sums(p: LogitArgmaxParameters, first: int, count: int) -> list[Codes]:
    """Return the logits of SmolLM2 for some tokens, each [slices, lanes].

    A small vocabulary uses rows of a feed-forward layer, to avoid loading the whole matrix. A
    larger one repeats the rows; the rows that fill up the last slice repeat as in the banks.
    """
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    tokens = np.arange(first, first + count) % TOKENS
    gate = trace.linear(LAYERS[-1], "gate_proj")
    if p.vocabulary <= len(gate.weight):
        sums = gate.inputs[tokens] @ gate.weight.T
    else:
        states = rms_norm(trace.hidden(LAYERS[-1])[1][tokens].astype(np.float64))
        sums = states @ open_language_model().projection()
    wide = np.take(sums, np.arange(p.vocabulary), axis=1, mode="wrap")
    missing = p.slices * p.lanes - p.vocabulary
    filled = np.concatenate([wide, np.repeat(wide[:, :1], missing, axis=1)], axis=1)
    return list(filled.astype(np.float32).view(np.uint32).reshape(count, p.slices, p.lanes))


def coded(p: LogitArgmaxParameters, orders: Any) -> Codes:
    """Return a text's codes [slices, lanes] from integers in the order of the numbers."""
    codes = ordered(np.clip(orders, LEAST, MOST).astype(np.int32).view(np.uint32))
    return codes.view(np.uint32).reshape(-1, p.lanes)


def orders_of(numbers: Any) -> Orders:
    """Return the integers in the order of the numbers."""
    return ordered(np.asarray(numbers, np.float32)).astype(np.int64)


def few(rng: np.random.Generator, count: int) -> Orders:
    """Return a few values, each in many lanes, with zeros of both signs."""
    numbers = rng.integers(-3, rng.integers(-2, 4), count) / 2
    return orders_of(np.where(numbers == 0, rng.choice([0.0, -0.0], count), numbers))


def logits(rng: np.random.Generator, count: int) -> Orders:
    """Return numbers with the distribution of a model, of both signs or of one."""
    numbers = rng.normal(0, 4, count)
    return orders_of(rng.choice([-1, 1]) * np.abs(numbers) if rng.random() < 0.5 else numbers)


def noise(rng: np.random.Generator, count: int) -> Orders:
    """Return random codes, including special numbers."""
    return ordered(any_singles(rng, count).astype(np.uint32)).astype(np.int64)


def next_ones(rng: np.random.Generator, count: int) -> Orders:
    """Return a number and its neighbours: few bits differ, or all below a carry."""
    power = rng.integers(LEAST, MOST) & -(1 << rng.integers(0, BITS))
    return power + rng.integers(-2, 3, count)


def stairs(rng: np.random.Generator, count: int) -> Orders:
    """Return ascending or descending numbers: each becomes the argmax, or none."""
    step = int(rng.choice([-1, 1, 1])) * int(rng.integers(1, 1 + MOST // max(count, 1)))
    return rng.integers(LEAST, MOST) // 2 - step * (count // 2) + step * np.arange(count)


def special(rng: np.random.Generator, count: int) -> Orders:
    """Return zeros, limits of the subnormal and of all numbers, infinities and NaNs."""
    infinity = BINARY32.exponent_mask << BINARY32.mantissa_bits
    subnormal = BINARY32.mantissa_mask
    ends = np.array([0, 1, subnormal, subnormal + 1, infinity - 1, infinity, infinity + 1, MOST])
    return rng.choice(rng.choice(np.concatenate([ends, ~ends]), rng.integers(1, 5)), count)


KINDS = (few, logits, noise, next_ones, stairs, special)
"""Generators of random logits."""


def drawn(p: LogitArgmaxParameters, rng: np.random.Generator) -> Iterator[Codes]:
    """Generate texts of all kinds, from no slice to the whole vocabulary."""
    while True:
        for kind in rng.permutation(np.array(KINDS, object)):
            short = int(rng.integers(1, 1 + min(p.slices, 6)))
            middling = int(rng.integers(1, 1 + p.slices))
            slices = (short, short, middling, p.slices)[rng.integers(4)]
            if rng.random() < 0.1:
                # A clear directly after a clear.
                slices = 0
            yield coded(p, kind(rng, slices * p.lanes))


def duels(p: LogitArgmaxParameters, rng: np.random.Generator) -> Iterator[Codes]:
    """Let each bit decide in each lane: in each comparison of the tree, and against the best.

    All other lanes are smaller, or equal to the smaller operand. Below the deciding bit both
    operands are equal or random; some operands are equal in all bits.
    """
    levels = latency_of(p) if p.slices > 1 else latency_of(p) - 1
    places = [
        (lane, level, bit, wins)
        for lane in range(p.lanes)
        for level in range(levels)
        for bit in range(BITS + 1)
        for wins in (False, True)
    ]
    while places:
        for number in rng.permutation(len(places)):
            lane, level, bit, wins = places[number]
            slices = int(rng.integers(1, 1 + min(p.slices, 4)))
            one = int(rng.integers(1 << BITS))
            # After the last bit: ties.
            other = one ^ 1 << bit if bit < BITS else one
            if bit < BITS and rng.random() < 0.5:
                other ^= int(rng.integers(1 << bit))
            pair = np.sort(ordered(np.array([one, other], np.uint32)))
            own, against = pair[::-1] if wins else pair
            if p.lanes >> level > 1:
                # In one slice, as both operands of the level's comparison.
                at = against_at = int(rng.integers(slices))
                against_lane = lane ^ 1 << level
                against_lane = against_lane >> level << level | int(rng.integers(1 << level))
            else:
                slices = max(slices, 2)
                against_at, at = np.sort(rng.choice(slices, 2, replace=False))
                against_lane = int(rng.integers(p.lanes))
            count = slices * p.lanes
            rest = rng.choice([LEAST, pair[0], noise(rng, 1)[0]])
            rest = noise(rng, count) if rng.random() < 0.3 else np.full(count, rest)
            text = np.minimum(rest, pair[0])
            text[at * p.lanes + lane] = own
            text[against_at * p.lanes + against_lane] = against
            yield coded(p, text)


def alone(p: LogitArgmaxParameters, rng: np.random.Generator) -> Iterator[Codes]:
    """Let each token be the only argmax of a whole vocabulary, or one of a few ties."""
    count = p.slices * p.lanes
    while True:
        # The last one is first.
        for token in (count - 1, *rng.permutation(count)):
            text = noise(rng, count)
            text[token] = most = int(rng.integers(text.max(), MOST + 1))
            if rng.random() < 0.5:
                text[rng.integers(0, count, rng.integers(1, 4))] = most
            yield coded(p, text)


@cocotb.test()
async def texts(dut: Any) -> None:
    """Find SmolLM2's tokens, one slice per cycle."""
    one = ArgmaxBench(dut, "texts")
    p, count = one.p, 1 if four_states() else 3
    sums = real_sums(p, 0, count * p.requests)
    requests = [sums[first :: p.requests] for first in range(p.requests)]
    cycles = one.woven(requests, eager=True)
    await one.run(cycles)
    # Up to the last clear.
    needed = int(np.flatnonzero(cycles.clear)[-1]) + 1
    tensors = f"SmolLM2's sums of {p.vocabulary} rows behind layer {LAYERS[-1]}, {len(sums)} tokens"
    one.bench.record(cycles=needed, ideal_cycles=len(sums) * p.slices, tensors=tensors)


@cocotb.test()
async def bits(dut: Any) -> None:
    """Let each bit decide in each lane, level by level; each once, if there is time."""
    one = ArgmaxBench(dut, "bits")
    await one.run(one.woven(one.fitting(duels(one.p, one.rng), share=0.5), eager=True))


@cocotb.test()
async def places(dut: Any) -> None:
    """Let each token of a whole vocabulary be the argmax."""
    one = ArgmaxBench(dut, "places")
    await one.run(one.woven(one.fitting(alone(one.p, one.rng))))


@cocotb.test()
@cocotb.parametrize(pattern=list(PAUSES))
async def gaps(dut: Any, pattern: str) -> None:
    """Compare random logits of all kinds, with every pattern of gaps between slices."""
    one = ArgmaxBench(dut, f"gaps {pattern}")
    await one.run(one.woven(one.fitting(drawn(one.p, one.rng), share=4), pattern))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset in the middle of a text; results after the reset do not depend on it."""
    one = ArgmaxBench(dut, "resets")
    p, rng = one.p, one.rng
    sums = drawn(p, rng)
    for _ in range(4 if four_states() else 40):
        requests = [list(islice(sums, 2)) for _ in range(p.requests)]
        cycles = one.woven(requests, rng.choice(["none", "random"]))
        # The last slices before it are often still in flight.
        most = min(len(cycles.strobe), int(rng.choice([6, 60, 2000])))
        await one.start(cycles)
        await one.bench.step(int(rng.integers(1, most + 1)))
        await one.run(one.woven([[next(sums)[:3]] for _ in range(p.requests)]))
    await one.run(one.woven(one.fitting(sums, share=8)))
