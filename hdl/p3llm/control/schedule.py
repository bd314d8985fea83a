"""The instruction lists of both sides, and the dependencies between them."""

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


class Buffer(Enum):
    """A buffer that one side writes and the other reads.

    Instructions depend on each other only through these members: an instruction that uses a buffer
    waits for those of the other side that use it before.

    Members
    -------
    NORM_WEIGHTS, SMOOTHING
        Weights of a norm; smoothing factors.
    ROW_SCALES_0, ROW_SCALES_1
        Row scales of a linear layer, in two places.
    INPUTS, GATED, SUMS
        Inputs of a linear layer, those of `down_proj`, and sums of a linear layer.
    CODES
        The token's quantised keys and values.
    QUERY_0, QUERY_1
        Quantised queries of a pair of heads, in two places.
    SCORES_0, SCORES_1
        Sums of a pair's queries and keys.
    PROBABILITIES_0, PROBABILITIES_1
        Quantised probabilities of a pair.
    HEAD_SUMS_0, HEAD_SUMS_1
        Sums of a pair's probabilities and values.
    SCALES_0, SCALES_1
        Scales of a head's keys and values, in two places.
    """

    NORM_WEIGHTS = auto()
    SMOOTHING = auto()
    ROW_SCALES_0 = auto()
    ROW_SCALES_1 = auto()
    INPUTS = auto()
    GATED = auto()
    SUMS = auto()
    CODES = auto()
    QUERY_0 = auto()
    QUERY_1 = auto()
    SCORES_0 = auto()
    SCORES_1 = auto()
    PROBABILITIES_0 = auto()
    PROBABILITIES_1 = auto()
    HEAD_SUMS_0 = auto()
    HEAD_SUMS_1 = auto()
    SCALES_0 = auto()
    SCALES_1 = auto()


ROW_SCALES = (Buffer.ROW_SCALES_0, Buffer.ROW_SCALES_1)
QUERIES = (Buffer.QUERY_0, Buffer.QUERY_1)
SCORES = (Buffer.SCORES_0, Buffer.SCORES_1)
PROBABILITIES = (Buffer.PROBABILITIES_0, Buffer.PROBABILITIES_1)
HEAD_SUMS = (Buffer.HEAD_SUMS_0, Buffer.HEAD_SUMS_1)
SCALES = (Buffer.SCALES_0, Buffer.SCALES_1)


Instruction = TypeVar("Instruction", MemoryInstruction, NpuInstruction)


@dataclass(frozen=True)
class ScheduledInstruction(Generic[Instruction]):
    """An instruction of one side, with its dependencies.

    Members
    -------
    instruction : MemoryInstruction or NpuInstruction
        Values of the instruction's fields.
    request : int
        Request whose position the instruction uses.
    reads, writes : frozenset
        The buffers that it reads and writes.
    after : int
        Number of instructions of the other side that must be complete before it starts.

    Raises
    ------
    TypeError
        If it reads or writes anything else than a member of `Buffer`.
    """

    instruction: Instruction
    request: int
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]
    after: int

    def __post_init__(self) -> None:
        """Check the buffers: a dependency on anything else would order nothing."""
        for buffer in self.reads | self.writes:
            if not isinstance(buffer, Buffer):
                raise TypeError(
                    f"an instruction reads and writes members of Buffer, not {buffer!r}"
                )


@dataclass
class Schedule:
    """The instruction lists of both sides; dependencies follow from the buffers.

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
    memory: list[ScheduledInstruction[MemoryInstruction]] = field(default_factory=list)
    npu: list[ScheduledInstruction[NpuInstruction]] = field(default_factory=list)

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
            tuple(self._encoded(one, memory) for one in self.memory),
            tuple(self._encoded(one, npu) for one in self.npu),
        )

    @staticmethod
    def _encoded(scheduled: ScheduledInstruction[Instruction], layout: data.StructLayout) -> int:
        """Return an encoded instruction."""
        fields: dict[int | str, object] = {
            "after": scheduled.after,
            "instruction": vars(scheduled.instruction),
            "request": scheduled.request,
        }
        return layout.const(fields).as_value().value

    def operate(
        self,
        instruction: NpuInstruction,
        *,
        reads: Sequence[Buffer] = (),
        writes: Sequence[Buffer] = (),
        request: int = 0,
    ) -> None:
        """Add an operation of the NPU on a vector."""
        buffers = frozenset(reads), frozenset(writes)
        after = _last_conflict(self.memory, *buffers)
        self.npu.append(ScheduledInstruction(instruction, request, *buffers, after))

    def access(
        self,
        instruction: MemoryInstruction,
        *,
        reads: Sequence[Buffer] = (),
        writes: Sequence[Buffer] = (),
        request: int = 0,
    ) -> None:
        """Add an instruction of the memory side."""
        buffers = frozenset(reads), frozenset(writes)
        after = _last_conflict(self.npu, *buffers)
        self.memory.append(ScheduledInstruction(instruction, request, *buffers, after))

    def fetch(self, base: int, numbers: int, writes: Buffer, place: int) -> None:
        """Add a read of FP16 numbers."""
        columns, fetch_length = (self.places.columns(place), 0), self.p.positions(numbers)
        self.access(
            MemoryInstruction(base=base, fetch_length=fetch_length, columns=columns),
            writes=[writes],
        )


def _last_conflict(
    others: Sequence[ScheduledInstruction[Instruction]],
    reads: frozenset[Buffer],
    writes: frozenset[Buffer],
) -> int:
    """Return the number of instructions of the other side up to the last conflicting one."""
    conflicts = [
        number
        for number, other in enumerate(others, start=1)
        if other.writes & (reads | writes) or other.reads & writes
    ]
    return max(conflicts, default=0)
