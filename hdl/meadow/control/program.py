"""The instruction sequence of a decoder layer and of the LM head, derived from the dimensions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NotRequired, Protocol, TypedDict

from hdl.meadow.instructions import (
    Combine,
    Kind,
    Matrix,
    instruction_layout,
    matrix_layout,
    packed,
)
from hdl.meadow.parameters import MeadowParameters


class LayerScales(Protocol):
    """The numbers of a quantised layer that its instructions contain.

    Members
    -------
    epsilon : int
        Epsilon of both norms, as in `RowScaler`.
    factors : Mapping[str, tuple[int, int]]
        Scale and shift of the results of each matrix, unless each tile has its own, and of
        ``"score"`` and ``"attended"``.
    lifts : Mapping[str, int]
        Left shift of the results of ``"output"`` and ``"down"``.
    activated_scale : int
        Factor of activated values, without a gate.
    """

    @property
    def epsilon(self) -> int: ...  # noqa: D102
    @property
    def factors(self) -> Mapping[str, tuple[int, int]]: ...  # noqa: D102
    @property
    def lifts(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def activated_scale(self) -> int: ...  # noqa: D102


class MatrixDescription(TypedDict):
    """Payload of the stream `matrices`, as in `WeightPath`."""

    packing: dict[str, object]
    table_address: int
    table_words: int
    packet_address: list[int]
    packet_count: list[int]
    words: int
    tile_words: int
    bias_address: NotRequired[int]
    scale_address: NotRequired[int]
    tiles: NotRequired[int]


@dataclass(frozen=True, eq=False)
class LayerPlace:
    """Addresses and matrix descriptions of a layer.

    Members
    -------
    addresses : dict[str, int]
        Addresses of both norms' weights, of the exponentials, of keys and of values.
    matrices : dict[str, MatrixDescription]
        Description of each matrix.
    """

    addresses: dict[str, int]
    matrices: dict[str, MatrixDescription]


@dataclass(frozen=True, eq=False)
class RowsPlace:
    """Addresses of the scores and probabilities of one layer at a time.

    Members
    -------
    scores, probabilities : int
        Addresses next to the cache.
    probability_bytes : int
        Bytes of a probability, 1 or 2.
    """

    scores: int
    probabilities: int
    probability_bytes: int


@dataclass(frozen=True, eq=False)
class VocabularyPlace:
    """Address and matrix descriptions of the LM head.

    Members
    -------
    norm : int
        Address of the final norm's weights.
    pieces : list[MatrixDescription]
        Description of each slice, with as many output tiles as an instruction takes.
    """

    norm: int
    pieces: list[MatrixDescription]


@dataclass(frozen=True)
class Instruction:
    """An instruction before packing; absent fields are 0.

    Members
    -------
    kind : Kind
        Its operation.
    block : Mapping[str, int]
        Fields of the command of the token lanes.
    matrix : Matrix
        Right-hand operand of a GEMM.
    combine : Combine
        Combination of results and old words.
    fields : Mapping[str, int]
        All other fields.
    """

    kind: Kind
    block: Mapping[str, int]
    matrix: Matrix
    combine: Combine
    fields: Mapping[str, int]


class Program:
    """The program of blocks of tokens; each method appends instructions and matrices.

    Parameters
    ----------
    p : MeadowParameters
        Dimensions of the accelerator.
    skip : bool
        Whether attention skips keys that no token of a group attends to.
    spacing : int, optional
        Distance of consecutive heads in the cache in words, by default the capacity of a head.

    Members
    -------
    base : int
        First word of the next block in the activation memory, 0 unless it is set. All words of the
        hidden states must be within those of `MeadowParameters.most_tokens` tokens.
    issued : list[Instruction]
        The instructions as records.
    described : list[MatrixDescription]
        The descriptions of matrices as records.
    instructions, matrices : list[int]
        Packed payloads of the two streams.
    """

    def __init__(
        self, p: MeadowParameters, *, skip: bool = False, spacing: int | None = None
    ) -> None:
        self.p, self.skip, self.base = p, int(skip), 0
        self.spacing = p.slots if spacing is None else spacing
        self.issued: list[Instruction] = []
        self.described: list[MatrixDescription] = []
        self.instructions: list[int] = []
        self.matrices: list[int] = []
        self._instruction_layout, self._matrix_layout = instruction_layout(p), matrix_layout(p)

    @property
    def packets(self) -> int:
        """Packets of all described matrices."""
        return sum(sum(description["packet_count"]) for description in self.described)

    def load(self, tokens: int, address: int) -> None:
        """Load hidden states."""
        self._move(Kind.LOAD, tokens, address)

    def store(self, tokens: int, address: int) -> None:
        """Store hidden states."""
        self._move(Kind.STORE, tokens, address)

    def _move(self, kind: Kind, tokens: int, address: int) -> None:
        state = self.p.state_words
        fields = {"vector_address": address, "words": state, "stride": state}
        # A load has no source, a store no target.
        fields["target" if kind is Kind.LOAD else "source"] = self.base
        self.issue(kind, {"tokens": tokens}, fields)

    def layer(
        self,
        layer: LayerScales,
        place: LayerPlace,
        *,
        past: int,
        tokens: int,
        rows: RowsPlace | None = None,
    ) -> None:
        """Append a layer for a block of tokens that follow `past` cached ones.

        Weights have the order of the instructions. Attention uses TPHS, or with `rows`, addresses
        for scores and probabilities, GEMM.
        """
        p, places = self.p, place.addresses
        state, inner = p.state_words, p.feed_forward_words
        # Areas of the activation memory, in the order of `MeadowParameters.planes`: hidden states,
        # wider rows, normalised states.
        at_states, at_wide = self.base, self.base + tokens * state
        at_norm = at_wide + tokens * p.wide_words
        short = {"source": at_norm, "words": state}
        norm = {"source": at_states, "target": at_norm, "words": state, "stride": state}
        norm["epsilon"] = layer.epsilon
        cached = {"spacing": self.spacing, "shared": p.kv_heads}
        wide = {"target": at_wide, "stride": inner}
        sizes = {"tokens": tokens, "context": past + tokens, "slice_words": state // p.slices}

        def gemm(
            name: str,
            heads: int,
            fields: Mapping[str, int],
            *,
            rotate: int = 0,
            wide: int = 1,
            combine: Combine = Combine.KEEP,
        ) -> None:
            block = sizes | {"heads": heads, "members": 1, "rotate": rotate}
            block |= {"slice_words": fields["words"] // p.slices, "wide": wide}
            block |= _scales(layer, gemm=name)
            if name == "up":
                block["output_scale"] = layer.activated_scale
            lift = layer.lifts.get(name, 0)
            self.issue(Kind.GEMM, block, {"lift": lift, **fields}, combine=combine)
            self.describe(place.matrices[name])

        self._norm(tokens, norm | {"vector_address": places["first"]})
        for name in ("key", "value"):
            cells = {"cached": 1, "value_address": places[f"{name}s"] + past, "stride": 1}
            gemm(name, p.kv_heads, short | cells | cached, rotate=int(name == "key"), wide=0)
        attention = sizes | {"heads": p.heads, "members": p.heads // p.kv_heads, "rotate": 1}
        attention |= {"causal": int(p.causal), "skip": self.skip}
        attention |= _scales(layer, gemm="query", score="score", output="attended")
        where = {"key_address": places["keys"], "value_address": places["values"]}
        where |= {"vector_address": places["table"]}
        heads = {"target": at_wide, "stride": state}
        if rows is None:
            self.issue(Kind.TPHS, attention, short | where | cached | heads)
            self.describe(place.matrices["query"])
        else:
            gemm("query", p.heads, short | heads, rotate=1, wide=0)
            self._by_gemm(attention | {"skip": 0}, where | cached, heads, rows)
        adds = {"source": at_wide, "target": at_states, "stride": state}
        if p.token_exponents:
            adds["combined"] = 1
        gemm("output", state, adds | {"words": state}, combine=Combine.ADD)
        self._norm(tokens, norm | {"vector_address": places["second"]})
        if p.gated:
            gemm("gate", inner, short | wide)
        gemm("up", inner, short | wide, combine=Combine.ACTIVATE)
        gemm("down", state, adds | {"words": inner}, combine=Combine.ADD)

    def _by_gemm(
        self, block: dict[str, int], where: dict[str, int], heads: dict[str, int], rows: RowsPlace
    ) -> None:
        """Append scores, probabilities and outputs; the outputs overwrite the queries."""
        words = -(-block["context"] // self.p.head_size)
        shares = {"words": rows.probability_bytes * words}
        wide = block | {"wide": int(rows.probability_bytes > 1)}
        queries = {"source": heads["target"], "words": heads["stride"]}
        scores = {"cached": 1, "value_address": rows.scores, "stride": words}
        keys, values = where | scores, where | {"key_address": rows.probabilities}
        self.issue(Kind.GEMM, block, keys | queries, matrix=Matrix.KEYS)
        between = {
            "key_address": rows.scores,
            "value_address": rows.probabilities,
            "stride": shares["words"],
        }
        self.issue(Kind.SOFTMAX, wide, where | between | {"words": words})
        self.issue(Kind.GEMM, wide, values | heads | shares, matrix=Matrix.VALUES)

    def predict(self, place: VocabularyPlace, *, tokens: int, epsilon: int) -> None:
        """Append the LM head for the last token of a block, and output the prediction."""
        p, state = self.p, self.p.state_words
        at_norm = self.base + tokens * (state + p.wide_words)
        rows = {"words": state, "stride": state, "target": at_norm}
        last = self.base + (tokens - 1) * state
        norm = {"source": last, "vector_address": place.norm, "epsilon": epsilon}
        self._norm(1, rows | norm)
        sizes = {"tokens": 1, "context": 1, "members": 1, "slice_words": state // p.slices}
        for piece in place.pieces:
            block = sizes | {"heads": piece["words"] // piece["tile_words"]}
            source = {"source": at_norm, "words": state}
            self.issue(Kind.GEMM, block, source, combine=Combine.COMPARE)
            self.describe(piece)
        self.end()

    def end(self) -> None:
        """Output a prediction when all earlier instructions are complete; without sums, token 0."""
        self.issue(Kind.PREDICT, {"tokens": 0}, {"words": 0})

    def _norm(self, tokens: int, fields: Mapping[str, int]) -> None:
        self.issue(Kind.NORM, {"tokens": tokens}, fields)

    def issue(
        self,
        kind: Kind,
        block: Mapping[str, int],
        fields: Mapping[str, int],
        *,
        matrix: Matrix = Matrix.WEIGHTS,
        combine: Combine = Combine.KEEP,
    ) -> None:
        """Append an instruction."""
        values = {"kind": kind, "block": block, "matrix": matrix, "combine": combine, **fields}
        self.instructions.append(packed(self._instruction_layout, values))
        self.issued.append(Instruction(kind, block, matrix, combine, fields))

    def describe(self, description: MatrixDescription) -> None:
        """Append the description of a matrix."""
        self.matrices.append(packed(self._matrix_layout, description))
        self.described.append(description)


def _scales(layer: LayerScales, **names: str) -> dict[str, int]:
    """Return scale and shift of each requantisation of a block, if the whole block shares them."""
    fields = {}
    for port, name in names.items():
        if name in layer.factors:
            fields[f"{port}_scale"], fields[f"{port}_shift"] = layer.factors[name]
    return fields
