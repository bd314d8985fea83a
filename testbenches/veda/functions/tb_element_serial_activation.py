"""Testbench of the element-serial activation: SmolLM2's SwiGLU, every gate, stalls."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes, values
from golden.llm import open_trace
from golden.veda.functions.element_serial_activation import activation
from hdl.arith.float_format import BINARY16
from hdl.veda.functions.element_serial_activation import ElementSerialActivationParameters
from testbenches.applicable import Run, only_if
from testbenches.bench import catalog_parameters, context
from testbenches.packing import code_fields
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import four_states
from testbenches.unit_bench import Fields
from testbenches.veda.functions.serial_bench import SerialBench

Codes = NDArray[np.uint16]
Operands = tuple[Codes, Codes]
"""Outputs of `gate_proj` and of `up_proj`."""

LAYERS = (0, 14, 29)
TOKENS = 640
SPECIAL = (0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00)
NANS = (0x7E00, 0xFE00, 0x7C01)


def prepare(p: ElementSerialActivationParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def real_operands(tokens: int) -> Operands:
    """Return the outputs of SmolLM2's `gate_proj` and `up_proj` for some tokens in three layers."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    parts = []
    for name in ("gate_proj", "up_proj"):
        linears = [trace.linear(layer, name) for layer in LAYERS]
        chosen = np.linspace(0, TOKENS - 1, tokens).astype(int)
        results = [linear.inputs[chosen] @ linear.weight.T for linear in linears]
        parts.append(np.concatenate(results, axis=None).astype(np.float16).view(np.uint16))
    return parts[0], parts[1]


def edge_operands() -> Operands:
    """Return all pairs of special values."""
    values = np.array(SPECIAL + NANS, np.uint16)
    gate, up = np.meshgrid(values, values)
    return gate.ravel(), up.ravel()


def every_gate(rng: np.random.Generator, step: int) -> Operands:
    """Return every `step`-th FP16 code as gate, with random codes as up."""
    gate = np.arange(int(rng.integers(step)), 1 << 16, step).astype(np.uint16)
    return gate, rng.integers(0, 1 << 16, len(gate)).astype(np.uint16)


def hard_operands(rng: np.random.Generator) -> Operands:
    """Return subnormal gates with large factors, and products just below the largest number.

    The mantissas of the latter have all bits but one set, so that rounding up does not overflow.
    """
    count = 2048
    small = rng.integers(0, 0x800, count) | rng.integers(0, 2, count) << 15
    factors = rng.integers(0x6400, 0x7C00, count)
    # SiLU does not change such gates.
    gates = codes(rng.uniform(16, 64, count))
    products = 65504 - np.ldexp(32, rng.integers(0, 10, count)) + rng.uniform(0, 32, count)
    ups = codes(products / values(gates))
    return (
        np.concatenate([small, gates]).astype(np.uint16),
        np.concatenate([factors, ups]).astype(np.uint16),
    )


def is_pipelined(run: Run) -> bool:
    """Return whether the divider is pipelined."""
    return run.parameters.interval == 1


def results(operands: Operands) -> Fields:
    """Return the expected outputs."""
    return {"value": activation(*operands), "last": ends(len(operands[0]))}


def ends(count: int) -> NDArray[np.int64]:
    """Return where vectors of 7 elements end."""
    return (np.arange(count) % 7 == 6).astype(np.int64)


def offered(gate: Codes, up: Codes) -> Fields:
    """Return the operands of elements."""
    fields: Any = {"gate": code_fields(gate), "up": code_fields(up), "last": ends(len(gate))}
    return fields


def bound(count: int, p: ElementSerialActivationParameters) -> int:
    """Return the minimum number of cycles for the divisions."""
    return count * p.interval


def bench_for(
    dut: Any, salt: str, source: str = "none", sink: str = "none"
) -> SerialBench[Operands]:
    """Return a bench with the unit's streams."""
    p = catalog_parameters()
    return SerialBench(
        dut,
        salt,
        source,
        sink,
        inputs={"operands": p.operands_layout},
        outputs={"activated": p.element_layout},
        offered=lambda operands: {"operands": offered(*operands)},
        expected=lambda operands: {"activated": results(operands)},
    )


@cocotb.test()
async def real_layers(dut: Any) -> None:
    """Feed-forward layers of SmolLM2 at full rate: one element in every cycle."""
    p = catalog_parameters()
    bench = bench_for(dut, "real_layers")
    gate, up = real_operands(16 if context()["full"] else 3)
    cycles = await bench.run((gate, up))
    ideal = bound(len(gate), p)
    bench.bench.compare("cycles", np.array([ideal + p.stages]), np.array([cycles]))
    tensors = f"SmolLM2 layers {LAYERS}, {len(gate)} elements of the feed-forward layer"
    bench.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
async def edges(dut: Any) -> None:
    """All pairs of zeros, subnormals, infinities and NaNs."""
    await bench_for(dut, "edges").run(edge_operands())


@cocotb.test()
async def gates(dut: Any) -> None:
    """Gates from the whole range; all of them in the long version."""
    bench = bench_for(dut, "gates")
    await bench.run(every_gate(bench.bench.numpy_rng, 1 if context()["full"] else 16))


@cocotb.test()
async def hard(dut: Any) -> None:
    """Subnormal quotients, and products that nearly overflow."""
    bench = bench_for(dut, "hard")
    await bench.run(hard_operands(bench.bench.numpy_rng))


@cocotb.test()
@only_if(is_pipelined, "65,536 quotients take long with a serial divider")
async def every_quotient(dut: Any) -> None:
    """Observe all gates' quotients without rounding: multiply them by one."""
    gate = np.arange(0, 1 << 16, 64 if four_states() else 1).astype(np.uint16)
    await bench_for(dut, "every_quotient").run((gate, np.full_like(gate, BINARY16.one)))


stalls = stall_test(bench_for, lambda bench: every_gate(bench.bench.numpy_rng, 256))
resets = reset_test(
    bench_for, lambda bench: every_gate(bench.bench.numpy_rng, 256), longest=150, times=12
)
