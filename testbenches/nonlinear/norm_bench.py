"""Common parts of the testbenches of norms over rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm import open_trace
from golden.nonlinear.row_norm import quantise_states, quantise_weights
from hdl.nonlinear.row_norm import EPSILON_BITS, OUTPUT, RowNormParameters
from testbenches.bench import catalog_parameters
from testbenches.slices import full_rate_cycles
from testbenches.streams import four_states
from testbenches.unit_bench import Fields, UnitBench

Integers = NDArray[np.int64]
Rows = tuple[Integers, ...]
"""States [count, width], epsilon [count], and each operand [count, width]."""

Model = Callable[..., Integers]
"""Map states [1, width], epsilon [1], and each operand [width], to normalised rows."""

Exact = Callable[..., NDArray[np.float64]]
"""The same for any number of rows, in float64."""

LAYERS = (0, 14, 29)
TOKENS = 640
EPSILON = 1e-5
"""Epsilon of SmolLM2."""

CLAMP_SLICES = 4096
"""Number of slices for which every result near the limits occurs, including by rounding."""

LOWEST, HIGHEST = -(1 << 15), (1 << 15) - 1


def capture() -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


class NormBench(UnitBench[Rows]):
    """The unit's three streams; operands correspond to the slices of states in order.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Pause patterns of states and results.
    operands : str
        Pause pattern of the operands.
    stream : str
        Name of the stream of operands.
    layout : ShapeLike
        Layout of the operands.
    names : tuple[str, ...]
        Names of the operands: fields of the layout, or one name for all of it.
    model : Model
        Golden model of the unit.
    """

    def __init__(
        self,
        dut: Any,
        salt: str,
        source: str = "none",
        sink: str = "none",
        *,
        operands: str = "none",
        stream: str,
        layout: Any,
        names: tuple[str, ...],
        model: Model,
    ) -> None:
        p = catalog_parameters()
        self.stream, self.names, self.model = stream, names, model
        super().__init__(
            dut,
            salt,
            source,
            sink,
            inputs={"states": p.slice_layout, stream: layout},
            outputs={"results": p.result_layout},
            offered=self._offered,
            expected=self._expected,
            patterns={stream: operands},
        )

    def _offered(self, rows: Rows) -> dict[str, Fields]:
        """Cut rows into slices; epsilon is random except in the first slice of each row."""
        states, epsilon, *operands = rows
        every = self.bench.numpy_rng.integers(0, 1 << EPSILON_BITS, len(states) * self.p.slices)
        every[:: self.p.slices] = epsilon
        cut = [part.reshape(-1, self.p.lanes) for part in operands]
        slices = {
            "values": states.reshape(-1, self.p.lanes),
            "epsilon": every,
            "last": self._last(len(states)),
        }
        own: Any = cut[0] if len(cut) == 1 else dict(zip(self.names, cut, strict=True))
        return {"states": slices, self.stream: own}

    def _expected(self, rows: Rows) -> dict[str, Fields]:
        """Return the slices of normalised rows."""
        results = [
            self.model(row[np.newaxis], units[np.newaxis], *own, self.p)
            for row, units, *own in zip(*rows, strict=True)
        ]
        values = np.concatenate(results).reshape(-1, self.p.lanes)
        return {"results": {"values": values, "last": self._last(len(results))}}

    def _last(self, count: int) -> Integers:
        """Return 1 at the last slice of each row."""
        return np.tile(np.arange(self.p.slices) == self.p.slices - 1, count).astype(int)

    async def run_at_full_rate(self, rows: Rows, *, latency: int, read_latency: int) -> None:
        """Run captured rows without pauses; require the documented number of cycles."""
        cycles = await self.run(rows)
        slices = [self.p.slices] * len(rows[0])
        # The register is downstream of the row buffer.
        extra = int(self.p.weighed)
        expected = full_rate_cycles(
            slices, rows=self.p.rows, latency=latency + extra, read_latency=read_latency + extra
        )
        self.bench.compare("cycles", np.array([expected]), np.array([cycles]))
        # Bound: one slice per cycle, plus the first row, which must be complete before the output.
        ideal = sum(slices) + self.p.slices
        tensors = f"SmolLM2 layers {LAYERS}, {len(rows[0])} hidden states"
        self.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)

    async def run_extremes(self) -> None:
        """Run all zero, all lowest, all highest, one nonzero element, with extreme epsilons."""
        width = self.p.width
        single = np.zeros(width, np.int64)
        single[-1] = LOWEST
        rows = [np.full(width, value) for value in (0, LOWEST, HIGHEST, 1, -1)]
        rows += [single, single >> 15, np.resize([LOWEST, HIGHEST], width)]
        ends = np.array([0, 1, (1 << EPSILON_BITS) - 1])
        states = np.repeat(rows, len(ends), axis=0)
        epsilon = np.tile(ends, len(rows))
        for operand in (LOWEST, HIGHEST, 0):
            every = [np.full(states.shape, operand)] * len(self.names)
            await self.run((states, epsilon, *every))

    async def run_at_the_clamp(self, exact: Exact) -> None:
        """Run rows whose results are just inside or just outside the range, at both limits."""
        rng, p = self.bench.numpy_rng, self.p
        count = max(CLAMP_SLICES // p.slices // (16 if four_states() else 1), 1)
        shape = count, p.width
        # Few elements are large enough that a weight can bring them to the limits.
        many = max(p.width >> 2 * (p.weight_fraction - OUTPUT.fraction_bits), 2)
        out = rng.permuted(np.arange(p.width) < rng.integers(1, many, (count, 1)), axis=1)
        states = np.where(out, rng.integers(LOWEST, HIGHEST + 1, shape), 0)
        epsilon = rng.integers(0, 1 << EPSILON_BITS, count) >> rng.integers(8, 33, count)
        biases = [rng.integers(LOWEST, HIGHEST + 1, shape) for _ in self.names[1:]]
        steps = rng.integers(-64, 65, shape) >> rng.integers(0, 7, shape)
        wanted = rng.choice([LOWEST, HIGHEST], shape) + steps - sum(biases)
        one = np.full(p.width, 1 << p.weight_fraction)
        ratios = exact(states, epsilon, one, *[np.zeros(p.width)] * len(biases), p)
        ratios = np.where(ratios == 0, 1, ratios) * (1 << OUTPUT.fraction_bits)
        weights = np.rint(wanted / ratios * (1 << p.weight_fraction)).clip(LOWEST, HIGHEST)
        await self.run((states, epsilon, weights.astype(np.int64), *biases))

    def random_rows(self, count: int) -> Rows:
        """Return rows with this unit's operands."""
        return random_rows(self.bench.numpy_rng, self.p, count, operands=len(self.names))


def random_rows(
    rng: np.random.Generator, p: RowNormParameters, count: int, *, operands: int
) -> Rows:
    """Return rows with random magnitudes, epsilons and operands."""
    shape = count, p.width
    states = rng.integers(LOWEST, HIGHEST + 1, shape) >> rng.integers(0, 16, (count, 1))
    epsilon = rng.integers(0, 1 << EPSILON_BITS, count) >> rng.integers(0, 33, count)
    return states, epsilon, *(rng.integers(LOWEST, HIGHEST + 1, shape) for _ in range(operands))


def real_rows(p: RowNormParameters) -> tuple[Integers, Integers, Integers]:
    """Return hidden states of SmolLM2, the input of its norms, and the norms' weights."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    states, epsilons, weights = [], [], []
    for layer in LAYERS:
        rows = trace.hidden(layer)[0][[0, 1, 2, *range(9, TOKENS, 70)]]
        weight = np.resize(trace.norm(layer, "input"), p.width)
        # Widths other than the model's repeat or truncate its elements.
        rows = np.stack([np.resize(row, p.width) for row in rows])
        raw, epsilon = quantise_states(rows, EPSILON)
        states.append(raw)
        epsilons.append(epsilon)
        weights.append(np.broadcast_to(quantise_weights(weight, p), raw.shape))
    return np.concatenate(states), np.concatenate(epsilons), np.concatenate(weights)
