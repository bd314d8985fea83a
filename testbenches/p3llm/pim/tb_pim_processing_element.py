"""Testbench of P3-LLM's processing element: SmolLM2's operands, extreme codes, idle cycles."""

from typing import Any

import cocotb
import numpy as np
from amaranth.hdl import unsigned
from amaranth.lib import data

from golden.p3llm.pim import real_operands
from golden.p3llm.pim.operand_decoder import input_operands
from golden.p3llm.pim.pim_processing_element import Cycles, finished
from golden.p3llm.pim.real_operands import Operands
from hdl.p3llm.pim.dot_product import PE_LANES
from hdl.p3llm.pim.operand_decoder import SHIFT, SIGNIFICAND, Mode
from hdl.p3llm.pim.pim_processing_element import PimProcessingElementParameters
from testbenches.bench import Bench, catalog_parameters
from testbenches.p3llm.pim.cycle_driver import NEVER_MOVES, CycleDriver
from testbenches.shared_tests import reset_test

NIBBLES = data.ArrayLayout(4, PE_LANES)
INPUTS = {
    "mode": unsigned(2),
    "codes": NIBBLES,
    "group_bits": NIBBLES,
    "significands": data.ArrayLayout(SIGNIFICAND, PE_LANES),
    "shifts": data.ArrayLayout(SHIFT, PE_LANES),
    "first": unsigned(1),
    "last": unsigned(1),
    "advance": unsigned(1),
}


def prepare(p: PimProcessingElementParameters) -> None:
    """Capture the tensors before the simulator starts."""
    real_operands.trace()


def real_products(pumps: int) -> list[Operands]:
    """Return products of SmolLM2 in all modes, the inputs of each a multiple of four."""
    products = []
    for layer in real_operands.LAYERS:
        products += [
            real_operands.linear(layer, name, outputs=8, inputs=128, tokens=pumps)
            for name in ("q_proj", "down_proj")
        ]
        for kv_head in range(2):
            products += [
                real_operands.queries_and_keys(layer, kv_head, tokens=24, heads=min(pumps, 3)),
                real_operands.probabilities_and_values(
                    layer, kv_head, tokens=256, heads=min(pumps, 3)
                ),
            ]
    return products


def extreme_products(rng: np.random.Generator, pumps: int) -> list[Operands]:
    """Return the largest sums of either sign, NaN codes, and random codes."""
    products = []
    for mode in Mode:
        probability = mode is Mode.PV
        largest = [0xF0] if probability else [0x7E, 0xFE]
        for code in largest:
            for weight, bits in ((8, 2), (8, 3)) if mode is Mode.LINEAR else ((15, 0), (0, 15)):
                # 128 terms are the longest sum of E4M3; 68 probabilities of one exceed any softmax,
                # and still fit.
                shape = (1, 128)
                products.append(
                    Operands(
                        mode=mode,
                        inputs=np.full((pumps, 128), code, np.uint8),
                        codes=np.full(shape, weight, np.uint8),
                        group_bits=np.full(shape, bits, np.uint8),
                    )
                )
        for length in (4, 8, 64, 128):
            products.append(
                Operands(
                    mode=mode,
                    inputs=rng.integers(0, 256, (pumps, length)).astype(np.uint8),
                    codes=rng.integers(0, 16, (3, length)).astype(np.uint8),
                    group_bits=rng.integers(0, 16, (3, length)).astype(np.uint8),
                )
            )
    return products


def columns_of(products: list[Operands], pumps: int) -> dict[str, np.ndarray]:
    """Return columns in order: a row of fields for every four codes of an output."""
    fields: dict[str, list[np.ndarray]] = {
        name: [] for name in ("mode", "inputs", "codes", "group_bits", "first", "last")
    }
    for product in products:
        steps = product.codes.shape[-1] // PE_LANES
        # Missing inputs are zeros.
        padded = np.zeros((pumps, product.codes.shape[-1]), np.uint8)
        padded[: len(product.inputs)] = product.inputs[:pumps]
        inputs = padded.reshape(pumps, steps, PE_LANES).swapaxes(0, 1)
        for output in range(len(product.codes)):
            fields["mode"].append(np.full(steps, product.mode.value))
            fields["inputs"].append(inputs)
            fields["codes"].append(product.codes[output].reshape(steps, PE_LANES))
            fields["group_bits"].append(product.group_bits[output].reshape(steps, PE_LANES))
            fields["first"].append(np.arange(steps) == 0)
            fields["last"].append(np.arange(steps) == steps - 1)
    return {name: np.concatenate(parts) for name, parts in fields.items()}


def cycles_of(
    columns: dict[str, np.ndarray], pumps: int, rng: np.random.Generator, idle: float
) -> Cycles:
    """Distribute columns over cycles, with gaps of whole columns, and read the sums in between.

    A column takes one cycle per pump. Finished sums are shifted in a cycle before those of the next
    product arrive.
    """
    count = len(columns["mode"])
    gaps = (rng.random(count) < idle) * rng.integers(1, 4, count)
    starts = (np.arange(count) + np.cumsum(gaps)) * pumps
    total = int(starts[-1]) + 4 * pumps + 8
    work = np.zeros(total, bool)
    fields = {
        "mode": rng.integers(0, 3, total),
        "inputs": rng.integers(0, 256, (total, PE_LANES)),
        "codes": rng.integers(0, 16, (total, PE_LANES)),
        "group_bits": rng.integers(0, 16, (total, PE_LANES)),
        "first": np.zeros(total, bool),
        "last": np.zeros(total, bool),
    }
    for pump in range(pumps):
        at = starts + pump
        work[at] = True
        for name, target in fields.items():
            values = columns[name]
            target[at] = values[:, pump] if name == "inputs" else values
    # The sums of a product are finished in cycles 2 to `pumps` + 1 after its last column; sums that
    # are not read before the next ones are lost.
    move = np.zeros(total, bool)
    ends = starts[columns["last"]] + pumps + 1
    for end, following in zip(ends, [*ends[1:], total - 2], strict=True):
        free = np.arange(end + 1, following - pumps + 1)
        if len(free):
            chosen = np.sort(rng.choice(free, min(len(free), pumps - 1), replace=False))
            move[chosen] = True
    return Cycles(work=work, advance=move, **fields)


def port_values(cycles: Cycles) -> dict[str, np.ndarray]:
    """Return the value of each input in every cycle."""
    significand, shift, _nan = input_operands(cycles.mode[:, np.newaxis], cycles.inputs)

    def later(values: np.ndarray, count: int = 1) -> np.ndarray:
        return np.concatenate([np.zeros_like(values[:count]), values[:-count]])

    return {
        "mode": cycles.mode,
        "codes": cycles.codes,
        "group_bits": cycles.group_bits,
        "significands": np.where(cycles.work[:, np.newaxis], significand, 0),
        "shifts": later(shift),
        "first": later(cycles.first & cycles.work, 2),
        "last": later(cycles.last & cycles.work, 2),
        "advance": cycles.advance,
    }


class ElementBench:
    """An element, its inputs and its finished sum in every cycle; it has no streams to stall."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        assert source == sink == "none", "an element has no streams"
        self.pumps = catalog_parameters().pumps
        self.bench = Bench(dut, salt, timeout=NEVER_MOVES)
        self.driver = self.bench.add(CycleDriver(dut, INPUTS, ("finished",)))

    def offer(self, cycles: Cycles) -> None:
        """Queue the inputs of cycles."""
        self.driver.send(port_values(cycles))

    async def run(self, cycles: Cycles) -> None:
        """Run after a reset, and compare every finished sum in every cycle."""
        await self.bench.reset()
        self.offer(cycles)
        await self.bench.step(len(cycles.work))
        expected, known = finished(self.pumps, cycles)
        read = np.array(self.driver.recorded["finished"], np.uint32)
        got = read.astype(np.int32).astype(np.int64)
        numbers = np.flatnonzero(known)
        self.bench.compare("finished", expected[known], got[known], cycles=numbers)


def random_cycles(element: ElementBench) -> Cycles:
    """Return random products of the last mode, with idle columns."""
    rng, pumps = element.bench.numpy_rng, element.pumps
    return cycles_of(columns_of(extreme_products(rng, pumps)[-4:], pumps), pumps, rng, 0.2)


@cocotb.test()
async def real_tensors(dut: Any) -> None:
    """Run all modes on SmolLM2's operands, at full rate and with idle columns."""
    element = ElementBench(dut, "real")
    bench, pumps = element.bench, element.pumps
    columns = columns_of(real_products(pumps), pumps)
    for idle in (0.0, 0.3):
        await element.run(cycles_of(columns, pumps, bench.numpy_rng, idle))
    ideal = len(columns["mode"]) * pumps
    tensors = f"SmolLM2 layers {real_operands.LAYERS}, weights, keys, values of prose"
    bench.record(cycles=ideal, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
async def extremes(dut: Any) -> None:
    """Add the largest sums, NaNs, random codes in random modes."""
    element = ElementBench(dut, "extremes")
    bench, pumps = element.bench, element.pumps
    products = extreme_products(bench.numpy_rng, pumps)
    for idle in (0.0, 0.5):
        bench.rng.shuffle(products)
        columns = columns_of(products, pumps)
        await element.run(cycles_of(columns, pumps, bench.numpy_rng, idle))


# Sums are in progress at each reset.
resets = reset_test(ElementBench, random_cycles, longest=20, rounds=4, pauses=("none", "none"))
