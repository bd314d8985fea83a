"""Testbench of the EAS module: SmolLM2's decoding, collinear keys, stalls, resets."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_multiply import float_multiply
from golden.arith.float_values import codes, values
from golden.lad.eas.attention_score_module import (
    ONE,
    THRESHOLD,
    Centre,
    Scored,
    attention_scores,
    key_centre,
    large_modes,
)
from hdl.arith.float_format import BINARY16
from hdl.lad.eas.eas_parameters import AttentionScoreModuleParameters
from testbenches.arith import float_operands
from testbenches.arith.dot_operands import hard_partners, trimmed
from testbenches.bench import Bench, catalog_parameters, context
from testbenches.lad.vectors import LAYERS, head_vectors, random_codes
from testbenches.lad.vectors import prepare as prepare
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.shared_tests import reset_test, slow_stream_test, stall_test
from testbenches.streams import four_states

Codes = NDArray[np.uint16]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Step:
    """Query [d], keys [n, d], the last one new, and G [n] except for its last entry."""

    query: Codes
    keys: Codes
    centres: Integers
    norms: Codes
    ratios: Codes
    modes: Integers
    counts: Integers

    @property
    def length(self) -> int:
        """Number of positions."""
        return len(self.keys)

    @property
    def is_centre(self) -> NDArray[np.bool_]:
        """Flags of the positions before the newest that are centres."""
        return self.centres[:-1] == np.arange(self.length - 1)

    def precise(self, p: AttentionScoreModuleParameters) -> NDArray[np.bool_]:
        """Return M."""
        return large_modes(self.modes, intervals=p.apid.table.intervals, recent=p.apid.recent)

    def fetched(self, p: AttentionScoreModuleParameters) -> Integers:
        """Return the positions before the newest whose keys are needed: C and M."""
        return np.nonzero(self.is_centre | self.precise(p)[:-1])[0]

    def answer(self, p: AttentionScoreModuleParameters) -> tuple[Scored, Centre]:
        """Return the expected results."""
        rows = np.append(self.fetched(p), self.length - 1)
        scored = attention_scores(
            self.query, self.keys[rows], self.centres, self.ratios, self.precise(p), rows
        )
        centres = np.nonzero(self.is_centre)[0]
        found = key_centre(self.keys[-1], self.keys[centres], centres, self.norms[centres])
        return scored, found


class EasBench:
    """Connections to the module's six streams."""

    def __init__(
        self, dut: Any, salt: str, source: str = "none", sink: str = "none", centres: str = "none"
    ) -> None:
        self.p: AttentionScoreModuleParameters = catalog_parameters()
        self.started = 0
        self.bench = Bench(dut, salt)
        self.steps = self.bench.source("steps", source)
        self.keys = self.bench.source("keys", source)
        self.groups = self.bench.source("groups", source)
        self.headers = self.bench.sink("headers", sink)
        self.scores = self.bench.sink("scores", sink)
        self.centres = self.bench.sink("centres", centres)

    def offer(self, steps: list[Step]) -> None:
        """Queue steps; fields that must be ignored carry noise."""
        p, rng = self.p, self.bench.numpy_rng
        headers = {
            "query": np.stack([step.query for step in steps]),
            "key": np.stack([step.keys[-1] for step in steps]),
            "length": np.array([step.length for step in steps]),
        }
        self.steps.send(to_integers(pack(p.step_layout, headers)))
        for step in steps:
            rows = step.fetched(p)
            keys = {
                "key": step.keys[rows],
                "position": rows,
                "norm": step.norms[rows],
                "centre": step.is_centre[rows].astype(np.int64),
                "last": (rows == rows[-1:]).astype(np.int64),
            }
            if len(rows):
                self.keys.send(to_integers(pack(p.key_layout, keys)))
            self.groups.send(to_integers(pack(p.group_layout, self._groups(step, rng))))

    def _groups(self, step: Step, rng: np.random.Generator) -> dict[str, Any]:
        lanes = self.p.apid.lanes
        size = -(-step.length // lanes) * lanes
        fields = {}
        for name, limit in (
            ("centres", 1 << 16),
            ("ratios", 1 << 16),
            ("modes", 16),
            ("counts", 4096),
        ):
            padded = rng.integers(0, limit, size)
            padded[: step.length] = getattr(step, name)
            fields[name] = padded.reshape(-1, lanes)
        return fields

    async def run(self, steps: list[Step]) -> int:
        """Reset, run steps and compare; return the cycles to the last maximum."""
        await self.bench.reset()
        sinks = (self.headers, self.scores, self.centres)
        self.offer(steps)
        self.started = self.bench.cycle
        lanes = self.p.apid.lanes
        groups = sum(-(-step.length // lanes) for step in steps)
        wanted = (len(steps), groups, len(steps))
        cycles = await self.bench.run(
            until=lambda: all(
                len(sink.received) == count for sink, count in zip(sinks, wanted, strict=True)
            )
        )
        for _ in range(20):
            await self.bench.step()
        answers = [step.answer(self.p) for step in steps]
        self._check_scores(steps, [scored for scored, _centre in answers])
        self._check_centres(steps, [centre for _scored, centre in answers])
        return cycles

    def _check_scores(self, steps: list[Step], answers: list[Scored]) -> None:
        headers = self._received(self.headers, self.p.apid.step_layout)
        lengths = np.array([step.length for step in steps])
        self.bench.compare("length", lengths, headers["length"])
        maxima = np.array([answer.maximum for answer in answers])
        self.bench.compare("maximum", maxima, headers["maximum"], show=hex)
        got = self._received(self.scores, self.p.apid.group_layout)
        lanes, start = self.p.apid.lanes, 0
        for step, answer in zip(steps, answers, strict=True):
            end = start + -(-step.length // lanes)
            for name, expected in (
                ("scores", answer.scores.astype(np.int64)),
                ("modes", step.modes),
                ("counts", step.counts),
            ):
                part = got[name][start:end].reshape(-1)[: step.length]
                self.bench.compare(name, expected, part, show=hex)
            start = end

    def _check_centres(self, steps: list[Step], answers: list[Centre]) -> None:
        got = self._received(self.centres, self.p.centre_layout)
        own = np.array([step.length - 1 for step in steps])
        found = np.array([answer.centre for answer in answers])
        self.bench.compare("position", own, got["position"])
        self.bench.compare("centre", np.where(found < 0, own, found), got["centre"])
        for name in ("norm", "ratio"):
            expected = np.array([getattr(answer, name) for answer in answers], np.int64)
            self.bench.compare(name, expected, got[name], show=hex)

    @staticmethod
    def _received(sink: Any, layout: Any) -> Any:
        return unpack(
            layout, from_integers([payload for _cycle, payload in sink.received], layout.size)
        )


def real_steps(
    p: AttentionScoreModuleParameters, layer: int, head: int, lengths: list[int]
) -> list[Step]:
    """Return SmolLM2's steps at some lengths, with the centres of Algorithm 1 up to there.

    Modes are random; larger ones are less frequent.
    """
    size = p.vector.head_size
    queries = head_vectors("q", size, layer=layer, head=head)
    keys = head_vectors("k", size, layer=layer, head=head)
    rng = np.random.default_rng(layer)
    longest = max(lengths)
    centres, norms = np.arange(longest), np.zeros(longest, np.uint16)
    ratios = np.full(longest, ONE, np.uint16)
    for now in range(longest):
        members = np.nonzero(centres[:now] == np.arange(now))[0]
        found = key_centre(keys[now], keys[members], members, norms[members])
        centres[now] = now if found.centre < 0 else found.centre
        norms[now], ratios[now] = found.norm, found.ratio
    modes = np.minimum(rng.geometric(0.5, longest) - 1, p.apid.table.intervals - 1)
    counts = rng.integers(0, 4096, longest)
    steps = []
    for n in lengths:
        query = codes(values(queries[n - 1]) / np.sqrt(size))
        step = Step(query, keys[:n], centres[:n], norms[:n], ratios[:n], modes[:n], counts[:n])
        steps.append(step)
    return steps


def norm_of(key: Codes) -> int:
    """Return a key's norm, which the module outputs if there is no centre."""
    return key_centre(key, key[np.newaxis][:0], [], np.zeros(0, np.uint16)).norm


def random_step(p: AttentionScoreModuleParameters, rng: np.random.Generator, length: int) -> Step:
    """Return random codes, keys that are collinear or nearly so, equal keys, zero keys."""
    size = p.vector.head_size
    query = trimmed(rng, codes(rng.standard_normal(size)))
    hard = hard_partners(rng, np.broadcast_to(query, (length, size)))
    keys = np.where(rng.random((length, 1)) < 0.4, hard, random_codes(rng, (length, size)))
    for now in range(1, length):
        kind = rng.random()
        if kind < 0.5:
            # Of equal and other norms, down to subnormal quotients of norms.
            if rng.random() < 0.2:
                keys[now - 1] = codes(rng.standard_normal(size) * 2.0 ** rng.integers(0, 14))
            other = rng.uniform(1, 2) * 2.0 ** rng.integers(-23, 8) * rng.choice([1, -1])
            scale = codes(np.array(rng.choice([1, -1, 0.5, -3, 1.1, other, other, other])))
            copied = float_multiply(
                BINARY16, keys[rng.integers(0, now)], np.full(size, scale, np.uint16)
            )
            keys[now] = copied
        elif kind < 0.6:
            keys[now] = 0
        elif kind < 0.7:
            # The cosine to the neighbour is near the threshold.
            near = values(codes(rng.standard_normal(size)))
            aside = rng.standard_normal(size) * np.abs(near).max() * 0.12
            keys[now - 1], keys[now] = codes(near), codes(near + aside)
    members = rng.random(length) < rng.choice([0.2, 0.6, 1.0])
    members[0] = True
    if length > 1 and rng.random() < 0.4:
        # Two keys on an axis: the quotient of their norms has few digits, and ties if subnormal.
        axis = np.arange(size) == rng.integers(size)
        centre = rng.integers(length - 1)
        members[centre] = True
        keys[centre] = codes(axis * 2.0 ** rng.integers(-2, 15))
        keys[-1] = codes(axis * rng.integers(1, 8) * 2.0 ** rng.integers(-14, 2))
    choices = np.nonzero(members[:-1])[0] if length > 1 else np.zeros(1, np.int64)
    centres = np.where(members, np.arange(length), rng.choice(choices, length))
    norms = np.array([norm_of(key) for key in keys], np.uint16)
    norms = np.where(np.isfinite(values(norms)), norms, (keys & 0x7FFF).max(axis=1))
    # A norm that is too small lets more keys pass the threshold, and has other digits.
    smaller = codes(values(norms) * rng.uniform(0.5, 1.02, length))
    norms = np.where(rng.random(length) < 0.4, smaller, norms)
    small = np.where(
        rng.random(length) < 0.5, 1 << rng.integers(0, 10, length), random_codes(rng, (length,))
    )
    norms = np.where(rng.random(length) < 0.2, small, norms)
    # The score of a position without exact score is a product: subnormal numbers and ties, too.
    ratios = float_operands.random_codes(BINARY16, length, rng).astype(np.int64)
    return Step(
        query,
        keys,
        centres,
        norms.astype(np.uint16),
        trimmed(rng, ratios),
        rng.integers(0, 16, length) * (rng.random(length) < rng.choice([0.2, 1.0])),
        rng.integers(0, 4096, length),
    )


def norm_step(p: AttentionScoreModuleParameters, rng: np.random.Generator) -> Step:
    """Return a key of any norm, and one centre of its direction.

    Half of the centres have a norm with which the cosine is the threshold, or nearly so: each digit
    of the norms' product decides. The others are far above it, so that the norms' quotient is
    output.
    """
    step = random_step(p, rng, 2)
    key = codes(rng.standard_normal(p.vector.head_size) * 2.0 ** rng.integers(-12, 8))
    centre = codes(values(key) * 2.0 ** -rng.integers(0, 14))
    own = values(norm_of(key))
    least = float(values(key) @ values(centre)) / (own * values(THRESHOLD))
    near = 1 + rng.integers(-3, 4) / 2048
    norm = codes(least * (near if rng.random() < 0.5 else rng.uniform(0.01, 1)))
    return replace(
        step, keys=np.stack([centre, key]), centres=np.array([0, 1]), norms=np.array([norm, norm])
    )


def random_steps(p: AttentionScoreModuleParameters, rng: np.random.Generator) -> list[Step]:
    """Return steps of critical lengths: one, near `recent`, partial groups."""
    lanes, recent = p.apid.lanes, p.apid.recent
    high = min(p.apid.slots, 3 * lanes + recent)
    lengths = [1, 1, 2, recent, recent + 1, lanes, lanes + 1, high, 1]
    # Each lane needs many different products.
    more = 40 if p.vector.head_size < 16 else 6
    lengths += [int(length) for length in rng.integers(1, high + 1, more)]
    return [random_step(p, rng, int(np.clip(length, 1, p.apid.slots))) for length in lengths]


@cocotb.test()
async def real_keys(dut: Any) -> None:
    """Run SmolLM2's decoding: one key per cycle, and groups in parallel."""
    bench = EasBench(dut, "real_keys")
    p = bench.p
    high = min(p.apid.slots, 400)
    layers = LAYERS if context()["full"] else LAYERS[:1]
    steps = [
        step
        for layer in layers
        for step in real_steps(p, layer, layer % 9, [max(high - back, 2) for back in range(4)])
    ]
    await bench.run(steps)
    # Bound: one cycle per key. Equation 7 has (2 |C| + n / d + |M|) / 2, with d = 128.
    ideal = sum(len(step.fetched(p)) + 1 for step in steps[1:])
    size = p.vector.head_size
    formula = sum(
        (2 * int(step.is_centre.sum()) + step.length / size + int(step.precise(p).sum())) / 2
        for step in steps[1:]
    )
    seen = [cycle for cycle, _payload in bench.headers.received]
    bench.bench.record(
        cycles=seen[-1] - seen[0],
        ideal_cycles=ideal,
        equation_7=round(formula),
        centres=round(float(np.mean([step.is_centre.mean() for step in steps])), 3),
        tensors=f"SmolLM2 layers {layers}, {len(steps)} steps of {high} keys",
    )


@cocotb.test()
async def latency(dut: Any) -> None:
    """Measure one step of two positions: cycles to its maximum, and to its centre."""
    bench = EasBench(dut, "latency")
    p = bench.p
    await bench.run(real_steps(p, LAYERS[0], 0, [2]))
    begin = bench.bench.cycle
    levels, groups = (p.apid.lanes - 1).bit_length(), -(-2 // p.apid.lanes)
    # One cycle to load, the new key, the other key; the score is written, then looked up.
    last = 2 + p.vector.scalar_latency
    maximum = last + groups + 2 + p.multiply_stages + levels
    centre = last + p.cosine_stages + p.divide_stages + 1
    bench.bench.compare(
        "cycles from the maximum to the centre",
        np.array([centre - maximum]),
        np.array([bench.centres.received[0][0] - bench.headers.received[0][0]]),
    )
    bench.bench.compare(
        "cycles to both",
        np.array([max(centre, maximum) + 1 + 20]),
        np.array([begin - bench.started]),
    )


@cocotb.test()
async def back_to_back(dut: Any) -> None:
    """Run many short steps: with the divider's cycle between them, and centres in the queue."""
    bench = EasBench(dut, "back_to_back", centres="bursty")
    rng = bench.bench.numpy_rng
    # Each centre is a quotient of norms, which needs digits of all kinds.
    count = 500 if bench.p.vector.head_size < 16 and not four_states() else 60
    lengths = rng.choice([1, 2, 2, 2, 3, 6], count).clip(max=bench.p.apid.slots)
    await bench.run([random_step(bench.p, rng, int(length)) for length in lengths])


@cocotb.test()
async def norms(dut: Any) -> None:
    """Run one norm per step, and its quotient with the centre's norm."""
    bench = EasBench(dut, "norms")
    rng = bench.bench.numpy_rng
    count = 1500 if bench.p.vector.head_size < 16 and not four_states() else 60
    await bench.run([norm_step(bench.p, rng) for _ in range(count)])


def short_and_long_steps(bench: EasBench) -> list[Step]:
    """Return steps of any length up to eighteen positions, half of them as long as that."""
    rng, most = bench.bench.numpy_rng, min(18, bench.p.apid.slots)
    lengths = np.where(rng.random(60) < 0.5, most, rng.integers(1, most + 1, 60))
    return [random_step(bench.p, rng, int(length)) for length in lengths]


stalls = stall_test(
    partial(EasBench, centres="random"),
    lambda bench: random_steps(bench.p, bench.bench.numpy_rng),
)
# One output is so rarely ready that all queues upstream are full.
slow_stream = slow_stream_test(
    EasBench, short_and_long_steps, streams=["headers", "centres"], patterns=["filling"]
)
resets = reset_test(
    partial(EasBench, centres="random"),
    lambda bench: random_steps(bench.p, bench.bench.numpy_rng),
    longest=60,
    times=6,
)
