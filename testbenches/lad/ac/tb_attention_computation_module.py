"""Testbench of the AC module: SmolLM2's caches, random and special numbers, stalls, resets."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_round import encode
from golden.arith.float_values import codes, values
from golden.lad.ac.attention_computation_module import Computed, Corrections, attention
from golden.lad.apid.active_position_module import exact_interval
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.interval_table import EIGHT
from testbenches.arith.dot_operands import trimmed
from testbenches.bench import Bench, catalog_parameters, context
from testbenches.lad.vectors import LAYERS, head_vectors
from testbenches.lad.vectors import prepare as prepare
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import four_states

Codes = NDArray[np.uint16]


@dataclass(frozen=True)
class Step:
    """Inputs of a step: query [d], max_s, active positions, and caches [d + 1, d + 2]."""

    query: Codes
    maximum: int
    corrections: Corrections
    caches: NDArray[np.uint64]

    def answer(self, p: AttentionComputationModuleParameters) -> Computed:
        """Return the expected results."""
        return attention(
            self.caches,
            self.query,
            self.maximum,
            self.corrections,
            cache_format=p.cache_format,
            lanes=p.lanes,
            interleaved=p.cache_stages,
            updates=p.updates,
        )


class AcBench:
    """Connections to the module's six streams."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: AttentionComputationModuleParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        names = ("caches", "steps", "coefficients", "vectors")
        self.sources = {name: self.bench.source(name, source) for name in names}
        self.sinks = {name: self.bench.sink(name, sink) for name in ("outputs", "updated")}

    def offer(self, steps: list[Step]) -> None:
        """Queue steps; lanes without a position carry noise."""
        p, rng = self.p, self.bench.numpy_rng
        for step in steps:
            words = {"word": step.caches.astype(np.int64)}
            self.sources["caches"].send(to_integers(pack(p.cache_layout, words)))
            header = {"query": step.query[np.newaxis], "maximum": np.array([step.maximum])}
            self.sources["steps"].send(to_integers(pack(p.step_layout, header)))
            count = len(step.corrections.alpha)
            transfers = -(-count // p.lanes)

            def spread(array: Any, limit: int, count: int = count, size: int = transfers) -> Any:
                padded = rng.integers(0, limit, (size * p.lanes, *array.shape[1:]))
                padded[:count] = array
                return padded.reshape(size, p.lanes, *array.shape[1:])

            one = step.corrections
            names = ("alpha_score", "alpha", "beta")
            lanes = {name: spread(getattr(one, name), 1 << 16) for name in names}
            lanes["update"] = spread(one.update.astype(np.int64), 2)
            there = np.minimum(count - np.arange(0, count, p.lanes), p.lanes)
            fields = {
                "lanes": lanes,
                "present": (1 << there) - 1,
                "last": (np.arange(transfers) == transfers - 1).astype(np.int64),
            }
            self.sources["coefficients"].send(to_integers(pack(p.coefficients_layout, fields)))
            vectors = {name: spread(getattr(one, name), 1 << 16) for name in ("keys", "values")}
            self.sources["vectors"].send(to_integers(pack(p.vectors_layout, vectors)))

    async def run(self, steps: list[Step]) -> list[int]:
        """Reset, run steps and compare; return the cycle of each output."""
        await self.bench.reset()
        self.offer(steps)
        columns = self.p.columns
        await self.bench.run(
            until=lambda: (
                len(self.sinks["updated"].received) == len(steps) * columns
                and len(self.sinks["outputs"].received) == len(steps)
            )
        )
        for _ in range(20):
            await self.bench.step()
        self._check([step.answer(self.p) for step in steps])
        return [cycle for cycle, _payload in self.sinks["outputs"].received]

    def _check(self, answers: list[Computed]) -> None:
        p, show = self.p, "{:#x}".format
        got = {}
        for name, layout in (("outputs", p.output_layout), ("updated", p.cache_layout)):
            packed = [payload for _cycle, payload in self.sinks[name].received]
            got[name] = unpack(layout, from_integers(packed, layout.size))
        outputs = np.stack([answer.output for answer in answers]).astype(np.int64)
        flags = np.array([answer.not_positive for answer in answers]).astype(np.int64)
        caches = np.concatenate([answer.caches for answer in answers]).astype(np.int64)
        self.bench.compare("outputs", outputs, got["outputs"]["values"], show=show)
        self.bench.compare("not positive", flags, got["outputs"]["not_positive"])
        self.bench.compare("caches", caches, got["updated"]["word"], show=show)


def real_steps(
    p: AttentionComputationModuleParameters, number: int, active: int, updates: int
) -> list[Step]:
    """Return SmolLM2's decode steps with exact caches; some positions have a wrong mode."""
    rng = np.random.default_rng(number + active)
    steps, size = [], p.vector.head_size
    a, b = (values(np.array(line)) for line in (EIGHT.a, EIGHT.b))
    for index in range(number):
        layer = LAYERS[index % len(LAYERS)]
        queries, keys, vectors = (
            head_vectors(name, size, layer=layer, head=index % 9) for name in "qkv"
        )
        query = codes(values(queries[-1 - index]) / np.sqrt(size))
        score = values(keys) @ values(query)
        maximum = codes(score.max())
        interval = exact_interval(score - values(maximum), EIGHT)
        mode = interval.copy()
        chosen = np.sort(rng.choice(len(keys), min(active, len(keys)), replace=False))
        mode[chosen] = np.clip(mode[chosen] + rng.choice([-1, 1], len(chosen)), 0, 7)
        extended = np.concatenate([values(keys), np.ones((len(keys), 2))], axis=1)
        weights = np.stack([a[mode]] * (size + 1) + [b[mode]], axis=1)
        ones = np.concatenate([values(vectors), np.ones((len(keys), 1))], axis=1)
        exact = np.einsum("ir,ik->rk", ones, weights * extended)
        alpha = codes(a[interval] - a[mode])[chosen]
        beta = codes(b[interval] - b[mode])[chosen]
        update = np.zeros(len(chosen), bool)
        update[rng.choice(len(chosen), min(updates, len(chosen)), replace=False)] = True
        corrections = Corrections(
            codes(values(alpha) * score[chosen]), alpha, beta, update, keys[chosen], vectors[chosen]
        )
        caches = encode(p.cache_format, exact)
        steps.append(Step(query, int(maximum), corrections, caches))
    return steps


def random_steps(p: AttentionComputationModuleParameters, rng: np.random.Generator) -> list[Step]:
    """Return steps with every number of positions in the last transfer, and any number in U."""
    steps, size = [], p.vector.head_size
    # Each lane needs many different sums, also where there are few lanes.
    often = 8 if size < 16 else 1
    for number, count in enumerate([1, 2, 3, 4, 5, *rng.integers(6, 14, often)] * often):
        # From ordinary numbers to numbers of few digits that are often subnormal.
        low = (-6, -14, -20)[number % 3]

        def draw(*shape: int, low: int = low) -> Codes:
            numbers = codes(rng.standard_normal(shape) * 2.0 ** rng.integers(low, 3, shape))
            return np.where(rng.random(shape) < 0.5, trimmed(rng, numbers), numbers)

        update = rng.random(count) < rng.choice([0.0, 0.3, 0.8, 1.0])
        corrections = Corrections(
            draw(count), draw(count), draw(count), update, draw(count, size), draw(count, size)
        )
        if count > 5:
            # A large product and its negative: a small product that only one of them is added to is
            # lost.
            large = codes(rng.standard_normal(size) * 2.0**14)
            for part in (corrections.alpha_score, corrections.alpha, corrections.beta):
                part[-1] = part[0]
            corrections.keys[-1] = corrections.keys[0]
            corrections.values[[0, -1]] = large, large ^ 0x8000
        shape = (size + 1, size + 2)
        reach = 2.0 ** rng.integers(low, 3, shape)
        caches = encode(p.cache_format, rng.standard_normal(shape) * reach)
        if rng.random() < 0.2:
            # A denominator of 0: the flag is set, and the values are those of IEEE 754.
            caches[-1] = 0
            corrections.alpha[:] = corrections.alpha_score[:] = corrections.beta[:] = 0
        steps.append(Step(draw(size), int(draw(1)[0]), corrections, caches))
    return steps


def special_steps(p: AttentionComputationModuleParameters, rng: np.random.Generator) -> list[Step]:
    """Return steps with one special number each: one-bit mantissas, NaNs, infinities, zeros.

    The number is in any operand or in the caches; all other sums must be unaffected.
    """
    steps = []
    for step in random_steps(p, rng):
        one_bit = 1 << int(rng.integers(10))
        code = rng.choice([0, one_bit, 0x7C00, 0x7C00 | one_bit]) | rng.choice([0, 0x8000])
        where = step.corrections
        operands = (
            where.alpha_score,
            where.alpha,
            where.beta,
            where.keys,
            where.values,
            step.query,
        )
        number = rng.integers(len(operands) + 2)
        if number < len(operands):
            operands[number].flat[rng.integers(operands[number].size)] = code
        else:
            row, column = (rng.integers(size) for size in step.caches.shape)
            special = np.array(code, np.uint16).view(np.float16).astype(float)
            step.caches[row, column] = encode(p.cache_format, special)
        steps.append(step)
    return steps


@cocotb.test()
async def real_caches(dut: Any) -> None:
    """Run SmolLM2's attention, with as many corrections and updates as were measured."""
    bench = AcBench(dut, "real_caches")
    p = bench.p
    steps = real_steps(p, 6 if context()["full"] else 3, 60, 4)
    outputs = await bench.run(steps)
    size = p.vector.head_size
    formula = 0.0
    # From output to output: the interval of steps.
    for step in steps[1:]:
        updated = int(step.corrections.update.sum())
        formula += (size + len(step.corrections.alpha) + updated * size + 3 * updated) / 3
    bench.bench.record(
        cycles=outputs[-1] - outputs[0],
        ideal_cycles=int(np.ceil(formula)),
        tensors=f"SmolLM2 layers {LAYERS}, {len(steps)} steps",
    )


@cocotb.test()
async def specials(dut: Any) -> None:
    """Run zeros, subnormal numbers, infinities and NaNs, one at a time."""
    bench = AcBench(dut, "specials")
    for _ in range(16 if bench.p.vector.head_size < 16 and not four_states() else 1):
        await bench.run(special_steps(bench.p, bench.bench.numpy_rng))


stalls = stall_test(
    AcBench,
    lambda bench: random_steps(bench.p, bench.bench.numpy_rng),
    pairs=list(product(["none", "random", "adversarial"], ["none", "random", "bursty"])),
)
resets = reset_test(
    AcBench,
    lambda bench: random_steps(bench.p, bench.bench.numpy_rng),
    longest=150,
    times=5,
    pauses=("random", "random"),
)
