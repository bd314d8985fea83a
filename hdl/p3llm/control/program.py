"""A decoder layer of a decode step, as what memory and NPU do in their orders (Figure 6 a).

Behind it, if there is one, the vocabulary: final norm, projection, and the largest sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hdl.p3llm.control.attention import Attention
from hdl.p3llm.control.lines import Lines
from hdl.p3llm.npu.npu_instructions import NpuOperation
from hdl.p3llm.parameters import MatrixPlace
from hdl.p3llm.pim.operand_decoder import Mode


@dataclass
class Program(Lines):
    """The program of a layer, and of the vocabulary: two lists, one a side, each in its order.

    What a line has to wait for on the other side follows from what both read and write. Attention
    goes pair by pair of a group's heads, and the pairs overlap: while the units multiply one pair's
    query by the keys, the NPU takes the softmax of the pair before.

    Members
    -------
    layer_lines : tuple[int, int]
        Lines of a layer on both sides; those behind them are the vocabulary's.
    """

    layer_lines: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        """Write it down."""
        self._layer()
        self.layer_lines = self.counts
        if self.p.vocabulary:
            self._vocabulary()

    def _rows(self, name: str) -> None:
        """Fetch a linear layer's row scales, which stand before it."""
        self._rows_of(self.p.matrices[name], self._side(name))

    def _rows_of(self, matrix: MatrixPlace, side: int) -> None:
        """Fetch a matrix's row scales to one of two places."""
        self.fetch(
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
        self.multiply(
            Mode.LINEAR,
            ["inputs"],
            ["sums"],
            base=matrix.base + matrix.rounds,
            outers=matrix.outers,
            rounds=matrix.rounds,
            steps=matrix.steps,
            inputs=[places.words(places.vector_inputs), 0],
            sums=[places.results(places.linear_sums), 0],
        )

    def _normalised(self, base: int) -> None:
        """Normalise the hidden state, by weights that stand at a position."""
        p, places = self.p, self.places
        self.fetch(base, p.width, "norm", places.norm)
        self.operate(
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
        self.operate(
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
        attention = Attention(self)
        self.operate(NpuOperation.LOAD, p.width, target=places.state)
        self._normalised(p.norm_bases[0])
        keys = p.kv_heads * p.head_size
        self.fetch(p.factors_base, keys, "smoothing", places.smoothing)
        self._rows("qkv")
        self._linear("qkv")
        attention.factors()
        # Keys and values come first: the first head's are ready when the last query comes.
        target = places.projected
        self._sums(NpuOperation.SCALE, "qkv", 0, 2 * keys, (), target=target)
        attention.codes(attention.pairs[0])
        target += places.slices(2 * keys)
        self._sums(NpuOperation.SCALE, "qkv", 2 * keys, p.qkv - 2 * keys, (), target=target)
        attention.attend()
        self._rows("output")
        self.operate(
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
        self.operate(NpuOperation.LEAVE, p.width, source=places.state)

    def _vocabulary(self) -> None:
        """Write the vocabulary's lines: a piece's sums are compared while the next is fetched."""
        p, places = self.p, self.places
        self.operate(NpuOperation.LOAD, p.width, target=places.state)
        # Behind the layers stands first what the final norm needs.
        self._normalised(0)
        for number, piece in enumerate(p.projection):
            side = number % 2
            self._rows_of(piece, side)
            self._linear_of(piece)
            self.operate(
                NpuOperation.COMPARE,
                piece.outputs,
                ["sums", f"rows_{side}"],
                sums=places.linear_sums,
                factors=places.rows(side),
            )
        self.operate(NpuOperation.PREDICT)
