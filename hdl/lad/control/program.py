"""The program of a token: the instructions that take it through all decoder layers."""

from dataclasses import dataclass, field

from hdl.lad.instructions import Destination, Instruction, Loops, Source
from hdl.lad.parameters import LadParameters
from hdl.lad.sfm.sfm_parameters import Function


@dataclass
class LayerProgram:
    """The instructions of a token: its input, the instructions of a layer, and its output.

    The instructions of `layer` are repeated per layer, those of `period` per period. With a
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
    instructions: list[Instruction] = field(default_factory=list)
    layer: range = range(0)
    period: range = range(0)

    def __post_init__(self) -> None:
        """Generate the instructions."""
        p, at = self.p, self.p.areas
        states = self._all(at.state, p.hidden_slices)
        self._load(Loops(at.angles, inner=(2 * p.batch, 1)))
        self._load(states)
        first = len(self.instructions)
        self._norm()
        part = len(self.instructions)
        self._linear(p.hidden_slices, p.projected)
        self._rotary()
        self._attention()
        # Periods differ in their weights only: these instructions are repeated for each.
        self.period = range(part, len(self.instructions))
        self._linear(p.heads, p.hidden_slices, attended=True)
        self._residual(states)
        self._norm()
        self._linear(p.hidden_slices, 2 * p.intermediate_slices)
        self._gate()
        self._linear(p.intermediate_slices, p.hidden_slices)
        self._residual(states)
        states_out = Instruction(((Destination.STATES, states),))
        if p.vocabulary_size:
            self.instructions.append(states_out)
        # The instructions up to here are repeated for each layer.
        self.layer = range(first, len(self.instructions))
        if p.vocabulary_size:
            self._norm()
            self._piece()
        else:
            self.instructions.append(states_out)

    def _all(self, base: int, slices: int) -> Loops:
        """Return the addresses of all samples' slices; slices of one index are adjacent."""
        batch = self.p.batch
        return Loops(base, outer=(slices, batch), middle=(batch, 1))

    def _rows(self, base: int, slices: int) -> Loops:
        """Return the addresses of one sample's slices, then of the next sample's."""
        batch = self.p.batch
        return Loops(base, middle=(batch, 1), inner=(slices, batch))

    def _load(self, target: Loops) -> None:
        self.instructions.append(Instruction(writes=((Source.OUTSIDE, target),)))

    def _function(
        self, function: Function, target: Loops, *moves: tuple[Destination, Loops]
    ) -> None:
        self.instructions.append(Instruction(moves, ((Source.RESULTS, target),), function))

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
        self.instructions.append(
            Instruction((task, taken), (given,), outputs=outputs, joins=attended)
        )

    def _piece(self) -> None:
        """Multiply by the next rows of the LM head, whose sums are compared and not written."""
        p, base = self.p, self.p.areas.inputs
        taken = (Destination.INPUTS, Loops(base, inner=(p.hidden_slices * p.batch, 1)))
        self.instructions.append(
            Instruction(((Destination.TASK, Loops(base)), taken), row_groups=p.piece_row_groups)
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
        self.instructions.append(Instruction(moves))

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
    def table(self) -> tuple[int, ...]:
        """The instructions, encoded as integers."""
        return tuple(one.encode(self.p) for one in self.instructions)
