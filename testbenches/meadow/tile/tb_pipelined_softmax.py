"""Testbench of the pipelined softmax: SmolLM2's scores, masks, tables, stalls, resets."""

from functools import partial
from typing import Any

import cocotb
import numpy as np

from golden.llm import open_trace
from golden.meadow.tile.pipelined_softmax import Tokens, exponential_table, softmax
from hdl.meadow.tile.pipelined_softmax import (
    DISTANCES,
    RECIPROCAL_FRACTION,
    PipelinedSoftmaxParameters,
)
from testbenches.applicable import only_if
from testbenches.bench import catalog_parameters, context
from testbenches.packing import pack, to_integers
from testbenches.shared_tests import reset_test, stall_test
from testbenches.unit_bench import Fields, UnitBench

LAYERS = (0, 14, 29)
TOKENS = 640
REACH = 16.0
"""Largest distance of a score from the maximum; its exponential is below half a step."""

STEP = REACH / DISTANCES

Block = tuple[np.ndarray, Tokens]
"""A table of exponentials, and the tokens that use it."""

DIVISION = 21
"""Cycles between two reciprocals."""


def prepare(p: PipelinedSoftmaxParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def real_blocks(p: PipelinedSoftmaxParameters, tokens: int) -> list[Block]:
    """Return scores of SmolLM2 with as many features as the unit has, causally masked."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    features = min(p.scores, TOKENS)
    rows = []
    for layer in LAYERS:
        for head in np.arange(tokens) % trace.heads:
            scores = trace.attention_trace(layer, int(head)).scores[:features, :features]
            number = int(head * 53 + 7) * features // 512 % features
            exact = np.where(np.isfinite(scores[number]), scores[number], 0)
            raw = np.clip(np.rint(exact / STEP), -128, 127).astype(np.int64)
            rows.append((raw, (np.arange(features) <= number).astype(np.int64)))
    return [(exponential_table(STEP), rows)]


def random_blocks(p: PipelinedSoftmaxParameters, rng: Any, tokens: int) -> list[Block]:
    """Return tokens of random lengths, spreads and masks, and tables of all kinds."""
    tables = [
        exponential_table(STEP),
        exponential_table(0.5),
        rng.integers(0, 1 << 16, DISTANCES),
        np.full(DISTANCES, (1 << 16) - 1),
        np.zeros(DISTANCES, np.int64),
        # The probability of a single score is exactly 1, so that its product has one more bit.
        1 << rng.integers(0, 16, DISTANCES),
    ]
    blocks = []
    for table in tables:
        rows = []
        for _ in range(tokens):
            length = int(rng.choice((1, 2, p.scores, rng.integers(1, p.scores + 1))))
            scores = rng.integers(-128, 128, length) >> rng.integers(0, 8)
            keep = rng.integers(0, 2, length)
            keep[rng.integers(length)] = 1
            rows.append((scores, keep))
        blocks.append((table, rows))
    return blocks


def halves_blocks(p: PipelinedSoftmaxParameters, rng: Any, tokens: int) -> list[Block]:
    """Return tokens of four scores, one of whose probabilities is near a rounding tie.

    The last bits of exponentials, sums and reciprocals decide the rounding. The tables have large
    and small numbers. A few tokens have only the lowest scores.
    """
    blocks = []
    for shift in (0, 3, 6, 9, 12, 14):
        table = np.maximum(rng.integers(0, 1 << 16, DISTANCES) >> shift, 1)
        rows = []
        for first in rng.integers(1, DISTANCES, tokens):
            sums = table[0] + table[first] + table[:, np.newaxis] + table
            away = np.abs((table[first] << p.probability_bits) / sums % 1 - 0.5)
            nearest = rng.choice(away.argpartition(16, axis=None)[:16])
            distances = [0, first, *np.unravel_index(nearest, away.shape)]
            rows.append((127 - rng.permutation(distances), np.ones(4, int)))
        rows += [(rng.integers(-128, -120, 4), np.ones(4, int)) for _ in range(tokens // 4)]
        blocks.append((table, rows))
    return blocks


def last_bit_blocks(p: PipelinedSoftmaxParameters, rng: Any, tokens: int) -> list[Block]:
    """Return tokens of many large exponentials whose rounding depends on the sum's last bit."""
    table = rng.integers(1 << 15, 1 << 16, DISTANCES)
    distances = rng.integers(0, DISTANCES, (500 * tokens, min(p.scores, 40)))
    distances[:, 0] = 0
    powers = table[distances]
    total = powers.sum(axis=1)
    exponent = np.frexp(total.astype(np.float64))[1].astype(np.int64) - 1
    shown = [
        powers * ((1 << exponent + RECIPROCAL_FRACTION) // one)[:, np.newaxis]
        >> (exponent + RECIPROCAL_FRACTION - 1 - p.probability_bits)[:, np.newaxis]
        for one in (total, total ^ 1)
    ]
    decides = (shown[0] + 1 >> 1 != shown[1] + 1 >> 1).any(axis=1)
    decides[0] = True
    rows = [(127 - row, np.ones(len(row), int)) for row in distances[decides][:tokens]]
    return [(table, rows)]


def score_items(blocks: list[Block]) -> Fields:
    """Return the scores of all blocks, including masked ones."""
    rows = [row for _table, rows in blocks for row in rows]
    value, keep = (np.concatenate(part) for part in zip(*rows, strict=True))
    ends = np.cumsum([len(scores) for scores, _keep in rows])
    firsts = np.cumsum([0, *(len(rows) for _table, rows in blocks)])[:-1]
    last, reload = np.zeros((2, len(value)), np.int64)
    last[ends - 1] = 1
    reload[np.concatenate([[0], ends])[firsts]] = 1
    return {"value": value, "keep": keep, "reload": reload, "last": last}


class SoftmaxBench(UnitBench[list[Block]]):
    """Streams of scores, probabilities and tables.

    The next table is offered immediately, and must not change the one in use.
    """

    def __init__(
        self,
        dut: Any,
        salt: str,
        source: str = "none",
        sink: str = "none",
        entries: str = "none",
    ) -> None:
        p = catalog_parameters()
        super().__init__(
            dut,
            salt,
            source,
            sink,
            inputs={"scores": p.score_layout, "entries": 16},
            outputs={"probabilities": p.probability_layout},
            offered=lambda blocks: {
                "scores": score_items(blocks),
                "entries": np.concatenate([table for table, _rows in blocks]),
            },
            expected=lambda blocks: {
                "probabilities": {
                    "value": np.concatenate(
                        [softmax(*row, table, p) for table, rows in blocks for row in rows]
                    ),
                    "last": score_items(blocks)["last"],
                }
            },
            patterns={"entries": entries},
        )

    async def run_blocks(self, blocks: list[Block]) -> int:
        """Run blocks and compare; return the cycles from the first to the last probability."""
        await self.run(blocks)
        received = self.sinks["probabilities"].received
        return received[-1][0] - received[0][0] + 1


@cocotb.test()
async def real_scores(dut: Any) -> None:
    """Run scores of SmolLM2 at full rate: a token takes as many cycles as it has features."""
    bench = SoftmaxBench(dut, "real_scores")
    blocks = real_blocks(bench.p, 9 if context()["full"] else 5)
    cycles = await bench.run_blocks(blocks)
    features = [len(scores) for _table, rows in blocks for scores, _keep in rows]
    division = DIVISION
    ideal = sum(features[:-1]) + features[-1]
    # The documented rate; it does not apply if divisions take longer than tokens.
    if min(features) >= division:
        bench.bench.compare("cycles", np.array([ideal]), np.array([cycles]))
    tensors = f"SmolLM2 layers {LAYERS}, {len(features)} tokens of {features[0]} scores"
    bench.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
async def latency(dut: Any) -> None:
    """Measure the cycles from the last score of a token to its first probability."""
    bench = SoftmaxBench(dut, "latency")
    ((table, rows),) = real_blocks(bench.p, 1)
    received = bench.sinks["probabilities"].received
    await bench.bench.reset()
    bench.sources["entries"].send(int(entry) for entry in table)
    await bench.bench.run(until=lambda: bench.sources["entries"].idle)
    begin = bench.bench.cycle
    scores = score_items([(table, rows[:1])])
    bench.sources["scores"].send(to_integers(pack(bench.p.score_layout, scores)))
    await bench.bench.run(until=lambda: len(received) > 0)
    features = len(rows[0][0])
    # The buffer outputs a score two cycles after its input, and the operands of the division and of
    # the product have a register each.
    promised = begin + features - 1 + max(features, 3) + DIVISION + 5
    bench.bench.compare("cycle", np.array([promised]), np.array([received[0][0]]))


@cocotb.test()
async def short_tokens(dut: Any) -> None:
    """Run tokens of one and two scores: the divider limits the rate."""
    bench = SoftmaxBench(dut, "short_tokens")
    rows = [(np.array([n - 128] * (1 + n % 2)), np.ones(1 + n % 2, int)) for n in range(12)]
    cycles = await bench.run_blocks([(exponential_table(STEP), rows)])
    assert cycles <= len(rows) * DIVISION, cycles


@cocotb.test()
@only_if(lambda run: run.parameters.scores >= 4, "fewer scores have few sums")
async def halves(dut: Any) -> None:
    """Run probabilities whose rounding depends on the last bits, for sums of all magnitudes."""
    bench = SoftmaxBench(dut, "halves")
    await bench.run_blocks(halves_blocks(bench.p, bench.bench.numpy_rng, 48))


@cocotb.test()
async def last_bits(dut: Any) -> None:
    """Run probabilities whose rounding depends on the last bit of a large sum."""
    bench = SoftmaxBench(dut, "last_bits")
    await bench.run_blocks(last_bit_blocks(bench.p, bench.bench.numpy_rng, 100))


@cocotb.test()
async def slow_sink(dut: Any) -> None:
    """Accept probabilities at about the rate of reciprocals, so that queues fill and drain."""
    bench = SoftmaxBench(dut, "slow_sink")
    rng = bench.bench.rng
    rates = [tokens * 2 / DIVISION for tokens in (0.7, 1, 1.4)]
    bench.sinks["probabilities"].pauses = (
        rng.random() > rate for rate in iter(lambda: rng.choice(rates), None) for _ in range(300)
    )
    random = bench.bench.numpy_rng
    # Half of the exponentials are powers of two: the reciprocal of such a sum is also one.
    powers = 1 << random.integers(0, 16, DISTANCES)
    others = random.integers(1, 1 << 16, DISTANCES)
    table = np.where(random.random(DISTANCES) < 0.5, powers, others)
    rows = [(scores, np.ones(2, int)) for scores in random.integers(-40, 0, (1500, 2))]
    await bench.run_blocks([(table, rows)])


stalls = stall_test(
    partial(SoftmaxBench, entries="random"),
    lambda bench: random_blocks(bench.p, bench.bench.numpy_rng, 4),
)
resets = reset_test(
    partial(SoftmaxBench, entries="random"),
    lambda bench: random_blocks(bench.p, bench.bench.numpy_rng, 3),
    longest=3 * DISTANCES,
    times=6,
)
