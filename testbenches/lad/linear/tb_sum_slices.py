"""Testbench of slices of sums: real layers, layers of any size in a row, stalls, resets."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.lad.linear.sum_slices import sum_slices
from golden.llm import open_trace
from hdl.lad.linear.sum_slices import SumSlicesParameters
from testbenches.bench import Bench, catalog_parameters
from testbenches.lad.layer_driver import resized
from testbenches.lad.vectors import LAYERS, TOKENS, random_codes
from testbenches.lad.vectors import prepare as prepare
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import Port, filling_pauses, four_states, pause_until

Codes = NDArray[np.uint16]

MATRICES = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))
"""Matrices of a layer; those with the same inputs are one."""

MOST_ROWS = 3072
"""Largest size of a matrix of SmolLM2; larger ones of a preset are replaced by it."""

BUDGET = 12_000
"""Transfers per test; large layers are few, and small ones many."""


@dataclass(frozen=True)
class Layer:
    """Sums [groups, batch, units] of a linear layer, and the number of sums in the last group."""

    sums: Codes
    rest: int

    @property
    def transfers(self) -> int:
        """Number of transfers of sums."""
        return len(self.sums) * self.sums.shape[1]


class SliceBench:
    """Connections to the unit, and the queued layers; a part of its bench.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Stall patterns of sums and slices.
    """

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: SumSlicesParameters = catalog_parameters()
        self.bench = Bench(dut, salt)
        self.rng = self.bench.numpy_rng
        self.sums = self.bench.source("sums", source)
        self.slices = self.bench.sink("slices", sink)
        self.groups, self.rest = Port(dut.groups), Port(dut.rest)
        self.layers: list[Layer] = []
        self.ends = [0]
        # Sampled after the sums, since it reads what they have just offered.
        self.bench.add(self)

    def clear(self) -> None:
        """Discard all work."""
        self.layers.clear()
        self.ends = [0]

    def offer(self, layers: list[Layer]) -> None:
        """Queue layers."""
        for layer in layers:
            self.layers.append(layer)
            self.ends.append(self.ends[-1] + layer.transfers)
            transfers = layer.sums.reshape(-1, self.p.units)
            self.sums.send(to_integers(pack(self.p.sums_layout, transfers)))

    def drive(self) -> None:
        """Drive the current layer's number of sums; between two layers, noise."""
        number = bisect_right(self.ends, self.sums.taken) - 1
        if self.sums.offered or self.sums.taken > self.ends[number]:
            layer = self.layers[number]
            self.groups.value, self.rest.value = len(layer.sums), layer.rest
        else:
            for port in (self.groups, self.rest):
                port.value = self.bench.rng.getrandbits(port.width)

    def sample(self) -> None:
        """Do nothing: only the streams move."""

    def expected(self) -> Codes:
        """Return all slices of the queued layers."""
        cut = [sum_slices(one.sums, one.rest, self.p.head_size) for one in self.layers]
        return np.concatenate(cut)

    async def run(self, layers: list[Layer]) -> int:
        """Reset, run layers, compare all slices, and return the cycles."""
        await self.bench.reset()
        self.offer(layers)
        return await self.finish()

    async def finish(self) -> int:
        """Receive all slices of the queued layers, compare them, and return the cycles."""
        expected, received = self.expected(), self.slices.received
        cycles = await self.bench.run(until=lambda: len(received) >= len(expected))
        # No further slice follows.
        await self.bench.step(20)
        seen, payloads = zip(*received, strict=True)
        layout = self.p.slice_layout
        got = unpack(layout, from_integers(list(payloads), layout.size))["values"]
        self.bench.compare(
            "slices", expected.astype(np.int64), got, cycles=list(seen), show=lambda n: f"{n:#06x}"
        )
        return cycles


def layer_of(p: SumSlicesParameters, rng: np.random.Generator, sums: Codes) -> Layer:
    """Return a layer with each sample's sums [batch, sums]; the elements after them are noise."""
    count = sums.shape[1]
    groups = -(-count // p.units)
    rows = rng.integers(0, 1 << 16, (p.batch, groups * p.units), np.uint16)
    rows[:, :count] = sums
    return Layer(
        rows.reshape(p.batch, groups, p.units).swapaxes(0, 1), count - (groups - 1) * p.units
    )


def real_layers(p: SumSlicesParameters, rng: np.random.Generator) -> list[Layer]:
    """Return the sums of a layer of SmolLM2 for some tokens, in FP16.

    Other numbers of slices keep the proportions, and repeat the model's sums if they are larger.
    """
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    most = whole_slices(p)
    layers = []
    for names in MATRICES:
        parts = [trace.linear(LAYERS[1], name) for name in names]
        sums = np.concatenate([one.inputs[-p.batch :] @ one.weight.T for one in parts], axis=1)
        count = max(1, round(most * sums.shape[1] / MOST_ROWS)) * p.head_size
        # If all groups together do not fill a slice, they have as many sums as possible.
        count = min(count, p.groups * p.units)
        layers.append(layer_of(p, rng, codes(resized(sums, count, axis=1))))
    return layers


def whole_slices(p: SumSlicesParameters) -> int:
    """Return the largest number of slices that the sums of a layer fill."""
    return p.groups * p.units // p.head_size


def random_layers(
    p: SumSlicesParameters, rng: np.random.Generator, *, whole: bool
) -> Iterator[Layer]:
    """Generate layers with any number of groups and rest, or layers that fill their slices."""
    unit, most = (p.head_size, whole_slices(p)) if whole else (1, p.groups * p.units)
    if not most:
        unit, most = p.groups * p.units, 1
    while True:
        # Of all magnitudes; the least and the largest are often next to each other.
        middling = int(rng.integers(1, 1 + (most >> rng.integers(0, most.bit_length()))))
        few = int(rng.integers(1, 1 + min(most, p.units)))
        count = unit * int(rng.choice([1, few, middling, middling, most]))
        sums = rng.integers(0, 1 << 16, (p.batch, count))
        if rng.random() < 0.5:
            sums = random_codes(rng, sums.shape)
        yield layer_of(p, rng, sums.astype(np.uint16))


def fitting(layers: Iterator[Layer], share: int = 1) -> list[Layer]:
    """Return as many layers as fit into a test, or into a part of one, at least two."""
    left = BUDGET // (10 if four_states() else 1) // share
    kept: list[Layer] = []
    for layer in layers:
        if layer.transfers > left and len(kept) > 1:
            break
        kept.append(layer)
        left -= layer.transfers
    return kept


def least_cycles(p: SumSlicesParameters, layers: list[Layer]) -> int:
    """Return the transfers on the narrower side, at one per cycle."""
    sums = sum(layer.transfers for layer in layers)
    slices = sum(len(sum_slices(layer.sums, layer.rest, p.head_size)) for layer in layers)
    return max(sums, slices)


@cocotb.test()
async def texts(dut: Any) -> None:
    """Cut the sums of a layer of SmolLM2, one transfer per cycle."""
    one = SliceBench(dut, "texts")
    layers = real_layers(one.p, one.rng)
    cycles = await one.run(layers)
    ideal = least_cycles(one.p, layers)
    one.bench.compare("cycles", np.array([ideal + 1]), np.array([cycles]))
    slices = sum(len(sum_slices(layer.sums, layer.rest, one.p.head_size)) for layer in layers)
    tensors = f"SmolLM2's sums of layer {LAYERS[1]}, {slices} slices of {one.p.head_size}"
    one.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """Run layers that fill their slices, back to back without a free cycle."""
    one = SliceBench(dut, "full rate")
    layers = fitting(random_layers(one.p, one.rng, whole=True))
    cycles = await one.run(layers)
    ideal = least_cycles(one.p, layers)
    one.bench.compare("cycles", np.array([ideal + 1]), np.array([cycles]))


@cocotb.test()
async def full(dut: Any) -> None:
    """Stall until each sample has accepted the sums that complete a slice, or the layer's last."""
    one = SliceBench(dut, "full")
    p, layers = one.p, random_layers(one.p, one.rng, whole=False)
    room = -(-p.head_size // p.units)
    for _ in range(4 if four_states() else 30):
        await one.bench.reset()
        offered = fitting(layers, share=200)
        one.offer(offered)
        stands = p.batch * room + 20
        one.slices.pauses = pause_until(stands)
        await one.bench.step(stands)
        taken = p.batch * min(len(offered[0].sums), room)
        one.bench.compare("taken", np.array([taken]), np.array([one.sums.taken]))
        await one.finish()


@cocotb.test()
@cocotb.parametrize(source=["none", "random"])
async def filling(dut: Any, source: str) -> None:
    """Stall repeatedly, and receive a few slices in between."""
    one = SliceBench(dut, f"filling {source}", source)
    one.slices.pauses = filling_pauses(one.bench.rng)
    await one.run(fitting(random_layers(one.p, one.rng, whole=False), share=32))


def some_layers(one: SliceBench, share: int) -> list[Layer]:
    """Return layers of any size for a part of a test's time."""
    return fitting(random_layers(one.p, one.rng, whole=False), share=share)


stalls = stall_test(SliceBench, lambda one: some_layers(one, 16))
resets = reset_test(
    SliceBench,
    lambda one: some_layers(one, 32),
    begun=lambda one: list(islice(random_layers(one.p, one.rng, whole=False), 2)),
    longest=lambda one: 40 * one.p.batch,
    times=lambda _one: 4 if four_states() else 40,
    pauses=("random", "random"),
)
