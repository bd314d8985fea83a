"""Testbench of the combiner: SmolLM2's states and gates, all magnitudes, stalls, resets."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
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
from testbenches.shared_tests import reset_test, slow_stream_test, stall_test
from testbenches.streams import Port

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


@dataclass(frozen=True)
class Piece:
    """Words [words, size] that are combined in one mode, and its settings."""

    mode: Combine
    results: Integers
    old: Integers
    lift: int = 0
    scale: int = 1

    def expected(self, p: CombinerParameters) -> Integers:
        """Return the combined words of the golden model."""
        if self.mode is Combine.KEEP:
            return self.results
        if self.mode is Combine.ADD:
            return added(self.old, self.results, self.lift)
        gate, factor = (self.old, self.results) if p.gated else (self.results, self.scale)
        return narrowed(activated(gate, p.activation), factor, wide=p.wide)


class CombinerBench:
    """The unit's three streams, and its settings, which are constant within a piece."""

    def __init__(
        self, dut: Any, salt: str, source: str = "none", sink: str = "none", old: str = "none"
    ) -> None:
        self.p: CombinerParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.results = self.bench.source("results", source)
        self.old = self.bench.source("old", old)
        self.combined = self.bench.sink("combined", sink)
        names = ("combine", "lift") if self.p.gated else ("combine", "lift", "scale")
        self.settings = {name: Port(getattr(dut, name)) for name in names}

    def offer(self, pieces: Sequence[Piece]) -> None:
        """Apply the settings of the first piece and send its words; others follow a reset."""
        one = pieces[0]
        values = {"combine": one.mode.value, "lift": one.lift, "scale": one.scale}
        for name, port in self.settings.items():
            port.value = values[name]
        self.results.send(to_integers(pack(self.p.result_layout, one.results)))
        if one.mode is Combine.ADD or (one.mode is Combine.ACTIVATE and self.p.gated):
            self.old.send(to_integers(pack(self.p.state_layout, one.old)))

    async def run(self, pieces: Sequence[Piece]) -> int:
        """Run each piece after a reset, and compare every element; return the cycles."""
        cycles = 0
        for one in pieces:
            await self.bench.reset()
            self.offer([one])
            count = len(one.results)
            cycles += await self.bench.run(
                until=lambda count=count: len(self.combined.received) == count
            )
            await self.bench.step(20)
            payloads = [payload for _cycle, payload in self.combined.received]
            layout = self.p.state_layout
            got = unpack(layout, from_integers(payloads, layout.size))
            self.bench.compare(one.mode.name.lower(), one.expected(self.p), got)
        return cycles

    def random_piece(self, mode: Combine, words: int) -> Piece:
        """Return random words with random settings."""
        rng = self.bench.numpy_rng
        lift, scale = int(rng.integers(MOST_LIFT + 1)), int(rng.integers(1 << SCALE_BITS))
        return Piece(mode, *self.random_words(mode, words), lift, scale)

    def random_pieces(self, words: int) -> list[Piece]:
        """Return random words with random settings for each mode, in random order."""
        return [self.random_piece(mode, words) for mode in self.bench.rng.sample(MODES, len(MODES))]

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
        cycles = await bench.run([Piece(mode, results, old, lift=2, scale=3000)])
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
        words_of_both = bench.random_words(Combine.ADD, words)
        await bench.run([Piece(Combine.ADD, *words_of_both, lift=lift)])
    for bits in range(SCALE_BITS + 1):
        scale = min((1 << bits) - int(rng.integers(2)), (1 << SCALE_BITS) - 1)
        words_of_both = bench.random_words(Combine.ACTIVATE, words)
        await bench.run([Piece(Combine.ACTIVATE, *words_of_both, scale=scale)])


stalls = stall_test(partial(CombinerBench, old="random"), lambda bench: bench.random_pieces(60))
slow_stream = slow_stream_test(
    CombinerBench, lambda bench: bench.random_pieces(60), streams=["old"]
)
resets = reset_test(
    partial(CombinerBench, old="random"),
    lambda bench: bench.random_pieces(30),
    begun=lambda bench: bench.random_pieces(40),
    longest=40,
    times=12,
)
