"""The instruction lists of a decoder layer, for memory side and NPU side (Figure 6 a).

With a vocabulary, the instructions of the LM head follow: final norm, projection and argmax.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hdl.p3llm.control.attention import Attention
from hdl.p3llm.control.npu_scores import NpuScores
from hdl.p3llm.control.pair import all_pairs
from hdl.p3llm.control.schedule import ROW_SCALES, Buffer, Schedule
from hdl.p3llm.control.unit_scores import UnitScores
from hdl.p3llm.instructions import MemoryInstruction, NpuInstruction, NpuOperation
from hdl.p3llm.matrix_place import MatrixPlace
from hdl.p3llm.pim.operand_decoder import Mode


@dataclass
class Program(Schedule):
    """The program of a layer and of the LM head: one instruction list per side.

    As many requests as share the weights of a column (`P3llmParameters.in_flight`) pass through the
    layer together: each matrix is read once for all of them. The next requests follow and use the
    same places in the NPU's memories.

    Members
    -------
    layer_counts : tuple[int, int]
        Number of instructions of a layer on both sides; those of the LM head follow.
    """

    layer_counts: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        """Build both lists."""
        batch, together = self.p.batch, self.p.in_flight
        passes = [range(first, min(first + together, batch)) for first in range(0, batch, together)]
        for requests in passes:
            self._layer(requests)
        self.layer_counts = self.counts
        if self.p.vocabulary_size:
            for requests in passes:
                self._vocabulary(len(requests))

    def _row_scales(self, name: str) -> None:
        """Read a linear layer's row scales, which are stored before it."""
        self._row_scales_of(self.p.matrices[name], self._side(name))

    def _row_scales_of(self, matrix: MatrixPlace, side: int) -> None:
        """Read a matrix's row scales into one of two places."""
        numbers = matrix.rounds * self.p.round_outputs
        self.fetch(matrix.base, numbers, ROW_SCALES[side], self.places.row_scales(side))

    def _side(self, name: str) -> int:
        """Return which of two places holds a linear layer's row scales."""
        return list(self.p.matrices).index(name) % 2

    def _linear(self, matrix: MatrixPlace, requests: int, *, gated: bool = False) -> None:
        """Multiply the stored inputs of one or two requests by a matrix, or the `gated` ones."""
        places, both = self.places, requests - 1
        inputs = places.gated_inputs if gated else places.vector_inputs
        # A single request has no second input: its place remains 0.
        self.access(
            MemoryInstruction(
                mode=Mode.LINEAR,
                base=matrix.base + matrix.rounds,
                both=both,
                groups=matrix.groups,
                rounds=matrix.rounds,
                steps=matrix.steps,
                twice=matrix.passes - 1,
                shared=int(matrix.shared),
                inputs=(places.words(inputs(0)), both * places.words(inputs(1))),
                sums=(
                    places.results(places.linear_sums(0)),
                    both * places.results(places.linear_sums(1)),
                ),
            ),
            reads=[Buffer.GATED if gated else Buffer.INPUTS],
            writes=[Buffer.SUMS],
        )

    def _norm_weights(self, base: int) -> None:
        """Read the weights of a norm, which are stored at a position."""
        self.fetch(base, self.p.hidden_size, Buffer.NORM_WEIGHTS, self.places.norm_weights)

    def _normalised(self, requests: int) -> None:
        """Normalise the hidden states."""
        p, places = self.p, self.places
        for pump in range(requests):
            self.operate(
                NpuInstruction(
                    operation=NpuOperation.NORM,
                    count=places.slices(p.hidden_size),
                    source=places.state(pump),
                    target=places.vector_inputs(pump),
                    factors=places.spread(places.norm_weights),
                    scale_index=pump,
                ),
                reads=[Buffer.NORM_WEIGHTS],
                writes=[Buffer.INPUTS],
            )

    def _load(self, requests: int) -> None:
        """Load hidden states."""
        places, count = self.places, self.places.slices(self.p.hidden_size)
        for pump in range(requests):
            load = NpuInstruction(
                operation=NpuOperation.LOAD, count=count, target=places.state(pump)
            )
            self.operate(load)

    def _sums(
        self,
        instruction: NpuInstruction,
        side: int,
        outputs: range,
        writes: Sequence[Buffer] = (),
    ) -> None:
        """Add an operation on a range of a matrix's outputs, for the request of its `scale_index`.

        Matrices with the same inputs are stored as one; each part is processed by itself.
        """
        places, skipped = self.places, self.places.slices(outputs.start)
        sums = replace(
            instruction,
            count=places.slices(len(outputs)),
            sums=places.spread(places.linear_sums(instruction.scale_index)) + skipped,
            factors=places.spread(places.row_scales(side)) + skipped,
        )
        self.operate(sums, reads=[Buffer.SUMS, ROW_SCALES[side]], writes=writes)

    def _residual(self, name: str, requests: int) -> None:
        """Add a linear layer's sums to the hidden states."""
        for pump in range(requests):
            state = self.places.state(pump)
            added = NpuInstruction(
                operation=NpuOperation.RESIDUAL, source=state, target=state, scale_index=pump
            )
            self._sums(added, self._side(name), range(self.p.hidden_size))

    def _layer(self, requests: range) -> None:
        """Add the instructions of a layer for requests that share the weights."""
        p, places, count = self.p, self.places, len(requests)
        scores = NpuScores(self) if p.pre_rope else UnitScores(self)
        attention = Attention(self, all_pairs(p, requests), scores)
        self._load(count)
        self._norm_weights(p.norm_bases[0])
        self._normalised(count)
        factors = count * p.smoothing_positions * p.round_outputs
        self.fetch(p.smoothing_base(requests[0]), factors, Buffer.SMOOTHING, places.smoothing(0))
        self._row_scales("qkv")
        self._linear(p.matrices["qkv"], count)
        attention.factors(0)
        self._projected(attention, count)
        attention.attend()
        self._row_scales("output")
        # The next weights of a norm are read while the NPU is busy.
        self._norm_weights(p.norm_bases[1])
        for pump in range(count):
            self.operate(
                NpuInstruction(
                    operation=NpuOperation.QUANTISE,
                    count=places.slices(p.query_size),
                    source=places.attended(pump),
                    target=places.vector_inputs(pump),
                    scale_index=pump,
                ),
                writes=[Buffer.INPUTS],
            )
        self._linear(p.matrices["output"], count)
        self._residual("output", count)
        self._normalised(count)
        self._feed_forward(count)
        slices = places.slices(p.hidden_size)
        for pump in range(count):
            leave = NpuInstruction(
                operation=NpuOperation.OUTPUT, count=slices, source=places.state(pump)
            )
            self.operate(leave)

    def _projected(self, attention: Attention, requests: int) -> None:
        """Scale keys, values and queries as they are computed; quantise what is complete."""
        p, keys = self.p, 2 * self.p.kv_heads * self.p.head_size
        heads = [
            head * p.group_size + pair.first + pair.count
            for pair in attention.early
            for head in pair.heads
        ]
        early = keys + max(heads) * p.head_size
        for pump in range(requests):
            # Keys and values are first: those of the first request are quantised while its queries
            # are computed, the first queries while the others are.
            bounds = (0, keys, early, p.qkv) if pump == 0 else (0, p.qkv)
            for first, end in pairwise(bounds):
                if first == end:
                    continue
                target = self.places.projected(pump) + self.places.slices(first)
                scale = NpuInstruction(
                    operation=NpuOperation.SCALE, target=target, scale_index=pump
                )
                self._sums(scale, self._side("qkv"), range(first, end))
                if pump == 0 and end == keys:
                    attention.codes(attention.pairs[0])
                if pump == 0 and end == early:
                    for pair in attention.early:
                        attention.scores.queries(pair)

    def _feed_forward(self, requests: int) -> None:
        """Multiply by `gate_proj` and `up_proj`, and their SwiGLU product by `down_proj`."""
        p, places, half = self.p, self.places, self.p.intermediate_size
        self._row_scales("gate_up")
        self._row_scales("down")
        self._linear(p.matrices["gate_up"], requests)
        for pump in range(requests):
            gate, side = places.gate(pump), self._side("gate_up")
            scale = NpuInstruction(operation=NpuOperation.SCALE, target=gate, scale_index=pump)
            self._sums(scale, side, range(half))
            gated = NpuInstruction(
                operation=NpuOperation.SWIGLU,
                source=gate,
                target=places.gated_inputs(pump),
                scale_index=pump,
            )
            self._sums(gated, side, range(half, 2 * half), [Buffer.GATED])
        self._linear(p.matrices["down"], requests, gated=True)
        self._residual("down", requests)

    def _vocabulary(self, requests: int) -> None:
        """Add the LM head: the sums of a piece are compared while the next piece is read."""
        p = self.p
        self._load(requests)
        # The weights of the final norm are stored first, after the layers.
        self._norm_weights(0)
        self._normalised(requests)
        for number, piece in enumerate(p.projection):
            side = number % 2
            self._row_scales_of(piece, side)
            self._linear(piece, requests)
            for pump in range(requests):
                compare = NpuInstruction(operation=NpuOperation.LOGITS, scale_index=pump)
                self._sums(compare, side, range(piece.outputs))
        for pump in range(requests):
            self.operate(NpuInstruction(operation=NpuOperation.PREDICT, scale_index=pump))
