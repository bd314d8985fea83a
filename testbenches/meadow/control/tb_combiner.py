"""Testbench of the combiner: SmolLM2's states and gates, all magnitudes, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.llm import open_trace
from golden.llm.trace import Trace
from golden.meadow.control.combiner import activated, added, narrowed
from hdl.meadow.control.combiner import CombinerParameters
from hdl.meadow.instructions import Combine
from hdl.meadow.parameters import MOST_LIFT, STATE
from hdl.meadow.tile.element_parameters import SCALE_BITS
from hdl.meadow.tile.tile_parameters import RESULT
from testbenches.bench import Bench, catalog_parameters
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.streams import PAUSES, Port

Integers = NDArray[np.int64]
LAYERS = (0, 14, 29)
TOKENS = 640
SHOWN = 4
"""Tokens of each layer in a simulation."""

MODES = (Combine.KEEP, Combine.ADD, Combine.ACTIVATE)
"""Combinations that output words."""


def trace() -> Trace:
    """Return the captured tensors."""
    return open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def prepare(p: Any) -> None:
    """Capture the tensors before the simulator starts."""
    trace()


class CombinerBench:
    """The unit's three streams, and its constant settings."""

    def __init__(
        self, dut: Any, salt: str, results: str = "none", old: str = "none", sink: str = "none"
    ) -> None:
        self.p: CombinerParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.results = self.bench.source("results", results)
        self.old = self.bench.source("old", old)
        self.combined = self.bench.sink("combined", sink)
        names = ("combine", "lift") if self.p.gated else ("combine", "lift", "scale")
        self.settings = {name: Port(getattr(dut, name)) for name in names}

    def needs_old(self, mode: Combine) -> bool:
        """Return whether a mode reads the old word."""
        return mode is Combine.ADD or (mode is Combine.ACTIVATE and self.p.gated)

    async def begin(self, mode: Combine, lift: int, scale: int) -> None:
        """Reset, and apply the settings."""
        await self.bench.reset()
        self.combined.received.clear()
        values = {"combine": mode.value, "lift": lift, "scale": scale}
        for name, port in self.settings.items():
            port.value = values[name]

    def send(self, mode: Combine, results: Integers, old: Integers) -> None:
        """Send words [words, size]."""
        self.results.send(to_integers(pack(self.p.result_layout, results)))
        if self.needs_old(mode):
            self.old.send(to_integers(pack(self.p.state_layout, old)))

    async def run(
        self, mode: Combine, results: Integers, old: Integers, *, lift: int = 0, scale: int = 1
    ) -> int:
        """Run words [words, size] in a mode, compare every element; return the cycles."""
        await self.begin(mode, lift, scale)
        self.send(mode, results, old)
        cycles = await self.bench.run(until=lambda: len(self.combined.received) == len(results))
        for _ in range(20):
            await self.bench.step()
        payloads = [payload for _cycle, payload in self.combined.received]
        layout = self.p.state_layout
        got = unpack(layout, from_integers(payloads, layout.size))
        self.bench.compare(mode.name.lower(), self.expected(mode, results, old, lift, scale), got)
        return cycles

    def expected(
        self, mode: Combine, results: Integers, old: Integers, lift: int, scale: int
    ) -> Integers:
        """Return the combined words of the golden model."""
        if mode is Combine.KEEP:
            return results
        if mode is Combine.ADD:
            return added(old, results, lift)
        gate, factor = (old, results) if self.p.gated else (results, scale)
        return narrowed(activated(gate, self.p.activation), factor)

    async def run_random(self, words: int) -> None:
        """Run random words with random settings in each mode."""
        rng = self.bench.numpy_rng
        for mode in MODES:
            results, old = self.random_words(mode, words)
            lift, scale = int(rng.integers(MOST_LIFT + 1)), int(rng.integers(1 << SCALE_BITS))
            await self.run(mode, results, old, lift=lift, scale=scale)

    def random_words(self, mode: Combine, words: int) -> tuple[Integers, Integers]:
        """Return random results and old words of all magnitudes, including both limits."""
        rng, shape = self.bench.numpy_rng, (words, self.p.size)
        # An operand of the activation has the bits of a result.
        widths = RESULT.width, RESULT.width if mode is Combine.ACTIVATE else STATE.width
        found = []
        for bits in widths:
            top = 1 << bits - 1
            numbers = rng.integers(-top, top, shape) >> rng.integers(0, bits, shape)
            ends = rng.choice([-top, top - 1, 0, -1], shape)
            found.append(np.where(rng.integers(0, 8, shape) == 0, ends, numbers))
        return found[0], found[1]


def real_words(p: CombinerParameters) -> tuple[Integers, Integers, Integers]:
    """Return gates and results of `up_proj` in Q6.10, and hidden states, each [words, size]."""
    found: list[list[Any]] = [[], [], []]
    for layer in LAYERS:
        gate, up = (trace().linear(layer, f"{name}_proj") for name in ("gate", "up"))
        inputs, count = gate.inputs[-SHOWN:], trace().hidden_size
        found[0].append(inputs @ gate.weight[:count].T)
        found[1].append(inputs @ up.weight[:count].T)
        found[2].append(trace().hidden(layer)[0][-SHOWN:])
    rows = [np.rint(np.concatenate(part).reshape(-1) * 1024).astype(np.int64) for part in found]
    used = len(rows[0]) // p.size * p.size
    gates, ups, states = (row[:used].reshape(-1, p.size) for row in rows)
    low, high = -(1 << 15), (1 << 15) - 1
    return np.clip(gates, low, high), np.clip(ups, low, high), states


@cocotb.test()
async def real(dut: Any) -> None:
    """Combine SmolLM2's states, gates and `up_proj` results, one part of a word per cycle."""
    bench = CombinerBench(dut, "real")
    gates, ups, states = real_words(bench.p)
    tensors = f"SmolLM2 layers {LAYERS}, {SHOWN} tokens: states and gates"
    results = ups if bench.p.gated else gates
    for mode in MODES:
        old = states if mode is Combine.ADD else gates
        cycles = await bench.run(mode, results, old, lift=2, scale=3000)
        ideal = len(results) * bench.p.parts
        contract = np.array([ideal + bench.p.stages])
        bench.bench.compare("cycles", contract, np.array([cycles]))
        bench.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
async def all_sizes(dut: Any) -> None:
    """Combine values of all magnitudes with every lift and with scales of all magnitudes."""
    bench = CombinerBench(dut, "all_sizes")
    rng, words = bench.bench.numpy_rng, max(100, 2000 // bench.p.size)
    for lift in range(MOST_LIFT + 1):
        await bench.run(Combine.ADD, *bench.random_words(Combine.ADD, words), lift=lift)
    for bits in range(SCALE_BITS + 1):
        scale = min((1 << bits) - int(rng.integers(2)), (1 << SCALE_BITS) - 1)
        await bench.run(Combine.ACTIVATE, *bench.random_words(Combine.ACTIVATE, words), scale=scale)


@cocotb.test()
@cocotb.parametrize(results=list(PAUSES), sink=list(PAUSES))
async def stalls(dut: Any, results: str, sink: str) -> None:
    """Run random words under every pair of stall patterns; the old words stall randomly."""
    bench = CombinerBench(dut, f"stalls {results} {sink}", results, "random", sink)
    await bench.run_random(60)


@cocotb.test()
@cocotb.parametrize(old=list(PAUSES))
async def late_states(dut: Any, old: str) -> None:
    """Send the old words under every stall pattern, and the results at full rate."""
    bench = CombinerBench(dut, f"late {old}", "none", old, "none")
    await bench.run_random(60)


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset during work; later results do not depend on earlier words."""
    bench = CombinerBench(dut, "resets", "random", "bursty", "random")
    for mode in MODES:
        for _ in range(4):
            await bench.begin(mode, 1, 1000)
            bench.send(mode, *bench.random_words(mode, 40))
            for _cycle in range(bench.bench.rng.randint(1, 40)):
                await bench.bench.step()
    await bench.run_random(30)
