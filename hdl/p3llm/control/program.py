"""The instruction lists of a decoder layer, for memory side and NPU side (Figure 6 a).

With a vocabulary, the instructions of the LM head follow: final norm, projection and argmax.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hdl.p3llm.control.attention import Attention
from hdl.p3llm.control.lines import ROWS, Lines, Shared
from hdl.p3llm.control.pre_rope_attention import PreRopeAttention
from hdl.p3llm.instructions import NpuOperation
from hdl.p3llm.matrix_place import MatrixPlace
from hdl.p3llm.pim.operand_decoder import Mode


@dataclass
class Program(Lines):
    """The program of a layer and of the LM head: one instruction list per side.

    As many requests as share the weights of a column (`P3llmParameters.together`) pass through the
    layer together: each matrix is read once for all of them. The next requests follow and use the
    same places in the NPU's memories.

    Members
    -------
    layer_lines : tuple[int, int]
        Number of instructions of a layer on both sides; those of the LM head follow.
    """

    layer_lines: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        """Build both lists."""
        batch, together = self.p.batch, self.p.together
        passes = [range(first, min(first + together, batch)) for first in range(0, batch, together)]
        for requests in passes:
            self._layer(requests)
        self.layer_lines = self.counts
        if self.p.vocabulary_size:
            for requests in passes:
                self._vocabulary(len(requests))

    def _rows(self, name: str) -> None:
        """Read a linear layer's row scales, which are stored before it."""
        self._rows_of(self.p.matrices[name], self._side(name))

    def _rows_of(self, matrix: MatrixPlace, side: int) -> None:
        """Read a matrix's row scales into one of two places."""
        numbers = matrix.rounds * self.p.outputs
        self.fetch(matrix.base, numbers, ROWS[side], self.places.rows(side))

    def _side(self, name: str) -> int:
        """Return which of two places holds a linear layer's row scales."""
        return list(self.p.matrices).index(name) % 2

    def _linear(self, matrix: MatrixPlace, requests: int) -> None:
        """Multiply the stored inputs of one or two requests by a matrix."""
        places, pumps = self.places, range(requests)
        self.multiply(
            Mode.LINEAR,
            [Shared.INPUTS],
            [Shared.SUMS],
            base=matrix.base + matrix.rounds,
            both=requests - 1,
            outers=matrix.outers,
            rounds=matrix.rounds,
            steps=matrix.steps,
            inputs={pump: places.words(places.vector_inputs(pump)) for pump in pumps},
            sums={pump: places.results(places.linear_sums(pump)) for pump in pumps},
        )

    def _normalised(self, base: int, requests: int) -> None:
        """Normalise the hidden states with the weights stored at a position."""
        p, places = self.p, self.places
        self.fetch(base, p.hidden_size, Shared.NORM, places.norm)
        for pump in range(requests):
            self.operate(
                NpuOperation.NORM,
                p.hidden_size,
                [Shared.NORM],
                [Shared.INPUTS],
                source=places.state(pump),
                target=places.vector_inputs(pump),
                factors=places.spread(places.norm),
                scalar=pump,
            )

    def _load(self, requests: int) -> None:
        """Load hidden states."""
        for pump in range(requests):
            self.operate(NpuOperation.LOAD, self.p.hidden_size, target=self.places.state(pump))

    def _sums(
        self,
        operation: NpuOperation,
        name: str,
        pump: int,
        first: int,
        count: int,
        writes: Sequence[Shared],
        **fields: Any,
    ) -> None:
        """Process a range of a linear layer's sums of a request."""
        places, side = self.places, self._side(name)
        # Matrices with the same inputs are stored as one; each part is processed by itself.
        skipped = places.slices(first)
        self.operate(
            operation,
            count,
            [Shared.SUMS, ROWS[side]],
            writes,
            sums=places.spread(places.linear_sums(pump)) + skipped,
            factors=places.spread(places.rows(side)) + skipped,
            scalar=pump,
            **fields,
        )

    def _residual(self, name: str, requests: int) -> None:
        """Add a linear layer's sums to the hidden states."""
        for pump in range(requests):
            state = self.places.state(pump)
            self._sums(
                NpuOperation.RESIDUAL,
                name,
                pump,
                0,
                self.p.hidden_size,
                (),
                source=state,
                target=state,
            )

    def _layer(self, requests: range) -> None:
        """Add the instructions of a layer for requests that share the weights."""
        p, places, count = self.p, self.places, len(requests)
        attention = (PreRopeAttention if p.pre_rope else Attention)(self, requests)
        self._load(count)
        self._normalised(p.norm_bases[0], count)
        factors = count * p.factors_positions * p.outputs
        self.fetch(p.factors_base(requests[0]), factors, Shared.SMOOTHING, places.smoothing(0))
        self._rows("qkv")
        self._linear(p.matrices["qkv"], count)
        attention.factors(0)
        keys = 2 * p.kv_heads * p.head_size
        for pump in range(count):
            # Keys and values are first: those of the first head are quantised before the last
            # query is computed.
            target = places.projected(pump)
            self._sums(NpuOperation.SCALE, "qkv", pump, 0, keys, (), target=target)
            if pump == 0:
                attention.codes(attention.pairs[0])
            target += places.slices(keys)
            self._sums(NpuOperation.SCALE, "qkv", pump, keys, p.qkv - keys, (), target=target)
        attention.attend()
        self._rows("output")
        for pump in range(count):
            self.operate(
                NpuOperation.ACTIVATE,
                p.heads * p.head_size,
                (),
                [Shared.INPUTS],
                source=places.attended(pump),
                target=places.vector_inputs(pump),
                scalar=pump,
            )
        self._linear(p.matrices["output"], count)
        self._residual("output", count)
        self._normalised(p.norm_bases[1], count)
        self._feed_forward(count)
        for pump in range(count):
            self.operate(NpuOperation.LEAVE, p.hidden_size, source=places.state(pump))

    def _feed_forward(self, requests: int) -> None:
        """Multiply by `gate_proj` and `up_proj`, and their SwiGLU product by `down_proj`."""
        p, places, half = self.p, self.places, self.p.intermediate_size
        self._rows("gate_up")
        self._linear(p.matrices["gate_up"], requests)
        for pump in range(requests):
            gate, target = places.gate(pump), places.vector_inputs(pump)
            self._sums(NpuOperation.SCALE, "gate_up", pump, 0, half, (), target=gate)
            self._sums(
                NpuOperation.GATED,
                "gate_up",
                pump,
                half,
                half,
                [Shared.INPUTS],
                source=gate,
                target=target,
            )
        # The next row scales are read while the NPU is busy.
        self._rows("down")
        self._linear(p.matrices["down"], requests)
        self._residual("down", requests)

    def _vocabulary(self, requests: int) -> None:
        """Add the LM head: the sums of a piece are compared while the next piece is read."""
        p, places = self.p, self.places
        self._load(requests)
        # The weights of the final norm are stored first, after the layers.
        self._normalised(0, requests)
        for number, piece in enumerate(p.projection):
            side = number % 2
            self._rows_of(piece, side)
            self._linear(piece, requests)
            for pump in range(requests):
                self.operate(
                    NpuOperation.COMPARE,
                    piece.outputs,
                    [Shared.SUMS, ROWS[side]],
                    sums=places.spread(places.linear_sums(pump)),
                    factors=places.spread(places.rows(side)),
                    scalar=pump,
                )
        for pump in range(requests):
            self.operate(NpuOperation.PREDICT, scalar=pump)
