"""Testbench of the SFM: SmolLM2's rows and heads, random codes, stalls, resets."""

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes, values
from golden.lad.sfm.special_function_module import add, norm, rotary, silu
from golden.llm import open_trace
from golden.llm.model import SMOLLM2
from hdl.arith.float_format import BINARY16
from hdl.lad.sfm.sfm_parameters import Function, SpecialFunctionModuleParameters
from testbenches.applicable import only_if
from testbenches.arith.dot_operands import hard_factors, hard_partners
from testbenches.arith.float_operands import random_near
from testbenches.bench import Bench, catalog_parameters, context
from testbenches.lad.vectors import LAYERS, TOKENS, head_vectors, random_codes
from testbenches.lad.vectors import prepare as prepare
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.shared_tests import reset_test, stall_test

Codes = NDArray[np.uint16]
EPSILON = 1e-5
SINGLE = ("rotary", "silu", "sum")


@dataclass
class Work:
    """Vectors for the module's streams, and the expected results."""

    p: SpecialFunctionModuleParameters
    vectors: dict[str, list[Any]] = field(
        default_factory=lambda: {"values": [], "function": [], "epsilon": []}
    )
    factors: list[Codes] = field(default_factory=list)
    addends: list[Codes] = field(default_factory=list)
    results: list[Codes] = field(default_factory=list)

    def _add(self, function: Function, x: Codes, epsilon: int, result: Codes) -> None:
        size = self.p.vector.head_size
        x = x.reshape(-1, size)
        self.vectors["values"].append(x)
        self.vectors["function"] += [function.value] * len(x)
        self.vectors["epsilon"] += [epsilon] * len(x)
        self.results.append(result.reshape(-1, size))

    def add_norm(self, x: Codes, weight: Codes, bias: Codes, epsilon: int, *, rms: bool) -> None:
        """Add a row to normalise."""
        size = self.p.vector.head_size
        result = norm(x, weight, bias, np.array(epsilon), head_size=size, rms=rms)
        self._add(Function.RMS_NORM if rms else Function.LAYER_NORM, x, epsilon, result)
        self.factors.append(weight.reshape(-1, size))
        if not rms:
            self.addends.append(bias.reshape(-1, size))

    def add_rotary(self, x: Codes, cosine: Codes, sine: Codes) -> None:
        """Add a head to rotate."""
        self._add(Function.ROTARY, x, 0, rotary(x, cosine, sine))
        self.factors.append(np.stack([cosine, sine]))

    def add_silu(self, x: Codes, up: Codes) -> None:
        """Add a slice of `gate_proj` and `up_proj`."""
        self._add(Function.SILU, x, 0, silu(x, up))
        self.factors.append(up[np.newaxis])

    def add_sum(self, x: Codes, addend: Codes) -> None:
        """Add a residual addition."""
        self._add(Function.ADD, x, 0, add(x, addend))
        self.addends.append(addend[np.newaxis])

    def payloads(self) -> dict[str, list[int]]:
        """Return the payloads of each of the module's streams."""
        values = np.concatenate(self.vectors["values"])
        fields = {name: np.array(self.vectors[name]) for name in ("function", "epsilon")}
        sent = {"vectors": to_integers(pack(self.p.vector_layout, fields | {"values": values}))}
        for name, parts in (("factors", self.factors), ("addends", self.addends)):
            if parts:
                packed = pack(self.p.values_layout, {"values": np.concatenate(parts)})
                sent[name] = to_integers(packed)
        return sent


class SfmBench:
    """Connections to the module's four streams."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: SpecialFunctionModuleParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.sources = {
            name: self.bench.source(name, source) for name in ("vectors", "factors", "addends")
        }
        self.sink = self.bench.sink("results", sink)

    def offer(self, work: Work) -> None:
        """Queue all work."""
        for name, payloads in work.payloads().items():
            self.sources[name].send(payloads)

    async def run(self, work: Work) -> int:
        """Reset, run work and compare the results; return the cycles to the last."""
        await self.bench.reset()
        self.offer(work)
        count = sum(len(part) for part in work.results)
        cycles = await self.bench.run(until=lambda: len(self.sink.received) == count)
        for _ in range(30):
            await self.bench.step()
        check_results(self.bench, [work], self.sink)
        return cycles

    def random_work(self, count: int) -> Work:
        """Return rows and vectors of any function in any order."""
        return random_rows(self.p, self.bench.numpy_rng, count)


def random_rows(p: SpecialFunctionModuleParameters, rng: np.random.Generator, count: int) -> Work:
    """Return rows and vectors of any function in any order."""
    work = Work(p)
    function = Function.ADD
    for _ in range(count):
        # Single vectors of one function overlap, as many as there is room for.
        if rng.random() < 0.3:
            function = Function(int(rng.integers(0, 5)))
        wide = function in (Function.LAYER_NORM, Function.RMS_NORM)
        shape = (p.hidden_size if wide else p.vector.head_size,)
        x, factor, addend = (random_codes(rng, shape) for _ in range(3))
        one = np.full(shape, BINARY16.one, np.uint16)
        match rng.integers(3) if wide else None:
            case 0:
                # Rows without special values, of any magnitude.
                x = codes(rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 13))
            case 1:
                # One or two elements that are not zero, so that no larger one hides their sum.
                (x,) = hard_partners(rng, one[np.newaxis])
        hard = rng.random() < 0.5
        if wide:
            epsilon = int(
                rng.choice([0, 1, 0x00A8, 0x3C00, int(rng.integers(BINARY16.max_finite))])
            )
            rms = function is Function.RMS_NORM
            if hard:
                size = p.vector.head_size
                plain = norm(x, one, 0 * one, np.array(epsilon), head_size=size, rms=rms)
                factor = hard_factors(rng, plain)
            work.add_norm(x, factor, addend, epsilon, rms=rms)
        elif function is Function.ROTARY:
            work.add_rotary(x, factor, addend)
        elif function is Function.SILU:
            work.add_silu(x, hard_factors(rng, silu(x, one)) if hard else factor)
        else:
            near = random_near(BINARY16, values(x), rng).astype(np.uint16)
            work.add_sum(x, near if hard else addend)
    return work


def check_results(bench: Bench, works: list[Work], sink: Any) -> None:
    """Compare the received results with the expected ones, part by part."""
    layout = works[0].p.values_layout
    expected = np.concatenate([part for work in works for part in work.results])
    packed = [payload for _cycle, payload in sink.received]
    got = unpack(layout, from_integers(packed, layout.size))["values"]
    seen = [cycle for cycle, _payload in sink.received]
    bench.compare("results", expected.astype(np.int64), got, cycles=seen, show="{:#06x}".format)


def fitted(row: Any, size: int) -> Codes:
    """Return a row's numbers as codes, cut or repeated to a size."""
    return codes(np.resize(np.asarray(row), size))


def angles(p: SpecialFunctionModuleParameters, position: int) -> tuple[Codes, Codes]:
    """Return cosines and sines of a position for both halves of a head."""
    size = p.vector.head_size
    angle = position * SMOLLM2.rope_base ** (-np.arange(0, size, 2) / size)
    angle = np.concatenate([angle, angle])
    return codes(np.cos(angle)), codes(np.sin(angle))


def real_work(p: SpecialFunctionModuleParameters, tokens: int) -> Work:
    """Return the work of SmolLM2's layers: norms, heads to rotate, SwiGLU slices."""
    trace, work = open_trace(text="prose", tokens=TOKENS, layers=LAYERS), Work(p)
    size = p.vector.head_size
    epsilon = int(codes(EPSILON))
    for number in range(tokens):
        layer, token = LAYERS[number % len(LAYERS)], (97 * number) % TOKENS
        states = trace.hidden(layer)[0][token]
        weight = fitted(trace.norm(layer, "input"), p.hidden_size)
        row = fitted(states, p.hidden_size)
        work.add_norm(row, weight, weight, epsilon, rms=True)
        work.add_norm(row, weight, weight[::-1].copy(), epsilon, rms=False)
        for name in ("q_before_rope", "k_before_rope"):
            head = head_vectors(name, size, layer=layer, head=number % 9)[token]
            work.add_rotary(head, *angles(p, token))
        inputs = trace.linear(layer, "gate_proj").inputs[token]
        gate, up = (
            trace.linear(layer, name).weight[:size] @ inputs for name in ("gate_proj", "up_proj")
        )
        work.add_silu(fitted(gate, size), fitted(up, size))
        work.add_sum(fitted(states, size), fitted(gate, size))
    return work


@cocotb.test()
async def real_rows(dut: Any) -> None:
    """Run SmolLM2's norms, heads and gates at full rate."""
    bench = SfmBench(dut, "real_rows")
    work = real_work(bench.p, 6 if context()["full"] else 3)
    cycles = await bench.run(work)
    # Bound: the vector unit's operations, one per cycle, or the cycles of the sigmoid's lanes.
    operations = {
        Function.LAYER_NORM: 5,
        Function.RMS_NORM: 4,
        Function.ROTARY: 2,
        Function.ADD: 1,
        Function.SILU: max(2, bench.p.vector.head_size // bench.p.lanes),
    }
    ideal = sum(operations[Function(number)] for number in work.vectors["function"])
    tensors = f"SmolLM2 layers {LAYERS}, {len(work.results)} rows, heads and gates"
    bench.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
async def each_function(dut: Any) -> None:
    """Measure the cycles of each function, and the interval of single vectors."""
    bench = SfmBench(dut, "each_function")
    p, rng = bench.p, bench.bench.numpy_rng
    row, head = (codes(rng.standard_normal(size)) for size in (p.hidden_size, p.vector.head_size))
    facts = {}
    for name, fill in (
        ("rms_norm", lambda work: work.add_norm(row, row, row, 168, rms=True)),
        ("layer_norm", lambda work: work.add_norm(row, row, row, 168, rms=False)),
        ("rotary", lambda work: work.add_rotary(head, head, head)),
        ("silu", lambda work: work.add_silu(head, head)),
        ("sum", lambda work: work.add_sum(head, head)),
    ):
        cycles = []
        for count in (1, 33):
            work = Work(p)
            for _ in range(count if name in SINGLE else 1):
                fill(work)
            cycles.append(await bench.run(work))
        facts[f"{name}_cycles"] = cycles[0]
        if name in SINGLE:
            facts[f"{name}_interval"] = (cycles[1] - cycles[0]) / 32
    bench.bench.record(cycles=0, ideal_cycles=0, **facts)


@cocotb.test()
@only_if(lambda run: not run.four_states, "many cycles, which four states make minutes")
async def hard_sums(dut: Any) -> None:
    """Run residual additions that cancel, or of which one term decides the other's rounding."""
    bench = SfmBench(dut, "hard_sums")
    rng, work = bench.bench.numpy_rng, Work(bench.p)
    for _ in range(2500 if bench.p.hidden_size < 64 else 50):
        x = random_codes(rng, (bench.p.vector.head_size,))
        work.add_sum(x, random_near(BINARY16, values(x), rng).astype(np.uint16))
    await bench.run(work)


stalls = stall_test(
    SfmBench,
    lambda bench: bench.random_work(200 if bench.p.hidden_size < 64 else 6),
    pairs=list(product(["none", "random", "adversarial"], ["none", "random", "bursty"])),
)
resets = reset_test(
    SfmBench,
    lambda bench: bench.random_work(6),
    begun=lambda bench: bench.random_work(4),
    longest=200,
    times=6,
    pauses=("random", "random"),
)
