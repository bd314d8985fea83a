"""Testbench of the element-serial rotary embedding: SmolLM2's queries and keys, edges, stalls."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.llm import open_trace
from golden.llm.model import SMOLLM2
from golden.veda.functions.element_serial_rotary import angles, rotary
from hdl.arith.float_format import BINARY16
from hdl.veda.functions.element_serial_rotary import ElementSerialRotaryParameters
from testbenches.bench import catalog_parameters, context
from testbenches.packing import code_fields
from testbenches.shared_tests import reset_test, stall_test
from testbenches.unit_bench import Fields
from testbenches.veda.functions.serial_bench import SerialBench

Codes = NDArray[np.uint16]
Pairs = tuple[Codes, Codes, Codes, Codes]
LAYERS = (0, 14, 29)
TOKENS = 640
SPECIAL = (0, 0x8000, 1, 0x8001, 0x3FF, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01)


def prepare(p: ElementSerialRotaryParameters) -> None:
    """Capture the tensors before the simulator starts."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def real_pairs(tokens: int) -> Pairs:
    """Return queries and keys of SmolLM2 with their positions' angles."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    chosen = np.linspace(0, TOKENS - 1, tokens).astype(int)
    half = trace.head_size // 2
    cosine, sine = (part[chosen] for part in angles(TOKENS, trace.head_size, SMOLLM2.rope_base))
    columns: list[list[Codes]] = [[], [], [], []]
    for layer in LAYERS:
        for head in (0, 4, 8):
            attention = trace.attention_trace(layer, head)
            for before in (attention.q_before_rope, attention.k_before_rope):
                codes = before[chosen].astype(np.float16).view(np.uint16)
                for column, part in zip(
                    columns, (codes[:, :half], codes[:, half:], cosine, sine), strict=True
                ):
                    column.append(part.ravel())
    x, y, c, s = (np.concatenate(column) for column in columns)
    return x, y, c, s


def edge_pairs() -> Pairs:
    """Return special values as elements, with angles at and beyond the ends of their range."""
    values = np.array(SPECIAL, np.uint16)
    angle = np.array([0, 0x3C00, 0xBC00, 0x0001, 0x39A8, 0x7C00, 0xFC00, 0x39A8], np.uint16)
    x, y, c = np.meshgrid(values, values, angle)
    return x.ravel(), y.ravel(), c.ravel(), np.roll(c.ravel(), 1)


def random_pairs(rng: np.random.Generator, count: int) -> Pairs:
    """Return any codes as elements, and angles; half of the pairs cancel in one result."""
    x, y = rng.integers(0, 1 << 16, (2, count)).astype(np.uint16)
    angle = rng.uniform(-np.pi, np.pi, count)
    c, s = (part.astype(np.float16).view(np.uint16) for part in (np.cos(angle), np.sin(angle)))
    near = rng.random(count) < 0.5
    y = np.where(near, x, y)
    s = np.where(near, c, s)
    return x, y, c, s


def product_pairs(rng: np.random.Generator) -> Pairs:
    """Return pairs in which one product is a tie, subnormal or too large, and the other is zero."""
    # Mantissas whose products are a tie or next to one, and carry when they are rounded.
    m, n = (0, 1, 0x155, 0x1FF, 0x200, 0x2AA, 0x3FE, 0x3FF), (0, 1, 0x200, 0x300, 0x3FE, 0x3FF)
    # The exponent codes of both factors add up to the product's exponent code plus the bias.
    sums = [*range(1, 19), 44, 45, 46, 47]
    left, right, total = (part.ravel() for part in np.meshgrid(m, n, sums))
    code = rng.integers((total - 30).clip(1), total.clip(max=30), endpoint=True)
    number, factor = code << 10 | left, (total - code) << 10 | right
    # Subnormals with any number of leading zeros, times any numbers.
    number = np.append(number, rng.integers(0, 1024, 800) >> rng.integers(0, 10, 800))
    factor = np.append(factor, rng.integers(0, 1 << 15, 800))
    exchanged = rng.random(number.shape) < 0.5
    number, factor = np.where(exchanged, [factor, number], [number, factor])
    shown = np.stack([number, factor]) | rng.integers(0, 2, (2, len(number))) << 15
    nothing = np.array([0, 0x8000])[rng.integers(0, 2, len(number))]
    x, y = np.append(shown[0], nothing), np.append(nothing, shown[0])
    cosine = np.append(shown[1], shown[1])
    sine = rng.permutation(cosine)
    x, y, cosine, sine = (part.astype(np.uint16) for part in (x, y, cosine, sine))
    return x, y, cosine, sine


def sum_pairs(rng: np.random.Generator) -> Pairs:
    """Return pairs whose sum and difference are ties, or nearly, or cancel; both factors are 1."""
    mantissas = (0, 1, 2, 0x155, 0x200, 0x3FD, 0x3FE, 0x3FF)
    parts = np.meshgrid(mantissas, mantissas, np.arange(15), [0, 1])
    large, small, distance, sign = (part.ravel() for part in parts)
    code = rng.integers(distance, 30, endpoint=True)
    x, y = code << 10 | large, sign << 15 | (code - distance) << 10 | small
    one = np.full(len(x), BINARY16.one, np.uint16)
    return x.astype(np.uint16), y.astype(np.uint16), one, one


def ends(count: int) -> NDArray[np.int64]:
    """Return where heads of 32 pairs end."""
    return (np.arange(count) % 32 == 31).astype(np.int64)


def results(pairs: Pairs) -> Fields:
    """Return the expected outputs."""
    x, y = rotary(*pairs)
    return {"x": x, "y": y, "last": ends(len(x))}


def offered(pairs: Pairs) -> Fields:
    """Return the pairs with their angles."""
    names = ("x", "y", "cosine", "sine")
    fields: Any = {name: code_fields(part) for name, part in zip(names, pairs, strict=True)}
    return fields | {"last": ends(len(pairs[0]))}


def bench_for(dut: Any, salt: str, source: str = "none", sink: str = "none") -> SerialBench[Pairs]:
    """Return a bench with the unit's streams."""
    p = catalog_parameters()
    return SerialBench(
        dut,
        salt,
        source,
        sink,
        inputs={"pairs": p.pair_layout},
        outputs={"rotated": p.rotated_layout},
        offered=lambda pairs: {"pairs": offered(pairs)},
        expected=lambda pairs: {"rotated": results(pairs)},
    )


@cocotb.test()
async def real_heads(dut: Any) -> None:
    """Rotate queries and keys of SmolLM2 at full rate: one pair in two cycles."""
    p = catalog_parameters()
    bench = bench_for(dut, "real_heads")
    pairs = real_pairs(16 if context()["full"] else 4)
    cycles = await bench.run(pairs)
    ideal = 2 * len(pairs[0])
    bench.bench.compare("cycles", np.array([ideal + p.stages]), np.array([cycles]))
    tensors = f"SmolLM2 layers {LAYERS}, {len(pairs[0])} pairs of queries and keys"
    bench.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
async def edges(dut: Any) -> None:
    """All combinations of zeros, subnormals, infinities and NaNs."""
    await bench_for(dut, "edges").run(edge_pairs())


@cocotb.test()
async def products(dut: Any) -> None:
    """Products of any two numbers: ties, subnormals, and those at the end of the range."""
    bench = bench_for(dut, "products")
    await bench.run(product_pairs(bench.bench.numpy_rng))


@cocotb.test()
async def sums(dut: Any) -> None:
    """Compute sums and differences with more or fewer digits than the format has."""
    bench = bench_for(dut, "sums")
    await bench.run(sum_pairs(bench.bench.numpy_rng))


stalls = stall_test(bench_for, lambda bench: random_pairs(bench.bench.numpy_rng, 200))
resets = reset_test(
    bench_for, lambda bench: random_pairs(bench.bench.numpy_rng, 200), longest=150, times=12
)
