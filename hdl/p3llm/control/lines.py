"""The instruction lists of both sides, and the dependences between them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, TypeVar

from amaranth.lib import data
from amaranth.utils import bits_for

from hdl.p3llm.instructions import (
    MemoryInstruction,
    NpuInstruction,
    memory_instruction,
    npu_instruction,
)
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.places import Places

LEAST_BITS = 10
"""Minimum number of bits of an instruction count."""


class Shared(Enum):
    """Data that one side writes and the other reads; the order of instructions follows from them.

    Members
    -------
    NORM, SMOOTHING
        Weights of a norm; smoothing factors.
    ROWS_0, ROWS_1
        Row scales of a linear layer, in two places.
    INPUTS, SUMS
        Inputs and sums of a linear layer.
    CODES
        The token's quantised keys and values.
    QUERY_0, QUERY_1
        Quantised queries of a pair of heads, in two places.
    SCORES_0, SCORES_1
        Sums of a pair's queries and keys.
    PROBABILITIES_0, PROBABILITIES_1
        Quantised probabilities of a pair.
    HEADS_0, HEADS_1
        Sums of a pair's probabilities and values.
    SCALES_0, SCALES_1
        Scales of a head's keys and values, in two places.
    """

    NORM = auto()
    SMOOTHING = auto()
    ROWS_0 = auto()
    ROWS_1 = auto()
    INPUTS = auto()
    SUMS = auto()
    CODES = auto()
    QUERY_0 = auto()
    QUERY_1 = auto()
    SCORES_0 = auto()
    SCORES_1 = auto()
    PROBABILITIES_0 = auto()
    PROBABILITIES_1 = auto()
    HEADS_0 = auto()
    HEADS_1 = auto()
    SCALES_0 = auto()
    SCALES_1 = auto()


ROWS = (Shared.ROWS_0, Shared.ROWS_1)
QUERIES = (Shared.QUERY_0, Shared.QUERY_1)
SCORES = (Shared.SCORES_0, Shared.SCORES_1)
PROBABILITIES = (Shared.PROBABILITIES_0, Shared.PROBABILITIES_1)
HEADS = (Shared.HEADS_0, Shared.HEADS_1)
SCALES = (Shared.SCALES_0, Shared.SCALES_1)


Instruction = TypeVar("Instruction", MemoryInstruction, NpuInstruction)


@dataclass(frozen=True)
class Line(Generic[Instruction]):
    """An instruction of one side, with its dependences.

    Members
    -------
    instruction : MemoryInstruction or NpuInstruction
        Values of the instruction's fields.
    request : int
        Request whose position the instruction uses.
    reads, writes : frozenset
        The shared data that it reads and writes.
    after : int
        Number of instructions of the other side that must be complete before it starts.
    """

    instruction: Instruction
    request: int
    reads: frozenset[Shared]
    writes: frozenset[Shared]
    after: int


@dataclass
class Lines:
    """The instruction lists of both sides; dependences follow from the shared data.

    Parameters
    ----------
    p : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    memory, npu : list
        Instructions of the memory side and of the NPU side.
    """

    p: P3llmParameters
    memory: list[Line[MemoryInstruction]] = field(default_factory=list)
    npu: list[Line[NpuInstruction]] = field(default_factory=list)

    @property
    def places(self) -> Places:
        """Places of vectors in the NPU's memories."""
        return Places(self.p)

    @property
    def counts(self) -> tuple[int, int]:
        """Number of instructions so far, of memory side and NPU side."""
        return len(self.memory), len(self.npu)

    @property
    def bits(self) -> int:
        """Bits of an instruction count."""
        return max(LEAST_BITS, bits_for(max(self.counts)))

    @property
    def layouts(self) -> tuple[data.StructLayout, data.StructLayout]:
        """Layouts of an encoded instruction, of memory side and NPU side.

        `after`, the number of instructions of the other side that must be complete; the
        `instruction`; the `request` whose position it uses.
        """
        memory, npu = (
            data.StructLayout(
                {"after": self.bits, "instruction": instruction, "request": range(self.p.batch)}
            )
            for instruction in (memory_instruction(self.p), npu_instruction(self.p))
        )
        return memory, npu

    @property
    def encoded(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Encoded instructions of both sides."""
        memory, npu = self.layouts
        return (
            tuple(self._encoded(line, memory) for line in self.memory),
            tuple(self._encoded(line, npu) for line in self.npu),
        )

    @staticmethod
    def _encoded(line: Line[Instruction], layout: data.StructLayout) -> int:
        """Return an encoded instruction."""
        fields: dict[int | str, object] = {
            "after": line.after,
            "instruction": vars(line.instruction),
            "request": line.request,
        }
        return layout.const(fields).as_value().value

    def operate(
        self,
        instruction: NpuInstruction,
        *,
        reads: Sequence[Shared] = (),
        writes: Sequence[Shared] = (),
        request: int = 0,
    ) -> None:
        """Add an operation of the NPU on a vector."""
        after = _last_conflict(self.memory, reads, writes)
        self.npu.append(Line(instruction, request, frozenset(reads), frozenset(writes), after))

    def access(
        self,
        instruction: MemoryInstruction,
        *,
        reads: Sequence[Shared] = (),
        writes: Sequence[Shared] = (),
        request: int = 0,
    ) -> None:
        """Add an instruction of the memory side."""
        after = _last_conflict(self.npu, reads, writes)
        self.memory.append(Line(instruction, request, frozenset(reads), frozenset(writes), after))

    def fetch(self, base: int, numbers: int, writes: Shared, place: int) -> None:
        """Add a read of FP16 numbers."""
        columns, tail = (self.places.columns(place), 0), self.p.positions(numbers)
        self.access(MemoryInstruction(base=base, tail=tail, columns=columns), writes=[writes])


def _last_conflict(
    others: Sequence[Line[Instruction]], reads: Sequence[Shared], writes: Sequence[Shared]
) -> int:
    """Return the number of instructions of the other side up to the last conflicting one."""
    mine, changed = {*reads, *writes}, set(writes)
    conflicts = [
        number
        for number, other in enumerate(others, start=1)
        if other.writes & mine or other.reads & changed
    ]
    return max(conflicts, default=0)
