"""The program of a token: the operations on slices that take it through all decoder layers."""

from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import unsigned
from amaranth.lib import data, enum

from hdl.lad.control.slice_walk import LOOPS, loops_layout
from hdl.lad.parameters import LadParameters
from hdl.lad.sfm.sfm_parameters import Function

MOVES = 3
"""Largest number of reads of an operation, each with its own nested loops."""


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
    """Source of the slices that an operation writes.

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


@dataclass(frozen=True)
class Loops:
    """Addresses of slices: base, and (rounds, stride) of the outer, middle and inner loop."""

    base: int
    outer: tuple[int, int] = (1, 0)
    middle: tuple[int, int] = (1, 0)
    inner: tuple[int, int] = (1, 0)

    @property
    def record(self) -> dict[str, Any]:
        """Return the fields of the hardware's record."""
        loops = {name: getattr(self, name) for name in LOOPS}
        return {"base": self.base} | {
            name: {"rounds": rounds, "stride": stride} for name, (rounds, stride) in loops.items()
        }


@dataclass(frozen=True)
class Operation:
    """Operands to read and slices to write; the next operation begins when both are complete.

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
    groups : int
        For a piece of the LM head, instead of `outputs`: groups of sums, which are not written.
    joins : bool
        Begin only when the attention outputs of all heads have been written.
    """

    moves: tuple[tuple[Destination, Loops], ...] = ()
    writes: tuple[tuple[Source, Loops], ...] = ()
    function: Function = Function.ADD
    outputs: int = 0
    groups: int = 0
    joins: bool = False


@dataclass
class LayerProgram:
    """The operations of a token: its input, the operations of a layer, and its output.

    The operations of `layer` are repeated per layer, those of `period` per period. With a
    vocabulary, the states are output after every layer, and the last instruction computes one piece
    of the LM head; it is repeated once per piece. Every linear layer reads the area `inputs` or
    `attended` and writes `sums`; every function between them reads `sums` and writes the others.
    The middle loops are those over samples.

    Parameters
    ----------
    p : LadParameters
        Dimensions of model and tile.
    """

    p: LadParameters
    operations: list[Operation] = field(default_factory=list)
    layer: range = range(0)
    period: range = range(0)

    def __post_init__(self) -> None:
        """Generate the operations."""
        p, at = self.p, self.p.areas
        states = self._all(at.state, p.hidden_slices)
        self._load(Loops(at.angles, inner=(2 * p.batch, 1)))
        self._load(states)
        first = len(self.operations)
        self._norm()
        part = len(self.operations)
        self._linear(p.hidden_slices, p.projected)
        self._rotary()
        self._attention()
        # Periods differ in their weights only: these operations are repeated for each.
        self.period = range(part, len(self.operations))
        self._linear(p.heads, p.hidden_slices, attended=True)
        self._residual(states)
        self._norm()
        self._linear(p.hidden_slices, 2 * p.intermediate_slices)
        self._gate()
        self._linear(p.intermediate_slices, p.hidden_slices)
        self._residual(states)
        leaves = Operation(((Destination.STATES, states),))
        if p.vocabulary_size:
            self.operations.append(leaves)
        # The operations up to here are repeated for each layer.
        self.layer = range(first, len(self.operations))
        if p.vocabulary_size:
            self._norm()
            self._piece()
        else:
            self.operations.append(leaves)

    def _all(self, base: int, slices: int) -> Loops:
        """Return the addresses of all samples' slices; slices of one index are adjacent."""
        batch = self.p.batch
        return Loops(base, outer=(slices, batch), middle=(batch, 1))

    def _rows(self, base: int, slices: int) -> Loops:
        """Return the addresses of one sample's slices, then of the next sample's."""
        batch = self.p.batch
        return Loops(base, middle=(batch, 1), inner=(slices, batch))

    def _load(self, target: Loops) -> None:
        self.operations.append(Operation(writes=((Source.OUTSIDE, target),)))

    def _function(
        self, function: Function, target: Loops, *moves: tuple[Destination, Loops]
    ) -> None:
        self.operations.append(Operation(moves, ((Source.RESULTS, target),), function))

    def _norm(self) -> None:
        """Normalise the states sample by sample, with weights from outside."""
        p, at = self.p, self.p.areas
        slices = p.hidden_slices
        self._load(Loops(at.factors, inner=(slices, 1)))
        self._function(
            Function.RMS_NORM,
            self._rows(at.inputs, slices),
            (Destination.VECTORS, self._rows(at.state, slices)),
            (Destination.FACTORS, Loops(at.factors, middle=(p.batch, 0), inner=(slices, 1))),
        )

    def _linear(self, inputs: int, outputs: int, *, attended: bool = False) -> None:
        """Multiply by the next matrix."""
        p, at = self.p, self.p.areas
        base = at.attended if attended else at.inputs
        task = (Destination.TASK, Loops(base))
        taken = (Destination.INPUTS, Loops(base, inner=(inputs * p.batch, 1)))
        given = (Source.SUMS, Loops(at.sums, inner=(outputs * p.batch, 1)))
        operation = Operation((task, taken), (given,), outputs=outputs, joins=attended)
        self.operations.append(operation)

    def _piece(self) -> None:
        """Multiply by the next rows of the LM head, whose sums are compared and not written."""
        p, base = self.p, self.p.areas.inputs
        taken = (Destination.INPUTS, Loops(base, inner=(p.hidden_slices * p.batch, 1)))
        self.operations.append(
            Operation(((Destination.TASK, Loops(base)), taken), groups=p.piece_groups)
        )

    def _rotary(self) -> None:
        """Rotate queries and keys in place; cosine and sine form the inner loop."""
        p, at = self.p, self.p.areas
        heads = (p.heads + p.kv_heads) // p.periods
        turned = self._all(at.sums, heads)
        angles = Loops(at.angles, outer=(heads, 0), middle=(p.batch, 1), inner=(2, p.batch))
        self._function(
            Function.ROTARY, turned, (Destination.VECTORS, turned), (Destination.FACTORS, angles)
        )

    def _attention(self) -> None:
        """Start the steps of a key/value head's query heads, sample by sample."""
        p, at = self.p, self.p.areas
        # Order of the rows in the matrix: queries, keys, values.
        heads = p.kv_heads // p.periods
        keys = at.sums + heads * p.group_size * p.batch
        values = keys + heads * p.batch
        moves = (
            (Destination.KEY, self._all(keys, heads)),
            (Destination.VALUE, self._all(values, heads)),
            (Destination.QUERY, self._heads(at.sums, heads)),
        )
        self.operations.append(Operation(moves))

    def _heads(self, base: int, heads: int) -> Loops:
        """Return the addresses of query heads in the order of their steps."""
        p = self.p
        return Loops(
            base,
            outer=(heads, p.group_size * p.batch),
            middle=(p.batch, 1),
            inner=(p.group_size, p.batch),
        )

    @property
    def outputs(self) -> Loops:
        """Addresses of a layer's attention outputs, in the order of the steps."""
        return self._heads(self.p.areas.attended, self.p.kv_heads)

    def _residual(self, states: Loops) -> None:
        """Add the sums to the states."""
        sums = self._all(self.p.areas.sums, self.p.hidden_slices)
        self._function(
            Function.ADD, states, (Destination.VECTORS, states), (Destination.ADDENDS, sums)
        )

    def _gate(self) -> None:
        """Multiply the SiLU of `gate_proj` by `up_proj`."""
        p, at = self.p, self.p.areas
        slices = p.intermediate_slices
        gate, up = (self._all(at.sums + skipped * p.batch, slices) for skipped in (0, slices))
        inner = self._all(at.inputs, slices)
        self._function(Function.SILU, inner, (Destination.VECTORS, gate), (Destination.FACTORS, up))

    @property
    def layout(self) -> data.StructLayout:
        """Layout of an operation in the table."""
        p = self.p
        loops = loops_layout(p.place_shape)
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
                "groups": range(p.most_groups + 1),
                "rounds": unsigned(p.tile.linear.groups.bit_length()),
                "more": p.shared_tiles.tile_shape,
                "joins": 1,
                "rest": range(p.tile.linear.units + 1),
            }
            | ({"compares": 1} if p.vocabulary_size else {})
        )

    @property
    def table(self) -> tuple[int, ...]:
        """The operations, encoded as integers."""
        return tuple(self._bits(one) for one in self.operations)

    def _bits(self, operation: Operation) -> int:
        """Return the encoding of an operation."""
        units, rows = self.p.tile.linear.units, operation.outputs * self.p.head_size
        groups = operation.groups or -(-rows // units)
        rounds, more = divmod(max(groups - 1, 0), self.p.tiles)
        nowhere = Loops(0)
        # Every entry of the table has all fields; unused ones are ignored.
        missing = MOVES - len(operation.moves)
        moves = (*operation.moves, *[(Destination.TASK, nowhere)] * missing)
        ((source, target),) = operation.writes or ((Source.OUTSIDE, nowhere),)
        inputs = [
            loops for destination, loops in operation.moves if destination is Destination.INPUTS
        ]
        fields: dict[int | str, Any] = {
            "moves": [
                {"destination": destination, "loops": loops.record} for destination, loops in moves
            ],
            "number": len(operation.moves),
            "source": source,
            "target": target.record,
            "writes": bool(operation.writes),
            "function": operation.function,
            "slices": sum(loops.inner[0] // self.p.batch for loops in inputs),
            "groups": groups,
            # Groups of the first tile; the next `more` tiles have as many, the others one less.
            "rounds": rounds + 1 if groups else 0,
            "more": more,
            "joins": operation.joins,
            # Rows of the last group that exist.
            "rest": rows - (groups - 1) * units if operation.outputs else 0,
        }
        if self.p.vocabulary_size:
            fields["compares"] = bool(operation.groups)
        return self.layout.const(fields).as_value().value
