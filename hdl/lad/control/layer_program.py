"""What a token's way through decoder layers consists of: a table of operations on slices."""

from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import unsigned
from amaranth.lib import data, enum

from hdl.lad.control.slice_walk import LOOPS, walk_layout
from hdl.lad.lad_parameters import LadParameters
from hdl.lad.sfm.sfm_parameters import Function

MOVES = 3
"""Walks at most that an operation's operands need."""


class Way(enum.Enum, shape=4):
    """What a slice that is read becomes.

    Members
    -------
    TASK : int
        Nothing: a task of the linear module begins.
    INPUTS : int
        An input of the linear module.
    VECTORS, FACTORS, ADDENDS : int
        Operands of the special function module.
    KEY, VALUE : int
        The key and the value of the steps that follow.
    QUERY : int
        A step's query; it begins with it.
    STATES : int
        A part of a hidden state that leaves.
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
    """Where the slices come from that an operation writes.

    Members
    -------
    OUTSIDE : int
        The stream of slices.
    SUMS : int
        The linear module.
    RESULTS : int
        The special function module.
    """

    OUTSIDE = 0
    SUMS = 1
    RESULTS = 2


@dataclass(frozen=True)
class Walk:
    """Slices of an area: rounds and stride of the outer, the middle and the inner loop."""

    base: int
    outer: tuple[int, int] = (1, 0)
    middle: tuple[int, int] = (1, 0)
    inner: tuple[int, int] = (1, 0)

    @property
    def record(self) -> dict[str, Any]:
        """Its fields."""
        loops = {name: getattr(self, name) for name in LOOPS}
        return {"base": self.base} | {
            name: {"rounds": rounds, "stride": stride} for name, (rounds, stride) in loops.items()
        }


@dataclass(frozen=True)
class Operation:
    """Operands that are read, and what is written; the next one begins behind both.

    Members
    -------
    moves : tuple of (Way, Walk)
        Of each in turn what its inner loop reads, as often as the loops around it say.
    writes : tuple of (Source, Walk)
        At most one.
    function : Function
        Of the special function module.
    outputs : int
        Slices of a linear layer's output.
    groups : int
        Instead of them groups of sums of which none is written: those of a piece of the vocabulary.
    joins : bool
        It begins when the attention of all heads has been written.
    """

    moves: tuple[tuple[Way, Walk], ...] = ()
    writes: tuple[tuple[Source, Walk], ...] = ()
    function: Function = Function.ADD
    outputs: int = 0
    groups: int = 0
    joins: bool = False


@dataclass
class LayerProgram:
    """The operations of a token: its arrival, a layer as often as there are layers, its leaving.

    With a vocabulary the states leave behind each layer, and the last line is a piece of it.
    A layer's projections and steps are repeated for each period. Every linear layer goes from the
    area of inputs, or that of the attention, to that of sums; every function in between goes back.
    The loops over samples are the middle ones.

    Parameters
    ----------
    p : LadParameters
        Dimensions.
    """

    p: LadParameters
    operations: list[Operation] = field(default_factory=list)
    layer: range = range(0)
    period: range = range(0)

    def __post_init__(self) -> None:
        """Write it down."""
        p, at = self.p, self.p.areas
        states = self._all(at.state, p.width)
        self._load(Walk(at.angles, inner=(2 * p.batch, 1)))
        self._load(states)
        first = len(self.operations)
        self._norm()
        part = len(self.operations)
        self._linear(p.width, p.projected)
        self._rotary()
        self._attention()
        # Periods differ in nothing but their weights: these lines are repeated for each.
        self.period = range(part, len(self.operations))
        self._linear(p.heads, p.width, attended=True)
        self._residual(states)
        self._norm()
        self._linear(p.width, 2 * p.gated)
        self._gate()
        self._linear(p.gated, p.width)
        self._residual(states)
        leaves = Operation(((Way.STATES, states),))
        if p.vocabulary:
            self.operations.append(leaves)
        # Lines up to here are repeated for each layer.
        self.layer = range(first, len(self.operations))
        if p.vocabulary:
            self._norm()
            self._piece()
        else:
            self.operations.append(leaves)

    def _all(self, base: int, slices: int) -> Walk:
        """Walk over the slices of all samples, one side by side with the other samples'."""
        batch = self.p.batch
        return Walk(base, outer=(slices, batch), middle=(batch, 1))

    def _rows(self, base: int, slices: int) -> Walk:
        """Walk over one sample's slices, then over the next one's."""
        batch = self.p.batch
        return Walk(base, middle=(batch, 1), inner=(slices, batch))

    def _load(self, target: Walk) -> None:
        self.operations.append(Operation(writes=((Source.OUTSIDE, target),)))

    def _function(self, function: Function, target: Walk, *moves: tuple[Way, Walk]) -> None:
        self.operations.append(Operation(moves, ((Source.RESULTS, target),), function))

    def _norm(self) -> None:
        """Normalise the states sample by sample, with weights that come from outside."""
        p, at = self.p, self.p.areas
        self._load(Walk(at.factors, inner=(p.width, 1)))
        self._function(
            Function.RMS_NORM,
            self._rows(at.inputs, p.width),
            (Way.VECTORS, self._rows(at.state, p.width)),
            (Way.FACTORS, Walk(at.factors, middle=(p.batch, 0), inner=(p.width, 1))),
        )

    def _linear(self, inputs: int, outputs: int, *, attended: bool = False) -> None:
        """Multiply by the next matrix."""
        p, at = self.p, self.p.areas
        base = at.attended if attended else at.inputs
        task = (Way.TASK, Walk(base))
        taken = (Way.INPUTS, Walk(base, inner=(inputs * p.batch, 1)))
        given = (Source.SUMS, Walk(at.sums, inner=(outputs * p.batch, 1)))
        operation = Operation((task, taken), (given,), outputs=outputs, joins=attended)
        self.operations.append(operation)

    def _piece(self) -> None:
        """Multiply by the next rows of the vocabulary's matrix, whose sums are only compared."""
        p, base = self.p, self.p.areas.inputs
        taken = (Way.INPUTS, Walk(base, inner=(p.width * p.batch, 1)))
        self.operations.append(Operation(((Way.TASK, Walk(base)), taken), groups=p.piece_groups))

    def _rotary(self) -> None:
        """Turn queries and keys where they stand: cosine and sine are one inner loop."""
        p, at = self.p, self.p.areas
        heads = (p.heads + p.kv_heads) // p.periods
        turned = self._all(at.sums, heads)
        angles = Walk(at.angles, outer=(heads, 0), middle=(p.batch, 1), inner=(2, p.batch))
        self._function(Function.ROTARY, turned, (Way.VECTORS, turned), (Way.FACTORS, angles))

    def _attention(self) -> None:
        """Begin the steps of a key/value head's query heads, one sample behind the other."""
        p, at = self.p, self.p.areas
        # Rows of the one matrix: queries, keys, values.
        heads = p.kv_heads // p.periods
        keys = at.sums + heads * p.shared * p.batch
        values = keys + heads * p.batch
        moves = (
            (Way.KEY, self._all(keys, heads)),
            (Way.VALUE, self._all(values, heads)),
            (Way.QUERY, self._heads(at.sums, heads)),
        )
        self.operations.append(Operation(moves))

    def _heads(self, base: int, heads: int) -> Walk:
        """Walk over slices of query heads in the order of their steps."""
        p = self.p
        return Walk(
            base,
            outer=(heads, p.shared * p.batch),
            middle=(p.batch, 1),
            inner=(p.shared, p.batch),
        )

    @property
    def outputs(self) -> Walk:
        """Where a layer's attention goes, whenever it comes."""
        return self._heads(self.p.areas.attended, self.p.kv_heads)

    def _residual(self, states: Walk) -> None:
        """Add the sums to the states."""
        sums = self._all(self.p.areas.sums, self.p.width)
        self._function(Function.ADD, states, (Way.VECTORS, states), (Way.ADDENDS, sums))

    def _gate(self) -> None:
        """Multiply the gate's SiLU by the up projection."""
        p, at = self.p, self.p.areas
        gate, up = (self._all(at.sums + skipped * p.batch, p.gated) for skipped in (0, p.gated))
        inner = self._all(at.inputs, p.gated)
        self._function(Function.SILU, inner, (Way.VECTORS, gate), (Way.FACTORS, up))

    @property
    def layout(self) -> data.StructLayout:
        """An operation in the table."""
        p = self.p
        walk = walk_layout(p.place_shape)
        return data.StructLayout(
            {
                "moves": data.ArrayLayout(data.StructLayout({"way": Way, "walk": walk}), MOVES),
                "number": range(MOVES + 1),
                "source": Source,
                "target": walk,
                "writes": 1,
                "function": Function,
                "slices": unsigned(p.tile.linear.slices.bit_length()),
                "groups": range(p.most_groups + 1),
                "rounds": unsigned(p.tile.linear.groups.bit_length()),
                "more": p.shared_tiles.tile_shape,
                "joins": 1,
                "rest": range(p.tile.linear.units + 1),
            }
            | ({"compares": 1} if p.vocabulary else {})
        )

    @property
    def table(self) -> tuple[int, ...]:
        """The operations as bits."""
        return tuple(self._bits(one) for one in self.operations)

    def _bits(self, operation: Operation) -> int:
        """Return an operation's bits."""
        units, rows = self.p.tile.linear.units, operation.outputs * self.p.head_size
        groups = operation.groups or -(-rows // units)
        rounds, more = divmod(max(groups - 1, 0), self.p.tiles)
        nowhere = Walk(0)
        # Every line of the table has all fields; what is not used is never looked at.
        missing = MOVES - len(operation.moves)
        moves = (*operation.moves, *[(Way.TASK, nowhere)] * missing)
        ((source, target),) = operation.writes or ((Source.OUTSIDE, nowhere),)
        inputs = [walk for way, walk in operation.moves if way is Way.INPUTS]
        fields: dict[int | str, Any] = {
            "moves": [{"way": way, "walk": walk.record} for way, walk in moves],
            "number": len(operation.moves),
            "source": source,
            "target": target.record,
            "writes": bool(operation.writes),
            "function": operation.function,
            "slices": sum(walk.inner[0] // self.p.batch for walk in inputs),
            "groups": groups,
            # Of the first tile; so many behind it have as many.
            "rounds": rounds + 1 if groups else 0,
            "more": more,
            "joins": operation.joins,
            # The last group's rows that there are.
            "rest": rows - (groups - 1) * units if operation.outputs else 0,
        }
        if self.p.vocabulary:
            fields["compares"] = bool(operation.groups)
        return self.layout.const(fields).as_value().value
