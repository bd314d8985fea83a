"""Testbench of VEDA's array: SmolLM2's attention and projections, modes, stalls, resets."""

from typing import Any

import cocotb
import numpy as np

from golden.veda.array.flexible_pe_array import Beats, Outcome, joined, run
from hdl.arith.float_format import BINARY16
from hdl.veda.array.array_parameters import FlexiblePeArrayParameters
from testbenches.applicable import only_if
from testbenches.bench import Bench, catalog_parameters, context
from testbenches.shared_tests import reset_test, stall_test
from testbenches.veda.array import array_work as work


def prepare(p: FlexiblePeArrayParameters) -> None:
    """Capture the tensors before the simulator starts."""
    work.real_heads(min(p.width, 64), 1, 1)


class Acceptances:
    """Record the cycle in which each beat is accepted."""

    def __init__(self, bench: Bench, source: Any) -> None:
        self.bench, self.source = bench, source
        self.cycles: list[int] = []

    def clear(self) -> None:
        """Discard the record."""
        self.cycles.clear()

    def drive(self) -> None:
        """Drive nothing."""

    def sample(self) -> None:
        """Record an acceptance."""
        if self.source.accepted:
            self.cycles.append(self.bench.cycle)


class Array:
    """A bench with the array's streams."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: FlexiblePeArrayParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.operands = self.bench.source("operands", source)
        self.vector = self.bench.source("vector", source)
        self.accepted = self.bench.add(Acceptances(self.bench, self.operands))
        self.dots = self.bench.sink("dot_products", sink)
        self.results = self.bench.sink("results", sink)

    def offer(self, beats: Beats) -> None:
        """Offer all beats and vectors."""
        self.operands.send(work.packed_beats(self.p, beats))
        self.vector.send(work.packed_codes(beats.vectors))

    async def run(self, beats: Beats) -> int:
        """Reset, offer beats, and compare all outputs with the model; return the cycles."""
        outcome = run(self.p, beats)
        await self.bench.reset()
        self.offer(beats)
        cycles = await self.bench.run(
            until=lambda: (
                self.operands.idle
                and len(self.dots.received) >= len(outcome.dot_products)
                and len(self.results.received) >= len(outcome.results)
            )
        )
        for _ in range(self.p.dot_latency):
            await self.bench.step()
        self.compare(outcome)
        return cycles

    def compare(self, outcome: Outcome) -> None:
        """Require the model's dot products and rows, and no others."""
        for what, sink, expected, width in (
            ("dot_products", self.dots, outcome.dot_products, self.p.planes),
            ("results", self.results, outcome.results, self.p.width),
        ):
            got = work.unpacked_codes((payload for _cycle, payload in sink.received), width)
            self.bench.compare(
                what,
                np.array(expected, np.uint64).reshape(-1, width),
                got,
                cycles=[cycle for cycle, _payload in sink.received],
                show=lambda code: BINARY16.show(int(code)),
            )


def attention_cases() -> list[tuple[bool, int, int]]:
    """Return the simulated cases: split, cached tokens, heads."""
    run = context()
    match run["preset"]:
        case "smollm2":
            return [(True, 512, 9)] if run["full"] else [(True, 128, 9)]
        case "paper":
            full = [(False, 512, 32), (False, 128, 32)]
            return full if run["full"] else [(False, 128, 8)]
        case _:
            return [(True, 64, 9), (False, 64, 9)]


@cocotb.test()
async def decode_attention(dut: Any) -> None:
    """Scores and weighted sums of real heads, back to back."""
    array = Array(dut, "decode_attention")
    p = array.p
    for split, length, count in attention_cases():
        heads = work.real_heads(p.plane_width if split else p.width, length, count)
        cycles = await array.run(work.attention(p, heads, split=split))
        steps = -(-count // p.planes) if split else count
        name = f"utilisation_{length}" + ("_split" if split else "")
        array.bench.record(
            cycles=cycles,
            ideal_cycles=2 * length * steps,
            tensors=f"SmolLM2 layers {work.LAYERS}, queries, keys, values of prose",
            **{name: 2 * length * steps / cycles},
        )


@cocotb.test()
async def projections(dut: Any) -> None:
    """Dot products from 1 to 576 elements, whole and in slices, of real weights and inputs."""
    array = Array(dut, "projections")
    p = array.p
    linear = work.open_trace(text="prose", tokens=work.TOKENS, layers=work.LAYERS).linear(
        14, "q_proj"
    )
    rows = p.partial_sums + 3
    weights, inputs = work.codes(linear.weight[:rows]), work.codes(linear.inputs[-1])
    sizes = {1, 2, 3, p.width - 1, p.width, p.width + 1, 2 * p.width, 200, 575, 576}
    beats = [work.projection(p, inputs[:size], weights[:, :size]) for size in sorted(sizes)]
    await array.run(joined(beats))


@cocotb.test()
async def switches(dut: Any) -> None:
    """Alternate between products, and check the cycles of each change."""
    array = Array(dut, "switches")
    p, rng = array.p, array.bench.numpy_rng
    parts, expected = [], []
    pauses = {(0, 0): 0, (0, 1): p.drain, (1, 0): p.fold, (1, 1): p.fold}
    kinds = [0, 1, 0, 0, 1, 1, 0, 1, *rng.integers(0, 2, 24)]
    for before, kind in zip([0, *kinds], kinds, strict=False):
        # Rows are long enough that the previous results are accepted.
        count = int(rng.integers(1, 20)) if kind == 0 else int(rng.integers(20, 40))
        weights = work.random_codes(rng, (count, p.width))
        if kind == 0:
            vectors = work.random_codes(rng, (1, p.width))
            parts.append(work.inner(p, vectors, weights, split=bool(rng.integers(2))))
        else:
            parts.append(work.outer(p, work.random_codes(rng, (count, p.planes)), weights))
        expected += [1 + pauses[before, kind], *[1] * (count - 1)]
    await array.run(joined(parts))
    gaps = np.diff(array.accepted.cycles)
    array.bench.compare("cycles between beats", np.array(expected[1:]), gaps)


@cocotb.test()
async def latencies(dut: Any) -> None:
    """Measure the latencies of a single dot product and a single row."""
    array = Array(dut, "latencies")
    p, rng = array.p, array.bench.numpy_rng
    one = work.random_codes(rng, (1, p.width))
    await array.run(work.inner(p, one, one))
    seen = [array.dots.received[0][0] - array.accepted.cycles[0]]
    scalars, rows = work.random_codes(rng, (7, p.planes)), work.random_codes(rng, (7, p.width))
    await array.run(work.outer(p, scalars, rows))
    seen.append(array.results.received[0][0] - array.accepted.cycles[-1])
    array.bench.compare("latencies", np.array([p.dot_latency, p.row_latency]), np.array(seen))


@cocotb.test()
@only_if(lambda run: not run.four_states, "too many cycles for a four-state simulation")
async def hard_sums(dut: Any) -> None:
    """Slices, elements and rows whose sums cancel to the last few bits, in each adder."""
    array = Array(dut, "hard_sums")
    # In a large array few elements would be affected; the small array's test covers the adders.
    pieces = 600 if array.p.width < 16 else 20
    await array.run(work.hard_beats(array.bench.numpy_rng, array.p, pieces))


# Each PE should have many kinds of difficult sums, also in a small array.
stalls = stall_test(
    Array,
    lambda array: work.random_beats(
        array.bench.numpy_rng, array.p, 160 if array.p.width < 16 else 40
    ),
)
resets = reset_test(
    Array,
    lambda array: work.random_beats(array.bench.numpy_rng, array.p, 20),
    longest=lambda array: 3 * array.p.dot_latency,
    times=12,
)
