"""Instructions of LAD's decoder layers: reads and writes of slices in nested loops."""

from collections.abc import Mapping
from dataclasses import dataclass

from amaranth.hdl import ShapeLike, unsigned
from amaranth.lib import data, enum

from hdl.lad.parameters import LadParameters
from hdl.lad.sfm.sfm_parameters import Function

MOVES = 3
"""Largest number of reads of an instruction, each with its own nested loops."""

LOOPS = ("outer", "middle", "inner")
"""The loops of a sequence of addresses, outermost first."""


class Destination(enum.Enum, shape=4):
    """Destination of a slice that is read.

    Members
    -------
    TASK : int
        No operand: starts a task of the linear module.
    INPUTS : int
        An input of the linear module.
    VECTORS, FACTORS, ADDENDS : int
        Operands of the special function module.
    KEY, VALUE : int
        The key and the value of the attention steps that follow.
    QUERY : int
        The query of an attention step, which it starts.
    STATES : int
        A slice of a hidden state that is output.
    """

    TASK = 0
    INPUTS = 1
    VECTORS = 2
    FACTORS = 3
    ADDENDS = 4
    KEY = 5
    VALUE = 6
    QUERY = 7
    STATES = 8


class Source(enum.Enum, shape=2):
    """Source of the slices that an instruction writes.

    Members
    -------
    OUTSIDE : int
        The stream `slices` from outside.
    SUMS : int
        The linear module.
    RESULTS : int
        The special function module.
    """

    OUTSIDE = 0
    SUMS = 1
    RESULTS = 2


def loops_layout(address: ShapeLike) -> data.StructLayout:
    """Return the record of a sequence: its base, and the rounds and stride of each loop."""
    return data.StructLayout(
        {"base": address}
        | {name: data.StructLayout({"rounds": address, "stride": address}) for name in LOOPS}
    )


@dataclass(frozen=True)
class Loops:
    """Addresses of slices: base, and (rounds, stride) of the outer, middle and inner loop."""

    base: int
    outer: tuple[int, int] = (1, 0)
    middle: tuple[int, int] = (1, 0)
    inner: tuple[int, int] = (1, 0)

    @property
    def record(self) -> Mapping[int | str, object]:
        """Return the fields of the hardware's record."""
        record: dict[int | str, object] = {"base": self.base}
        for name, (rounds, stride) in zip(
            LOOPS, (self.outer, self.middle, self.inner), strict=True
        ):
            record[name] = {"rounds": rounds, "stride": stride}
        return record


@dataclass(frozen=True)
class Instruction:
    """Operands to read and slices to write; the next instruction begins when both are complete.

    Members
    -------
    moves : tuple of (Destination, Loops)
        Reads, in rotation: each reads the slices of its inner loop, then the next one continues.
    writes : tuple of (Source, Loops)
        The destination; at most one.
    function : Function
        Function of the special function module.
    outputs : int
        Slices of the output of a linear layer.
    row_groups : int
        For a piece of the LM head, instead of `outputs`: groups of sums, which are not written.
    joins : bool
        Begin only when the attention outputs of all heads have been written.
    """

    moves: tuple[tuple[Destination, Loops], ...] = ()
    writes: tuple[tuple[Source, Loops], ...] = ()
    function: Function = Function.ADD
    outputs: int = 0
    row_groups: int = 0
    joins: bool = False

    def encode(self, parameters: LadParameters) -> int:
        """Return the instruction as the integer of its bits, see `instruction_layout`."""
        p, units = parameters, parameters.tile.linear.units
        rows = self.outputs * p.head_size
        groups = self.row_groups or -(-rows // units)
        most, more = divmod(max(groups - 1, 0), p.tiles)
        nowhere = Loops(0)
        # Every instruction has all fields; unused ones are ignored.
        missing = MOVES - len(self.moves)
        moves = (*self.moves, *[(Destination.TASK, nowhere)] * missing)
        ((source, target),) = self.writes or ((Source.OUTSIDE, nowhere),)
        inputs = [loops for destination, loops in self.moves if destination is Destination.INPUTS]
        fields: dict[int | str, object] = {
            "moves": [
                {"destination": destination, "loops": loops.record} for destination, loops in moves
            ],
            "number": len(self.moves),
            "source": source,
            "target": target.record,
            "writes": bool(self.writes),
            "function": self.function,
            "slices": sum(loops.inner[0] // p.batch for loops in inputs),
            "row_groups": groups,
            "tile_groups": most + 1 if groups else 0,
            "more": more,
            "joins": self.joins,
            "rest": rows - (groups - 1) * units if self.outputs else 0,
        }
        if p.vocabulary_size:
            fields["compares"] = bool(self.row_groups)
        return instruction_layout(p).const(fields).as_value().value


def instruction_layout(parameters: LadParameters) -> data.StructLayout:
    """Return the fields of an instruction.

    Members
    -------
    moves : ArrayLayout
        Destination and loops of each read; the first `number` of them are used.
    source, target
        What is written, and its addresses; only if `writes`.
    function : Function
        Function of the special function module.
    slices : unsigned
        Slices of each sample's input of a linear layer.
    row_groups, rest
        Groups of output rows, over all tiles; rows that exist in the last one.
    tile_groups, more
        Row groups of the first tile; the next `more` tiles have as many, the others one less.
    joins : 1
        Begin only when the attention outputs of all heads have been written.
    compares : 1
        The sums are logits, input of the argmax and not written; only with a vocabulary.
    """
    p = parameters
    loops = loops_layout(p.address_shape)
    return data.StructLayout(
        {
            "moves": data.ArrayLayout(
                data.StructLayout({"destination": Destination, "loops": loops}), MOVES
            ),
            "number": range(MOVES + 1),
            "source": Source,
            "target": loops,
            "writes": 1,
            "function": Function,
            "slices": unsigned(p.tile.linear.slices.bit_length()),
            "row_groups": range(p.most_row_groups + 1),
            "tile_groups": unsigned(p.tile.linear.groups.bit_length()),
            "more": p.shared_tiles.tile_shape,
            "joins": 1,
            "rest": range(p.tile.linear.units + 1),
        }
        | ({"compares": 1} if p.vocabulary_size else {})
    )
