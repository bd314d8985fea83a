"""Testbench of the address generator: the layers' sequences, random ones, pauses, resets."""

from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np

from golden.lad.control.slice_walk import LOOPS, slice_walk
from hdl.lad.catalog import PAPER, SMOLLM2, TINY
from hdl.lad.control.program import LayerProgram
from hdl.lad.control.slice_walk import SliceWalkParameters
from hdl.lad.instructions import Loops
from testbenches.bench import Bench, catalog_parameters
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import PAUSES, Port, four_states, read

OUTPUTS = ("address", "middle", "inner_ends", "ends")
LIMIT = 1 << 20
"""Limit in cycles: no stream moves here."""

Record = dict[str, Any]


class SequenceBench:
    """Run sequences of addresses back to back; a part of its own bench.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source : str
        Pattern of the cycles without `advance`.
    left : float
        Share of cycles in which a sequence is abandoned for the next one.

    Members
    -------
    seen, expected : list
        One row of outputs per cycle of a sequence.
    """

    def __init__(
        self,
        dut: Any,
        salt: str,
        source: str = "none",
        _sink: str = "none",
        *,
        left: float = 0.0,
    ) -> None:
        self.p: SliceWalkParameters = catalog_parameters()
        self.bench = Bench(dut, salt, timeout=LIMIT)
        self.pauses, self.left = self.bench.pauses(source), left
        names = ("loops", "start", "advance")
        self.inputs = {name: Port(getattr(dut, name)) for name in names}
        self.sequences: list[Record] = []
        self.seen: list[tuple[int, ...]] = []
        self.expected: list[tuple[int, ...]] = []
        self.rows: list[tuple[int, ...]] = []
        self.next_rows: list[tuple[int, ...]] = []
        self.row, self.begins, self.goes = 0, False, False
        self.bench.add(self)
        self.clear()

    def clear(self) -> None:
        """Discard all work."""
        for part in (self.sequences, self.seen, self.expected):
            part.clear()
        self.rows, self.next_rows = [], []
        self.row, self.begins, self.goes = 0, False, False
        for port in self.inputs.values():
            port.value = 0

    @property
    def idle(self) -> bool:
        """Whether all sequences have ended."""
        return not self.rows and not self.sequences

    def drive(self) -> None:
        """Begin the next sequence if none is in progress or this one is abandoned; or advance."""
        goes, rng = not next(self.pauses), self.bench.rng
        ended = not self.rows or (self.left > 0 and rng.random() < self.left)
        self.begins = bool(self.sequences) and goes and ended
        more = self.row + 1 < len(self.rows)
        # `advance` is ignored in the cycle of `start`.
        advance = rng.random() < 0.5 if self.begins else goes and more
        self.inputs["start"].value = int(self.begins)
        self.inputs["advance"].value = int(advance)
        self.goes = goes
        if self.begins:
            self.next_rows = list(map(tuple, slice_walk(self.sequences[0], self.p.bits).tolist()))
            layout: Any = self.p.loops_layout
            self.inputs["loops"].value = layout.const(self.sequences.pop(0)).as_value().value

    def sample(self) -> None:
        """Record the outputs of the current sequence."""
        if self.begins:
            self.rows, self.row = self.next_rows, 0
        elif self.rows:
            self.seen.append(tuple(read(getattr(self.bench.dut, name)) for name in OUTPUTS))
            self.expected.append(self.rows[self.row])
            self.row += self.goes
            if self.row == len(self.rows):
                self.rows, self.row = [], 0

    def offer(self, sequences: Sequence[Record]) -> None:
        """Queue sequences."""
        self.sequences += sequences

    async def run(self, sequences: Sequence[Record]) -> int:
        """Reset, run sequences, compare every cycle, and return the cycles."""
        await self.bench.reset()
        self.offer(sequences)
        cycles = await self.bench.run(until=lambda: self.idle)
        got, expected = np.array(self.seen), np.array(self.expected)
        for number, name in enumerate(OUTPUTS):
            self.bench.compare(name, expected[:, number], got[:, number])
        return cycles


def random_sequence(rng: np.random.Generator, bits: int, most: int = 6) -> Record:
    """Return a sequence with any base and strides, and some rounds; one loop can have them all."""
    top = 1 << bits
    rounds = rng.integers(1, min(most, top), 3)
    if rng.random() < 0.2:
        rounds = np.ones(3, np.int64)
        rounds[rng.integers(3)] = rng.integers(1, min(top, 600))
    # Strides of all sizes, for carries out of every digit.
    strides = rng.integers(0, top, 3) >> rng.integers(0, bits, 3)
    loops = {
        name: {"rounds": int(count), "stride": int(stride)}
        for name, count, stride in zip(LOOPS, rounds, strides, strict=True)
    }
    return {"base": int(rng.integers(top)), **loops}


def layer_sequences(bits: int) -> list[Record]:
    """Return all sequences of the largest layers whose addresses have as many bits."""
    fitting = [p for p in (TINY, SMOLLM2, PAPER) if p.address_shape.width <= bits] or [TINY]
    program = LayerProgram(fitting[-1])
    sequences: list[Loops] = [program.outputs]
    for instruction in program.instructions:
        sequences += [loops for _what, loops in (*instruction.moves, *instruction.writes)]
    # With fewer bits than the smallest layers have, the lower ones.
    mask = (1 << bits) - 1
    return [
        {"base": loops.base & mask}
        | {
            name: {"rounds": max(rounds & mask, 1), "stride": stride & mask}
            for name, (rounds, stride) in zip(
                LOOPS, (loops.outer, loops.middle, loops.inner), strict=True
            )
        }
        for loops in sequences
    ]


@cocotb.test()
async def layers(dut: Any) -> None:
    """Run the sequences of a token's layer, one address per cycle."""
    one = SequenceBench(dut, "layers")
    sequences = layer_sequences(one.p.bits)
    cycles = await one.run(sequences)
    places = len(one.expected)
    one.bench.compare("cycles", np.array([places + len(sequences)]), np.array([cycles]))
    tensors = f"the {len(sequences)} sequences of a layer, {places} places"
    one.bench.record(cycles=cycles, ideal_cycles=places, tensors=tensors)


@cocotb.test()
async def restarts(dut: Any) -> None:
    """Begin a sequence in the middle of another."""
    one = SequenceBench(dut, "restarts", "random", left=0.1)
    rng = one.bench.numpy_rng
    await one.run([random_sequence(rng, one.p.bits) for _ in range(20 if four_states() else 200)])


def random_sequences(one: SequenceBench, count: int) -> list[Record]:
    """Return random sequences."""
    rng = one.bench.numpy_rng
    return [random_sequence(rng, one.p.bits) for _ in range(count)]


# Outputs are held without `advance`.
stalls = stall_test(
    SequenceBench,
    lambda one: random_sequences(one, 10 if four_states() else 60),
    pairs=[(pattern, "none") for pattern in PAUSES],
)
resets = reset_test(
    SequenceBench,
    lambda one: random_sequences(one, 5),
    begun=lambda one: random_sequences(one, 1),
    longest=29,
    times=8,
)
