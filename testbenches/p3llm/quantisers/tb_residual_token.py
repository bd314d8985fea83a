"""Testbench of the residual token: SmolLM2's keys and values, new texts, stalls, resets."""

from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.p3llm.quantisers.residual_token import residual_token
from testbenches.bench import catalog_parameters
from testbenches.p3llm.quantisers.real_vectors import LAYERS, cut, trace
from testbenches.packing import from_integers, unpack
from testbenches.stream_bench import Fields, StreamBench
from testbenches.streams import PAUSES, until_offered

TOKENS = 6


def prepare(p: Any) -> None:
    """Capture the tensors before the simulator starts."""
    trace()


def bench_for(dut: Any, salt: str, source: str = "none", sink: str = "none") -> StreamBench:
    """Attach the unit's streams."""
    p = catalog_parameters()
    return StreamBench(
        dut,
        salt,
        source=("tokens", p.slice_layout),
        sink=("results", p.result_layout),
        pauses=(source, sink),
    )


def slices_of(tokens: NDArray[np.int64], first: NDArray[np.bool_]) -> Fields:
    """Cut tokens [tokens, elements] into slices; every head's key or value has a last one."""
    p = catalog_parameters()
    values = tokens.reshape(-1, p.lanes)
    slices = p.head_size // p.lanes
    last = (np.arange(len(values)) % slices == slices - 1).astype(int)
    return {"values": values, "first": np.repeat(first, p.slices).astype(int), "last": last}


async def run_tokens(
    bench: StreamBench, tokens: NDArray[np.int64], first: NDArray[np.bool_]
) -> int:
    """Run tokens and compare all results; data that are not to be quantised are undefined."""
    p = catalog_parameters()
    slices = slices_of(tokens, first)
    cycles = await bench.run(slices)
    quantise, some = residual_token(tokens, first, residual=p.residual)
    some = np.repeat(some, p.slices)
    packed = [payload for _cycle, payload in bench.sink.received]
    got = unpack(bench.shapes[1], from_integers(packed, bench.shapes[1].size))
    expected = np.where(some[:, np.newaxis], quantise.reshape(-1, p.lanes), got["quantise"])
    bench.check(
        {"newest": slices["values"], "quantise": expected, "some": some, "last": slices["last"]}
    )
    return cycles


def random_tokens(bench: StreamBench, count: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return tokens of some texts."""
    p, rng = catalog_parameters(), bench.bench.numpy_rng
    first = rng.random(count) < 0.3
    first[0] = True
    return rng.integers(0, 1 << 16, (count, p.slices * p.lanes)), first


@cocotb.test()
async def real(dut: Any) -> None:
    """Hold SmolLM2's keys and values for one step, at full rate."""
    bench = bench_for(dut, "real")
    p = catalog_parameters()
    parts = []
    for head in range(p.heads):
        attention = trace().attention_trace(LAYERS[head % 3], 3 * (head % 3))
        parts += [cut(part[:TOKENS], p.head_size) for part in (attention.k, attention.v)]
    cycles = await run_tokens(bench, np.concatenate(parts, axis=1), np.arange(TOKENS) == 0)
    ideal = TOKENS * p.slices
    bench.bench.compare("cycles", np.array([ideal + 1]), np.array([cycles]))
    tensors = f"SmolLM2 layers {LAYERS}, keys and values of {TOKENS} tokens"
    bench.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
@cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
async def stalls(dut: Any, source: str, sink: str) -> None:
    """Random texts under every pair of stall patterns."""
    bench = bench_for(dut, f"stalls {source} {sink}", source, sink)
    await run_tokens(bench, *random_tokens(bench, 8))


@cocotb.test()
async def late_ready(dut: Any) -> None:
    """Send every token to a receiver that asserts ready only after valid."""
    bench = bench_for(dut, "late ready")
    bench.sink.pauses = until_offered(bench.sink)
    await run_tokens(bench, *random_tokens(bench, 8))


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset in the middle of a token; the next text starts with its first slice."""
    bench = bench_for(dut, "resets", "random", "bursty")
    tokens, first = random_tokens(bench, 6)
    slices = slices_of(tokens, first)
    await bench.disturb(slices, times=6, longest=3 * catalog_parameters().slices)
    await run_tokens(bench, tokens, first)
