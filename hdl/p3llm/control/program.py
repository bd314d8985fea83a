"""A decoder layer of a decode step, as what memory and NPU do in their orders (Figure 6 a).

Behind it, if there is one, the vocabulary: final norm, projection, and the largest sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from amaranth.lib import data

from hdl.p3llm.control.memory_instructions import MEMORY_INSTRUCTION, MemoryOperation
from hdl.p3llm.npu.npu_instructions import NPU_INSTRUCTION, NpuOperation
from hdl.p3llm.npu.places import Places
from hdl.p3llm.parameters import MatrixPlace, P3llmParameters
from hdl.p3llm.pim.operand_decoder import Mode

LINE_BITS = 10
"""Bits of a number of lines."""

MEMORY_LINE = data.StructLayout({"after": LINE_BITS, "instruction": MEMORY_INSTRUCTION})
NPU_LINE = data.StructLayout({"after": LINE_BITS, "instruction": NPU_INSTRUCTION})
"""An instruction, and how many lines of the other side must be done before it begins."""


@dataclass(frozen=True)
class Line:
    """An instruction of one side.

    Members
    -------
    instruction : dict
        Its fields.
    reads, writes : frozenset
        What both sides share of that which it reads and writes.
    after : int
        Lines of the other side that must be done before.
    """

    instruction: dict[str, Any]
    reads: frozenset[str]
    writes: frozenset[str]
    after: int


@dataclass
class Program:
    """The program of a layer, and of the vocabulary: two lists, one a side, each in its order.

    What a line has to wait for on the other side follows from what both read and write. Attention
    goes pair by pair of a group's heads, and the pairs overlap: while the units multiply one pair's
    query by the keys, the NPU takes the softmax of the pair before.

    Parameters
    ----------
    p : P3llmParameters
        Dimensions.

    Members
    -------
    layer_lines : tuple[int, int]
        Lines of a layer on both sides; those behind them are the vocabulary's.
    """

    p: P3llmParameters
    memory: list[Line] = field(default_factory=list)
    npu: list[Line] = field(default_factory=list)
    layer_lines: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        """Write it down."""
        self.places = Places(self.p)
        self._layer()
        self.layer_lines = len(self.memory), len(self.npu)
        if self.p.vocabulary:
            self._vocabulary()

    @staticmethod
    def _line(
        instruction: dict[str, Any], others: list[Line], reads: Sequence[str], writes: Sequence[str]
    ) -> Line:
        """Return a line that waits for the others' last one in whose way it would be."""
        mine, changed = {*reads, *writes}, set(writes)
        conflicts = [
            number
            for number, other in enumerate(others, start=1)
            if other.writes & mine or other.reads & changed
        ]
        after = max(conflicts, default=0)
        return Line(instruction, frozenset(reads), frozenset(writes), after)

    def _npu(
        self,
        operation: NpuOperation,
        numbers: int = 0,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        **fields: Any,
    ) -> None:
        """Add an operation on a vector of some numbers."""
        instruction = {"operation": operation, "count": numbers // self.p.lanes, **fields}
        self.npu.append(self._line(instruction, self.memory, reads, writes))

    def _product(
        self, mode: Mode, base: int, reads: Sequence[str], writes: Sequence[str], **fields: Any
    ) -> None:
        """Add a product."""
        given = {"operation": MemoryOperation.PRODUCT, "mode": mode, "base": base, **fields}
        self.memory.append(self._line(given, self.npu, reads, writes))

    def _columns(self, base: int, numbers: int, name: str, place: int) -> None:
        """Fetch FP16 numbers from the banks: a product without columns, but for its tail."""
        columns = [self.places.columns(place), 0]
        self._product(
            Mode.LINEAR, base, (), [name], tail=self.p.positions(numbers), columns=columns
        )

    def _rows(self, name: str) -> None:
        """Fetch a linear layer's row scales, which stand before it."""
        self._rows_of(self.p.matrices[name], self._side(name))

    def _rows_of(self, matrix: MatrixPlace, side: int) -> None:
        """Fetch a matrix's row scales to one of two places."""
        self._columns(
            matrix.base, matrix.rounds * self.p.block, f"rows_{side}", self.places.rows(side)
        )

    def _side(self, name: str) -> int:
        """Return which of two places a linear layer's row scales have."""
        return list(self.p.matrices).index(name) % 2

    def _linear(self, name: str) -> None:
        """Add a linear layer of the inputs that stand there."""
        self._linear_of(self.p.matrices[name])

    def _linear_of(self, matrix: MatrixPlace) -> None:
        """Multiply the inputs that stand there by a matrix."""
        places = self.places
        self._product(
            Mode.LINEAR,
            matrix.base + matrix.rounds,
            ["inputs"],
            ["sums"],
            outers=matrix.outers,
            rounds=matrix.rounds,
            steps=matrix.steps,
            inputs=[places.words(places.vector_inputs), 0],
            sums=[places.results(places.linear_sums), 0],
        )

    def _normalised(self, base: int) -> None:
        """Normalise the hidden state, by weights that stand at a position."""
        p, places = self.p, self.places
        self._columns(base, p.width, "norm", places.norm)
        self._npu(
            NpuOperation.NORM,
            p.width,
            ["norm"],
            ["inputs"],
            source=places.state,
            target=places.vector_inputs,
            factors=places.norm,
        )

    def _sums(
        self,
        operation: NpuOperation,
        name: str,
        first: int,
        count: int,
        writes: Sequence[str],
        **fields: Any,
    ) -> None:
        """Use a linear layer's sums from the first on."""
        places, side = self.places, self._side(name)
        # Matrices of the same inputs are one; each part is used by itself.
        skipped = places.slices(first)
        self._npu(
            operation,
            count,
            ["sums", f"rows_{side}"],
            writes,
            sums=places.linear_sums + skipped,
            factors=places.rows(side) + skipped,
            **fields,
        )

    def _layer(self) -> None:
        """Write the layer's lines."""
        p, places = self.p, self.places
        self._npu(NpuOperation.LOAD, p.width, target=places.state)
        self._normalised(p.norm_bases[0])
        keys = p.kv_heads * p.head_size
        self._columns(p.factors_base, keys, "smoothing", places.smoothing)
        self._rows("qkv")
        self._linear("qkv")
        for head in range(p.kv_heads):
            factors = places.smoothing + places.slices(head * p.head_size)
            self._npu(NpuOperation.FACTORS, p.head_size, ["smoothing"], factors=factors, head=head)
        # Keys and values come first: the first head's are ready when the last query comes.
        target = places.projected
        self._sums(NpuOperation.SCALE, "qkv", 0, 2 * keys, (), target=target)
        self._codes(0)
        target += places.slices(2 * keys)
        self._sums(NpuOperation.SCALE, "qkv", 2 * keys, p.qkv - 2 * keys, (), target=target)
        self._attention()
        self._rows("output")
        self._npu(
            NpuOperation.ACTIVATE,
            p.heads * p.head_size,
            (),
            ["inputs"],
            source=places.attended,
            target=places.vector_inputs,
        )
        self._linear("output")
        state = {"source": places.state, "target": places.state}
        self._sums(NpuOperation.RESIDUAL, "output", 0, p.width, (), **state)
        self._normalised(p.norm_bases[1])
        self._rows("gate_up")
        self._linear("gate_up")
        half = p.feed_forward
        self._sums(NpuOperation.SCALE, "gate_up", 0, half, (), target=places.gate)
        inner = {"source": places.gate, "target": places.vector_inputs}
        # What comes next from the banks comes while the NPU is at work.
        self._rows("down")
        self._sums(NpuOperation.GATED, "gate_up", half, half, ["inputs"], **inner)
        self._linear("down")
        self._sums(NpuOperation.RESIDUAL, "down", 0, p.width, (), **state)
        self._npu(NpuOperation.LEAVE, p.width, source=places.state)

    def _vocabulary(self) -> None:
        """Write the vocabulary's lines: a piece's sums are compared while the next is fetched."""
        p, places = self.p, self.places
        self._npu(NpuOperation.LOAD, p.width, target=places.state)
        # Behind the layers stands first what the final norm needs.
        self._normalised(0)
        for number, piece in enumerate(p.projection):
            side = number % 2
            self._rows_of(piece, side)
            self._linear_of(piece)
            self._npu(
                NpuOperation.COMPARE,
                piece.outputs,
                ["sums", f"rows_{side}"],
                sums=places.linear_sums,
                factors=places.rows(side),
            )
        self._npu(NpuOperation.PREDICT)

    def _codes(self, head: int) -> None:
        """Smooth and quantise a head's key, quantise its value."""
        p, places = self.p, self.places
        for operation, skipped in ((NpuOperation.KEY, 0), (NpuOperation.VALUE, p.kv_heads)):
            source = places.projected + places.slices((skipped + head) * p.head_size)
            self._npu(operation, p.head_size, (), ["codes"], source=source, head=head)

    def _next_codes(self, pair: "Pair") -> None:
        """Quantise a new head's key and value; the first one's are there."""
        if pair.head and pair.first % self.p.members == 0:
            self._codes(pair.head)

    def _append(self, pair: "Pair") -> None:
        """Write a new head's key and value: the token's queries meet them as well."""
        if pair.first % self.p.members:
            return
        append = {
            "operation": MemoryOperation.APPEND,
            "base": self.p.key_base(pair.head),
            "values": self.p.value_base(pair.head),
        }
        self.memory.append(self._line(append, self.npu, ["codes"], ()))

    def _attention(self) -> None:
        """Let one or two query heads of a key/value head attend, then the next ones."""
        pairs = [
            Pair(head, head * self.p.members + first, min(2, self.p.members - first), turn=0)
            for head in range(self.p.kv_heads)
            for first in range(0, self.p.members, 2)
        ]
        pairs = [
            Pair(one.head, one.first, one.count, turn=number % 2)
            for number, one in enumerate(pairs)
        ]
        # Vectors of two pairs have places: one pair's scores are made while the other's wait.
        for number, pair in enumerate(pairs[:2]):
            self._next_codes(pair)
            self._queries(pair)
            self._append(pair)
            if number == 0:
                self._scores(pair)
        for number, pair in enumerate(pairs):
            for following in pairs[number + 1 : number + 2]:
                self._scores(following)
            # A new head's token is written while the NPU makes probabilities, which the next
            # product waits for.
            for following in pairs[number + 2 : number + 3]:
                self._next_codes(following)
                self._append(following)
            self._shares(pair)
            # Queries of the pair after next: the place of this one's is free.
            for following in pairs[number + 2 : number + 3]:
                self._queries(following)
            self._weighted(pair)
            # A pair late, so that the NPU never waits for sums that were just begun.
            if number > 0:
                self._outputs(pairs[number - 1])
        self._outputs(pairs[-1])

    def _queries(self, pair: "Pair") -> None:
        """Turn, smooth and quantise the queries."""
        p, places = self.p, self.places
        first = 2 * p.kv_heads + pair.first
        for pump in range(pair.count):
            self._npu(
                NpuOperation.QUERY,
                p.head_size,
                (),
                [f"query_{pair.turn}"],
                source=places.projected + places.slices((first + pump) * p.head_size),
                target=places.query_inputs(pair.turn, pump),
                scalar=2 * pair.turn + pump,
                head=pair.head,
            )

    def _scores(self, pair: "Pair") -> None:
        """Multiply the queries by the keys."""
        places, turn, side = self.places, pair.turn, pair.head % 2
        # The scales stay for a head's other pairs; the next head's have a place of their own.
        again = pair.first % self.p.members > 0
        self._product(
            Mode.QK,
            self.p.key_base(pair.head),
            [f"query_{turn}"],
            [f"scores_{turn}"] + [f"scales_{side}"] * (not again),
            both=pair.count - 1,
            scaled=again,
            outers=1,
            inputs=[places.words(places.query_inputs(turn, pump)) for pump in range(2)],
            sums=[places.results(places.scores(turn, pump)) for pump in range(2)],
            columns=[
                places.columns(scales)
                for scales in (places.key_scales(side), places.value_scales(side))
            ],
        )

    def _shares(self, pair: "Pair") -> None:
        """Make probabilities of scores."""
        places, turn, side = self.places, pair.turn, pair.head % 2
        for pump in range(pair.count):
            self._npu(
                NpuOperation.SCORES,
                0,
                [f"scores_{turn}", f"scales_{side}"],
                [f"probabilities_{turn}"],
                target=places.probability_inputs(turn, pump),
                sums=places.scores(turn, pump),
                factors=places.key_scales(side),
                value_scales=places.value_scales(side),
                scalar=2 * turn + pump,
            )

    def _weighted(self, pair: "Pair") -> None:
        """Multiply the probabilities by the values."""
        places, turn = self.places, pair.turn
        self._product(
            Mode.PV,
            self.p.value_base(pair.head),
            [f"probabilities_{turn}"],
            [f"heads_{turn}"],
            both=pair.count - 1,
            outers=1,
            rounds=1,
            inputs=[places.words(places.probability_inputs(turn, pump)) for pump in range(2)],
            sums=[places.results(places.heads(turn, pump)) for pump in range(2)],
        )

    def _outputs(self, pair: "Pair") -> None:
        """Make numbers of the heads' sums."""
        p, places = self.p, self.places
        for pump in range(pair.count):
            self._npu(
                NpuOperation.HEAD,
                p.head_size,
                [f"heads_{pair.turn}"],
                (),
                sums=places.heads(pair.turn, pump),
                target=places.attended + places.slices((pair.first + pump) * p.head_size),
                scalar=2 * pair.turn + pump,
            )


@dataclass(frozen=True)
class Pair:
    """One or two query heads of a key/value head, and which of two places is theirs."""

    head: int
    first: int
    count: int
    turn: int


def encoded(lines: list[Line], layout: data.StructLayout) -> tuple[int, ...]:
    """Return a side's lines as bits."""
    return tuple(
        layout.const({"after": line.after, "instruction": line.instruction}).as_value().value
        for line in lines
    )
