"""Testbench of RMSNorm: SmolLM2's hidden states, extremes, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.llm import open_trace
from golden.nonlinear.rms_norm import quantise_states, quantise_weights, rms_norm
from hdl.nonlinear.rms_norm import EPSILON_BITS, RmsNormParameters
from testbenches.bench import catalog_parameters
from testbenches.packing import pack, to_integers
from testbenches.slices import full_rate_cycles
from testbenches.stream_bench import Fields, StreamBench
from testbenches.streams import PAUSES, pause_until

Integers = NDArray[np.int64]
LAYERS = (0, 14, 29)
TOKENS = 640
EPSILON = 1e-5
"""SmolLM2's."""

LATENCY, READ_LATENCY = 10, 4
"""Cycles from a row's last slice to its first result, and from its first slice's reading."""

LOWEST, HIGHEST = -(1 << 15), (1 << 15) - 1


def prepare(p: RmsNormParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


class NormBench:
    """The unit's three streams; the weights belong to the slices of states in order."""

    def __init__(self, dut: Any, salt: str, states: str, weights: str, results: str) -> None:
        self.p = p = catalog_parameters()
        self.slices = StreamBench(
            dut,
            salt,
            source=("states", p.slice_layout),
            sink=("results", p.result_layout),
            pauses=(states, results),
        )
        self.bench = self.slices.bench
        self.weights = self.bench.source("weights", weights)

    def states_of(self, states: Integers, epsilon: Integers) -> Fields:
        """Cut rows into slices; epsilon is noise but in the first slice of each row."""
        count = len(states) * self.p.slices
        every = self.bench.numpy_rng.integers(0, 1 << EPSILON_BITS, count)
        every[:: self.p.slices] = epsilon
        return {
            "values": states.reshape(-1, self.p.lanes),
            "epsilon": every,
            "last": np.tile(np.arange(self.p.slices) == self.p.slices - 1, len(states)).astype(int),
        }

    def weights_of(self, weights: Integers) -> list[int]:
        """Pack rows of weights."""
        return to_integers(pack(self.p.values_layout, weights.reshape(-1, self.p.lanes)))

    async def run(self, states: Integers, epsilon: Integers, weights: Integers) -> int:
        """Run rows, each with its own weights, and compare; return the cycles."""
        offered = self.states_of(states, epsilon)
        await self.bench.reset()
        self.slices.sink.received.clear()
        self.slices.source.send(to_integers(pack(self.p.slice_layout, offered)))
        self.weights.send(self.weights_of(weights))
        count = len(offered["last"])
        cycles = await self.bench.run(until=lambda: len(self.slices.sink.received) == count)
        for _ in range(20):
            await self.bench.step()
        expected = [
            rms_norm(row[np.newaxis], units[np.newaxis], weight, self.p)
            for row, units, weight in zip(states, epsilon, weights, strict=True)
        ]
        values = np.concatenate(expected).reshape(-1, self.p.lanes)
        self.slices.check({"values": values, "last": offered["last"]})
        return cycles

    def random_rows(self, count: int) -> tuple[Integers, Integers, Integers]:
        """Return rows of random magnitudes, epsilons and weights."""
        rng, shape = self.bench.numpy_rng, (count, self.p.width)
        states = rng.integers(LOWEST, HIGHEST + 1, shape) >> rng.integers(0, 16, (count, 1))
        epsilon = rng.integers(0, 1 << EPSILON_BITS, count) >> rng.integers(0, 33, count)
        return states, epsilon, rng.integers(LOWEST, HIGHEST + 1, shape)


def real_rows(p: RmsNormParameters) -> tuple[Integers, Integers, Integers]:
    """Return hidden states of SmolLM2 before both norms' kind of row, and the norms' weights."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    states, epsilons, weights = [], [], []
    for layer in LAYERS:
        rows = trace.hidden(layer)[0][[0, 1, 2, *range(9, TOKENS, 70)]]
        weight = np.resize(trace.norm(layer, "input"), p.width)
        # Widths other than the model's take its elements as they come.
        rows = np.stack([np.resize(row, p.width) for row in rows])
        raw, epsilon = quantise_states(rows, EPSILON)
        states.append(raw)
        epsilons.append(epsilon)
        weights.append(np.broadcast_to(quantise_weights(weight, p), raw.shape))
    return np.concatenate(states), np.concatenate(epsilons), np.concatenate(weights)


@cocotb.test()
async def real_states(dut: Any) -> None:
    """Hidden states of SmolLM2 at full rate, bit for bit."""
    bench = NormBench(dut, "real_states", "none", "none", "none")
    states, epsilon, weights = real_rows(bench.p)
    cycles = await bench.run(states, epsilon, weights)
    slices = [bench.p.slices] * len(states)
    expected = full_rate_cycles(
        slices, rows=bench.p.rows, latency=LATENCY, read_latency=READ_LATENCY
    )
    bench.bench.compare("cycles", np.array([expected]), np.array([cycles]))
    # Bound: one slice a cycle, and at first the row that must be complete.
    ideal = sum(slices) + bench.p.slices
    tensors = f"SmolLM2 layers {LAYERS}, {len(states)} hidden states"
    bench.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
async def extremes(dut: Any) -> None:
    """All zero, all lowest, all highest, one element alone, and epsilon at its ends."""
    bench = NormBench(dut, "extremes", "none", "none", "none")
    width = bench.p.width
    alone = np.zeros(width, np.int64)
    alone[-1] = LOWEST
    rows = [np.full(width, value) for value in (0, LOWEST, HIGHEST, 1, -1)] + [alone, alone >> 15]
    ends = np.array([0, 1, (1 << EPSILON_BITS) - 1])
    states = np.repeat(rows, len(ends), axis=0)
    epsilon = np.tile(ends, len(rows))
    for weight in (LOWEST, HIGHEST, 0):
        await bench.run(states, epsilon, np.full(states.shape, weight))


@cocotb.test()
@cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Random rows under every pair of pause patterns; the weights pause at random."""
    bench = NormBench(dut, f"stalls {source} {sink}", source, "random", sink)
    await bench.run(*bench.random_rows(6))


@cocotb.test()
async def nobody_takes(dut: Any) -> None:
    """Fill the buffer with rows that wait, to the last place; then take them all."""
    bench = NormBench(dut, "nobody_takes", "none", "none", "none")
    rows = bench.p.rows + 2
    bench.slices.sink.pauses = pause_until(rows * bench.p.slices + 4 * LATENCY)
    await bench.run(*bench.random_rows(rows))


@cocotb.test()
@cocotb.parametrize(weights=list(PAUSES))
async def late_weights(dut: Any, weights: str) -> None:
    """Weights under every pause pattern, everything else at full rate."""
    bench = NormBench(dut, f"late_weights {weights}", "none", weights, "none")
    await bench.run(*bench.random_rows(6))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset in the middle of work, which leaves nothing behind."""
    bench = NormBench(dut, "resets", "random", "bursty", "random")
    rows = bench.random_rows(4)
    await bench.slices.disturb(bench.states_of(*rows[:2]), times=6, longest=3 * bench.p.slices)
    await bench.run(*rows)
