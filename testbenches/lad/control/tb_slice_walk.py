"""Testbench of the walk through slices: the layers' walks, drawn ones, pauses, resets."""

from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np

from golden.lad.control.slice_walk import LOOPS, slice_walk
from hdl.lad.control.layer_program import LayerProgram, Loops
from hdl.lad.control.slice_walk import SliceWalkParameters
from hdl.lad.presets import PAPER, SMOLLM2, TINY
from testbenches.bench import Bench, catalog_parameters
from testbenches.streams import PAUSES, Port, four_states, read

OUTPUTS = ("place", "middle", "pauses", "ends")
PATIENCE = 1 << 20
"""Cycles: no stream moves here."""

Record = dict[str, Any]


class Walker:
    """Goes walks one behind the other, a part of a bench.

    Parameters
    ----------
    bench : Bench
        The bench.
    pattern : str
        When it does not go on.
    left : float
        Share of cycles in which a walk is left for the next one.

    Members
    -------
    seen, expected : list
        A row of outputs for each cycle of a walk.
    """

    def __init__(self, bench: Bench, pattern: str, left: float = 0.0) -> None:
        self.p: SliceWalkParameters = catalog_parameters()
        self.bench, self.pauses, self.left = bench, bench.pauses(pattern), left
        names = ("loops", "start", "advance")
        self.inputs = {name: Port(getattr(bench.dut, name)) for name in names}
        self.clear()

    def clear(self) -> None:
        """Forget all work."""
        self.walks: list[Record] = []
        self.seen: list[tuple[int, ...]] = []
        self.expected: list[tuple[int, ...]] = []
        self.rows: list[tuple[int, ...]] = []
        self.next_rows: list[tuple[int, ...]] = []
        self.row, self.begins, self.goes = 0, False, False
        for port in self.inputs.values():
            port.value = 0

    @property
    def idle(self) -> bool:
        """Whether every walk has ended."""
        return not self.rows and not self.walks

    def drive(self) -> None:
        """Begin the next walk where none is under way, or this one is left; or go on."""
        goes, rng = not next(self.pauses), self.bench.rng
        ended = not self.rows or (self.left > 0 and rng.random() < self.left)
        self.begins = bool(self.walks) and goes and ended
        more = self.row + 1 < len(self.rows)
        # What is asked for in the cycle of a beginning does not count.
        advance = rng.random() < 0.5 if self.begins else goes and more
        self.inputs["start"].value = int(self.begins)
        self.inputs["advance"].value = int(advance)
        self.goes = goes
        if self.begins:
            self.next_rows = list(map(tuple, slice_walk(self.walks[0], self.p.bits).tolist()))
            layout: Any = self.p.loops_layout
            self.inputs["loops"].value = layout.const(self.walks.pop(0)).as_value().value

    def sample(self) -> None:
        """Look at the outputs of the walk under way."""
        if self.begins:
            self.rows, self.row = self.next_rows, 0
        elif self.rows:
            self.seen.append(tuple(read(getattr(self.bench.dut, name)) for name in OUTPUTS))
            self.expected.append(self.rows[self.row])
            self.row += self.goes
            if self.row == len(self.rows):
                self.rows, self.row = [], 0

    async def run(self, walks: Sequence[Record]) -> int:
        """Go walks after a reset, compare every cycle, and return the cycles."""
        await self.bench.reset()
        self.walks += walks
        cycles = await self.bench.run(until=lambda: self.idle)
        got, expected = np.array(self.seen), np.array(self.expected)
        for number, name in enumerate(OUTPUTS):
            self.bench.compare(name, expected[:, number], got[:, number])
        return cycles


def walker(dut: Any, salt: str, pattern: str = "none", left: float = 0.0) -> Walker:
    """Return a bench's only part."""
    bench = Bench(dut, salt, timeout=PATIENCE)
    return bench.add(Walker(bench, pattern, left))


def random_walk(rng: np.random.Generator, bits: int, most: int = 6) -> Record:
    """Return a walk of any base and strides, and some rounds; one loop may have all of them."""
    top = 1 << bits
    rounds = rng.integers(1, min(most, top), 3)
    if rng.random() < 0.2:
        rounds = np.ones(3, np.int64)
        rounds[rng.integers(3)] = rng.integers(1, min(top, 600))
    # Of all sizes: carries come out of every digit.
    strides = rng.integers(0, top, 3) >> rng.integers(0, bits, 3)
    loops = {
        name: {"rounds": int(count), "stride": int(stride)}
        for name, count, stride in zip(LOOPS, rounds, strides, strict=True)
    }
    return {"base": int(rng.integers(top)), **loops}


def layer_walks(bits: int) -> list[Record]:
    """Return every walk of the largest layers whose places have as many bits."""
    fitting = [p for p in (TINY, SMOLLM2, PAPER) if p.place_shape.width <= bits] or [TINY]
    program = LayerProgram(fitting[-1])
    walks: list[Loops] = [program.outputs]
    for operation in program.operations:
        walks += [walk for _what, walk in (*operation.moves, *operation.writes)]
    # Of fewer bits than the smallest layers have, the lower ones.
    mask = (1 << bits) - 1
    records = [walk.record for walk in walks]
    return [
        {"base": record["base"] & mask}
        | {
            name: {
                "rounds": max(record[name]["rounds"] & mask, 1),
                "stride": record[name]["stride"] & mask,
            }
            for name in LOOPS
        }
        for record in records
    ]


@cocotb.test()
async def layers(dut: Any) -> None:
    """Go the walks of a token's way through a layer, a place a cycle."""
    one = walker(dut, "layers")
    walks = layer_walks(one.p.bits)
    cycles = await one.run(walks)
    places = len(one.expected)
    one.bench.compare("cycles", np.array([places + len(walks)]), np.array([cycles]))
    tensors = f"the {len(walks)} walks of a layer, {places} places"
    one.bench.record(cycles=cycles, ideal_cycles=places, tensors=tensors)


@cocotb.test()
@cocotb.parametrize(pattern=list(PAUSES))
async def stalls(dut: Any, pattern: str) -> None:
    """Any walks under every pause pattern: what does not go on stands."""
    one = walker(dut, f"stalls {pattern}", pattern)
    rng = one.bench.numpy_rng
    await one.run([random_walk(rng, one.p.bits) for _ in range(10 if four_states() else 60)])


@cocotb.test()
async def restarts(dut: Any) -> None:
    """Begin a walk in the middle of another."""
    one = walker(dut, "restarts", "random", left=0.1)
    rng = one.bench.numpy_rng
    await one.run([random_walk(rng, one.p.bits) for _ in range(20 if four_states() else 200)])


@cocotb.test()
async def resets(dut: Any) -> None:
    """Reset in the middle of a walk, which leaves nothing behind."""
    one = walker(dut, "resets", "random")
    rng = one.bench.numpy_rng
    for _ in range(8):
        await one.bench.reset()
        one.walks += [random_walk(rng, one.p.bits)]
        await one.bench.step(int(rng.integers(1, 30)))
    await one.run([random_walk(rng, one.p.bits) for _ in range(5)])
