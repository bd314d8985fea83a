"""Testbench of argmax: real logits, deciding bits, interleaved rows, stalls, resets."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.llm import open_trace
from golden.llm.language_model import open_language_model
from golden.llm.layers import rms_norm
from golden.nonlinear.argmax import argmax_of_slices
from hdl.arith.float_format import BINARY16
from hdl.nonlinear.argmax import ArgmaxParameters
from testbenches.bench import catalog_parameters
from testbenches.packing import pack, to_integers
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import Port, Stream, four_states, read
from testbenches.unit_bench import Fields, UnitBench

Integers = NDArray[np.int64]
Row = Integers
"""Values of a row, any number of them: codes of a floating-point format, or integers."""

LAYERS, TOKENS = (0, 14, 29), 640

BUDGET = 12_000
"""Slices per test; long rows are few, and short ones many."""


def prepare(p: ArgmaxParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def limits(p: ArgmaxParameters) -> tuple[int, int]:
    """Return the ranks of the least and of the largest value; 0 is the least positive one."""
    return -(1 << p.width - 1), (1 << p.width - 1) - 1


def ranked(p: ArgmaxParameters, ranks: Any) -> Row:
    """Return the values of ranks: integers, or codes in the total order of the format."""
    ranks = np.clip(np.asarray(ranks, np.int64), *limits(p))
    if p.number_format is None:
        return ranks
    return np.where(ranks < 0, p.number_format.sign_mask - 1 - ranks, ranks)


def real_logits(p: ArgmaxParameters, count: int) -> list[Row]:
    """Return SmolLM2's logits of some tokens.

    Short rows are sums of a feed-forward layer, to avoid loading the LM head.
    """
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    tokens = np.arange(count) % TOKENS
    gate = trace.linear(LAYERS[-1], "gate_proj")
    if p.length <= len(gate.weight):
        logits = gate.inputs[tokens] @ gate.weight.T
    else:
        states = rms_norm(trace.hidden(LAYERS[-1])[1][tokens].astype(np.float64))
        logits = states @ open_language_model().projection()
    # Integers have up to 48 bits: binary32 would round the largest one to more than its limit.
    logits = np.take(logits, np.arange(p.length), axis=1, mode="wrap").astype(np.float64)
    if p.number_format is None:
        scale = (limits(p)[1] - 1) / np.abs(logits).max()
        return list(np.rint(logits * scale).astype(np.int64))
    half = p.number_format == BINARY16
    codes = logits.astype(np.float16 if half else np.float32)
    return list(codes.view(np.uint16 if half else np.uint32).astype(np.int64))


def few(p: ArgmaxParameters, rng: np.random.Generator, count: int) -> Row:
    """Return a few values, each in many lanes, with zeros of both signs."""
    return ranked(p, rng.integers(-3, rng.integers(-2, 4), count))


def noise(p: ArgmaxParameters, rng: np.random.Generator, count: int) -> Row:
    """Return random codes, including special ones."""
    low, high = limits(p)
    return ranked(p, rng.integers(low, high, count, endpoint=True))


def next_ones(p: ArgmaxParameters, rng: np.random.Generator, count: int) -> Row:
    """Return a value and its neighbours: few bits differ, or all bits above a carry."""
    power = rng.integers(*limits(p)) & -(1 << rng.integers(0, p.width))
    return ranked(p, power + rng.integers(-2, 3, count))


def stairs(p: ArgmaxParameters, rng: np.random.Generator, count: int) -> Row:
    """Return ascending, descending or equal values."""
    low, high = limits(p)
    step = int(rng.choice([-1, 0, 1])) * int(rng.integers(1, 2 + (high - low) // (2 * count)))
    return ranked(p, rng.integers(low // 2, high // 2) + step * (np.arange(count) - count // 2))


def special_codes(p: ArgmaxParameters) -> Row:
    """Return zeros, limits of subnormal, normal and all numbers, infinities and NaNs."""
    low, high = limits(p)
    if p.number_format is None:
        return np.array([low, low + 1, -1, 0, 1, high - 1, high])
    f = p.number_format
    ends = {0, f.min_subnormal, f.min_normal - 1, f.min_normal, f.max_finite, f.magnitude_mask}
    ends |= {f.infinity or 0, (f.infinity or 0) + 1, f.quiet_nan or 0}
    return np.array(sorted(ends | {end | f.sign_mask for end in ends}))


def special(p: ArgmaxParameters, rng: np.random.Generator, count: int) -> Row:
    """Return a few special codes, each in many lanes."""
    return rng.choice(rng.choice(special_codes(p), rng.integers(1, 5)), count)


def special_pairs(p: ArgmaxParameters) -> list[Row]:
    """Return rows with each pair of special codes, in both orders, as far as a row has room."""
    codes = special_codes(p)
    return [np.array([one, other])[: p.length] for one in codes for other in codes]


def least(p: ArgmaxParameters, rng: np.random.Generator, count: int) -> Row:
    """Return no number: only NaNs, or the least integer."""
    if p.number_format is None or p.number_format.infinity is None:
        return np.full(count, limits(p)[0])
    low, high = p.number_format.infinity + 1, p.number_format.magnitude_mask
    signs = rng.choice([0, p.number_format.sign_mask], count)
    return rng.integers(low, high, count, endpoint=True) | signs


Kind = Callable[[ArgmaxParameters, np.random.Generator, int], Row]
KINDS: tuple[Kind, ...] = (few, noise, next_ones, stairs, special, least)
"""Generators of random rows."""


def random_rows(p: ArgmaxParameters, rng: np.random.Generator) -> Iterator[Row]:
    """Generate rows of all kinds, of one value up to the longest row."""
    while True:
        for kind in rng.permutation(np.array(KINDS, object)):
            most = rng.choice([min(p.length, 3 * p.lanes), p.length])
            yield kind(p, rng, int(rng.integers(1, most, endpoint=True)))


def deciding_bits(p: ArgmaxParameters, rng: np.random.Generator) -> Iterator[Row]:
    """Let each bit decide in each lane, at each comparator of the lane, or by a tie."""
    cases = [(lane, bit) for lane in range(min(p.lanes, p.length)) for bit in range(p.width + 1)]
    while True:
        for number in rng.permutation(len(cases)):
            lane, bit = cases[number]
            code = int(noise(p, rng, 1)[0])
            other = code ^ (1 << bit if bit < p.width else 0)
            if p.number_format is None and bit == p.width - 1:
                other = code + (1 << p.width) * (code < 0) - (1 << p.width - 1)
            count = int(rng.integers(lane + 1, min(p.length, lane + 4 * p.lanes), endpoint=True))
            filler = rng.choice([code, other, least(p, rng, 1)[0]])
            row = np.full(count, filler)
            row[rng.integers(count)] = other
            row[rng.choice(np.arange(lane, count, p.lanes))] = code
            yield row


def alone(p: ArgmaxParameters, rng: np.random.Generator) -> Iterator[Row]:
    """Let each index of the longest row be the only largest value; the last index is first."""
    low, high = limits(p)
    most = high if p.number_format is None else p.number_format.max_finite
    while True:
        for index in (p.length - 1, *rng.permutation(p.length)):
            row = ranked(p, rng.integers(low, most // 2, p.length))
            row[index] = most
            yield row


def sliced(
    p: ArgmaxParameters, rng: np.random.Generator, rows: list[Row], *, ordered: bool = False
) -> Fields:
    """Cut rows into slices; rows of different contexts are interleaved unless `ordered`.

    Lanes without a value have random values. In one of ten slices, and in the last slice of a row,
    `count` is less than the number of lanes.
    """
    waiting = [list(rows[context :: p.contexts]) for context in range(p.contexts)]
    parts: list[tuple[int, Row, bool, bool]] = []
    left: list[list[tuple[int, Row, bool, bool]]] = [[] for _ in waiting]
    while any(waiting) or any(left):
        able = [one for one in range(p.contexts) if left[one] or waiting[one]]
        context = able[0] if ordered else int(rng.choice(able))
        if not left[context]:
            row = waiting[context].pop(0)
            starts = range(0, len(row), p.lanes)
            left[context] = [
                (context, row[at : at + p.lanes], at == 0, at + p.lanes >= len(row))
                for at in starts
            ]
        run = len(left[context]) if ordered else int(rng.choice([1, 1, 3, 40]))
        parts += left[context][:run]
        left[context] = left[context][run:]
    count = np.array([len(part[1]) for part in parts])
    if not ordered:
        fewer = rng.random(len(parts)) < 0.1
        count[fewer] = rng.integers(0, p.lanes, int(fewer.sum()))
    values = noise(p, rng, len(parts) * p.lanes).reshape(-1, p.lanes)
    for slots, (_context, own, _first, _last) in zip(values, parts, strict=True):
        slots[: len(own)] = own
    fields = {
        "values": values,
        "count": count,
        "first": np.array([part[2] for part in parts]).astype(int),
        "last": np.array([part[3] for part in parts]).astype(int),
    }
    context = np.array([part[0] for part in parts])
    return fields | ({"context": context} if p.contexts > 1 else {})


class SkewedSource:
    """Driver of skewed slices: lane i's value is input i cycles with `ready` after its slice.

    Parameters
    ----------
    dut : Any
        The design under test.
    rng : numpy.random.Generator
        Generator of the values between slices.
    pauses : Iterator[bool]
        Gaps between slices, in cycles with `ready`.
    """

    def __init__(self, dut: Any, rng: np.random.Generator, pauses: Iterator[bool]) -> None:
        self.p: ArgmaxParameters = catalog_parameters()
        self.stream, self.rng, self.pauses = Stream(dut, "slices"), rng, pauses
        self.inputs: list[tuple[int, int]] = []

    def clear(self) -> None:
        """Discard all slices."""
        self.inputs.clear()
        self.stream.valid.value = 0

    def send_fields(self, fields: Fields) -> None:
        """Queue slices with gaps; values between slices are random."""
        times = []
        for _ in fields["last"]:
            time = times[-1] + 1 if times else 0
            while next(self.pauses):
                time += 1
            times.append(time)
        p, total, at = self.p, times[-1] + self.p.lanes, np.array(times)
        values = noise(p, self.rng, total * p.lanes).reshape(total, p.lanes)
        for lane in range(p.lanes):
            values[at + lane, lane] = fields["values"][:, lane]
        payload = {"values": values}
        for name in (one for one in fields if one != "values"):
            payload[name] = self.rng.integers(0, 2, total)
            payload[name][at] = fields[name]
        packed = to_integers(pack(p.slice_layout, payload))
        valid = np.isin(np.arange(total), at).astype(int).tolist()
        self.inputs = list(zip(valid, packed, strict=True))[::-1]

    def drive(self) -> None:
        """Set the inputs of this cycle."""
        if self.inputs:
            self.stream.valid.value, self.stream.payload.value = self.inputs[-1]
        else:
            self.stream.valid.value = 0

    def sample(self) -> None:
        """Advance in cycles with `ready`."""
        if self.inputs and self.stream.ready.value:
            self.inputs.pop()


class HeldPayload:
    """Monitor: the payload of `results` does not change before the next result."""

    def __init__(self, dut: Any) -> None:
        self.valid, self.payload = Port(dut.results_valid), Port(dut.results_payload)
        self.seen: int | None = None

    def clear(self) -> None:
        """Expect nothing after a reset."""
        self.seen = None

    def drive(self) -> None:
        """Drive nothing."""

    def sample(self) -> None:
        """Compare the payload between two results."""
        if self.seen is None and not read(self.valid):
            return
        payload = read(self.payload)
        assert read(self.valid) or payload == self.seen, "the payload changed without a result"
        self.seen = payload


class ArgmaxBench(UnitBench[Fields]):
    """The unit's streams, and the number of rows that a test has time for.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Pause patterns of slices and results.
    """

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        p: ArgmaxParameters = catalog_parameters()
        super().__init__(
            dut,
            salt,
            "none" if p.skewed else source,
            sink,
            inputs={"slices": p.slice_layout},
            outputs={"results": p.result_layout},
            offered=lambda slices: {"slices": slices},
            expected=lambda slices: {"results": argmax_of_slices(p, slices)},
        )
        self.rng = self.bench.numpy_rng
        self.bench.add(HeldPayload(dut))
        if p.skewed:
            # It replaces the driver of slices whose lanes are input together.
            self.bench.parts.remove(self.sources["slices"])
            self.skewed = self.bench.add(SkewedSource(dut, self.rng, self.bench.pauses(source)))

    def offer(self, work: Fields) -> None:
        """Queue slices."""
        if self.p.skewed:
            self.skewed.send_fields(work)
        else:
            super().offer(work)

    def fitting(self, rows: Iterator[Row], share: float = 1) -> list[Row]:
        """Return the rows for which a test, or a part of it, has time; one per context at least."""
        left = BUDGET / (10 if four_states() else 1) / share
        found = list(islice(rows, self.p.contexts))
        while (left := left - len(found[-1]) / self.p.lanes) > 0:
            found.append(next(rows))
        return found

    def slices_of(self, rows: list[Row], *, ordered: bool = False) -> Fields:
        """Cut rows into slices, in random order of the contexts unless `ordered`."""
        return sliced(self.p, self.rng, rows, ordered=ordered)

    def random_slices(self, rows: int, slices: int | None = None) -> Fields:
        """Return random rows per context, cut to a number of slices."""
        found = islice(random_rows(self.p, self.rng), rows * self.p.contexts)
        most = None if slices is None else slices * self.p.lanes
        return self.slices_of([row[:most] for row in found])


@cocotb.test()
async def logits(dut: Any) -> None:
    """Find SmolLM2's tokens, one slice per cycle."""
    one = ArgmaxBench(dut, "logits")
    rows = real_logits(one.p, 1 if four_states() else 4)
    slices = sliced(one.p, one.rng, rows, ordered=True)
    cycles, ideal = await one.run(slices), len(slices["last"])
    one.bench.compare("cycles", np.array([ideal + one.p.latency]), np.array([cycles]))
    tensors = (
        f"SmolLM2's logits of {one.p.length} tokens after layer {LAYERS[-1]}, {len(rows)} rows"
    )
    one.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
async def bits(dut: Any) -> None:
    """Let each bit decide in each lane."""
    one = ArgmaxBench(dut, "bits")
    await one.run(one.slices_of(one.fitting(deciding_bits(one.p, one.rng))))


@cocotb.test()
async def corners(dut: Any) -> None:
    """Compare each special code with each other one: zeros, subnormals, infinities, NaNs."""
    one = ArgmaxBench(dut, "corners")
    await one.run(one.slices_of(special_pairs(one.p)))


@cocotb.test()
async def places(dut: Any) -> None:
    """Let each index of the longest row be the argmax."""
    one = ArgmaxBench(dut, "places")
    await one.run(one.slices_of(one.fitting(alone(one.p, one.rng))))


stalls = stall_test(
    ArgmaxBench,
    lambda one: one.slices_of(one.fitting(random_rows(one.p, one.rng), share=12)),
)
resets = reset_test(
    ArgmaxBench,
    lambda one: one.random_slices(1, slices=4),
    begun=lambda one: one.random_slices(2),
    rounds=lambda one: 4 if four_states() else 30,
    longest=lambda one: one.bench.rng.choice([6, 60]),
    pauses=("random", "random"),
)
