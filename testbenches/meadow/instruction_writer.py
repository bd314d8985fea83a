"""MEADOW's instructions: of a layer, of the vocabulary, and what they move and take."""

from typing import Any

import numpy as np

from golden.meadow.layer_quantisation import IntegerLayer
from hdl.meadow.parameters import Combine, Kind, Matrix, MeadowParameters
from hdl.meadow.tile.attention_parameters import HALVES
from testbenches.meadow.memory_images import (
    BIAS_OCTETS,
    STATE_OCTETS,
    LayerPlace,
    RowsPlace,
    VocabularyPlace,
)
from testbenches.packing import pack, to_integers


class InstructionWriter:
    """Write instructions, and keep count.

    Parameters
    ----------
    p : MeadowParameters
        Dimensions.
    skip : bool
        Whether attention leaves out what no token of a group sees.
    spacing : int, optional
        From a head's room in the cache to the next one's, by default the features of a room.

    Members
    -------
    instructions, matrices : list[int]
        Packed.
    moved : dict[str, int]
        Octets that must cross each port.
    weights : int
        Octets of the weights as they are unpacked.
    ideal : list[int]
        For each instruction the cycles that its work takes: a lane's, or its weights' way in.
    """

    def __init__(
        self, p: MeadowParameters, *, skip: bool = False, spacing: int | None = None
    ) -> None:
        self.p, self.skip = p, int(skip)
        self.spacing = p.features if spacing is None else spacing
        self.instructions: list[int] = []
        self.matrices: list[int] = []
        self.moved: dict[str, int] = dict.fromkeys(
            ("vectors", "states", "cache", "written", "tables", "packets"), 0
        )
        if p.biases:
            self.moved["biases"] = 0
        self.weights = 0
        self.ideal: list[int] = []

    @property
    def fetched(self) -> int:
        """Octets of packets and unique matrices."""
        return self.moved["packets"] + self.moved["tables"]

    def load(self, tokens: int, address: int) -> None:
        """Bring hidden states in."""
        self._move(Kind.LOAD, tokens, address, "vectors")

    def store(self, tokens: int, address: int) -> None:
        """Let hidden states leave."""
        self._move(Kind.STORE, tokens, address, "states")

    def _move(self, kind: Kind, tokens: int, address: int, port: str) -> None:
        state = self.p.state_words
        block = {"tokens": tokens}
        self.instruct(kind, block=block, vectors=address, words=state, stride=state)
        self.moved[port] += tokens * state * STATE_OCTETS * self.p.head_size

    def layer(
        self,
        layer: IntegerLayer,
        place: LayerPlace,
        *,
        past: int,
        tokens: int,
        rows: RowsPlace | None = None,
    ) -> None:
        """Take a block of tokens, behind `past` cached ones, through a layer.

        The weights come in the instructions' order. Attention is TPHS; with room for its `rows` it
        goes by GEMM.
        """
        p, places = self.p, place.vectors
        state, inner = p.state_words, p.feed_forward_words
        # States, what is normalised, and what is wider.
        at_norm, at_wide = tokens * state, 2 * tokens * state
        short = {"source": at_norm, "words": state}
        norm = {"target": at_norm, "words": state, "stride": state, "epsilon": layer.epsilon}
        cached = {"spacing": self.spacing, "shared": p.kv_heads}
        wide = {"target": at_wide, "stride": inner}
        sizes = {"tokens": tokens, "context": past + tokens, "chunks": state // p.slices}

        def gemm(name: str, heads: int, *, rotate: int = 0, wide: int = 1, **fields: Any) -> None:
            block = sizes | {"heads": heads, "members": 1, "rotate": rotate}
            block |= {"chunks": fields["words"] // p.slices, "wide": wide}
            block |= self._scales(layer, query=name)
            if name == "up":
                block["output_scale"] = layer.activated_scale
            lift = layer.lifts.get(name, 0)
            self.instruct(Kind.GEMM, block=block, lift=lift, **fields)
            self.weigh(place.matrices[name])

        self._norm(tokens, vectors=places["first"], **norm)
        for name in ("key", "value"):
            cells = {"cached": 1, "values": places[f"{name}s"] + past, "stride": 1}
            turn = int(name == "key")
            gemm(name, p.kv_heads, rotate=turn, wide=0, **short, **cells, **cached)
        self.moved["written"] += 2 * p.kv_heads * tokens * p.head_size
        members = p.heads // p.kv_heads
        attention = sizes | {"heads": p.heads, "members": members, "rotate": 1}
        attention |= {"causal": 1, "skip": self.skip}
        attention |= self._scales(layer, query="query", score="score", output="attended")
        where = {name: places[name] for name in ("keys", "values")} | {"vectors": places["table"]}
        heads = {"target": at_wide, "stride": state}
        if rows is None:
            self.instruct(Kind.TPHS, block=attention, **short, **where, **cached, **heads)
            self.weigh(place.matrices["query"])
        else:
            gemm("query", p.heads, rotate=1, wide=0, **short, **heads)
            self._by_gemm(attention | {"skip": 0}, where | cached, heads, rows)
        self.moved["vectors"] += p.table_words * STATE_OCTETS * p.head_size
        self.moved["cache"] += 2 * p.kv_heads * (past + tokens) * p.head_size
        adds = {"target": 0, "stride": state, "combine": Combine.ADD.value}
        gemm("output", state, source=at_wide, words=state, **adds)
        self._norm(tokens, vectors=places["second"], **norm)
        if p.gated:
            gemm("gate", inner, **short, **wide)
        gemm("up", inner, **short, **wide, combine=Combine.ACTIVATE.value)
        gemm("down", state, source=at_wide, words=inner, **adds)

    def _by_gemm(
        self, block: dict[str, int], where: dict[str, int], heads: dict[str, int], rows: RowsPlace
    ) -> None:
        """Make scores, probabilities and outputs of queries, which outputs take the place of."""
        size = self.p.head_size
        words = -(-block["context"] // size)
        shares = {"words": rows.octets * words}
        wide = block | {"wide": int(rows.octets > 1)}
        queries = {"source": heads["target"], "words": heads["stride"]}
        scores = {"cached": 1, "values": rows.scores, "stride": words}
        keys, values = where | scores, where | {"keys": rows.probabilities}
        self.instruct(Kind.GEMM, block=block, matrix=Matrix.KEYS.value, **keys | queries)
        between = {"keys": rows.scores, "values": rows.probabilities, "stride": shares["words"]}
        self.instruct(Kind.SOFTMAX, block=wide, words=words, **where | between)
        self.instruct(Kind.GEMM, block=wide, matrix=Matrix.VALUES.value, **values | heads | shares)
        # What is written is read once.
        octets = (1 + rows.octets) * block["heads"] * block["tokens"] * words * size
        self.moved["written"] += octets
        self.moved["cache"] += octets

    def predict(self, place: VocabularyPlace, *, tokens: int, epsilon: int) -> None:
        """Find the token that follows the last one of a block, and let it leave."""
        p, state = self.p, self.p.state_words
        rows = {"words": state, "stride": state, "target": tokens * state}
        self._norm(1, source=(tokens - 1) * state, vectors=place.norm, epsilon=epsilon, **rows)
        sizes = {"tokens": 1, "context": 1, "members": 1, "chunks": state // p.slices}
        for piece in place.pieces:
            self.instruct(
                Kind.GEMM,
                block=sizes | {"heads": piece["words"] // piece["tile"]},
                source=tokens * state,
                words=state,
                combine=Combine.COMPARE.value,
            )
            self.weigh(piece)
        self.end()

    def end(self) -> None:
        """Let a prediction leave: behind no sums that of token 0, when all before it is done."""
        self.instruct(Kind.PREDICT, block={"tokens": 0}, words=0)

    def _norm(self, tokens: int, **fields: Any) -> None:
        self.instruct(Kind.NORM, block={"tokens": tokens}, **fields)
        self.moved["vectors"] += self.p.norm_words * STATE_OCTETS * self.p.head_size

    def _scales(self, layer: IntegerLayer, **names: str) -> dict[str, int]:
        fields = {}
        for port, name in names.items():
            fields[f"{port}_scale"], fields[f"{port}_shift"] = layer.factors[name]
        return fields

    def add_unknown(self) -> None:
        """Add an instruction of no kind, which does nothing."""
        last = max(kind.value for kind in Kind)
        self.instructions += self._packed(last + 1, {}, {})

    def instruct(self, kind: Kind, *, block: dict[str, int], **fields: int) -> None:
        """Add an instruction, and the cycles of its work."""
        tokens = block["tokens"]
        groups = -(-tokens // self.p.lanes)
        steps = self.p.head_size // HALVES * block.get("chunks", 0)
        match kind:
            case Kind.GEMM if fields.get("matrix", 0) == Matrix.VALUES.value:
                # An element gives one of an output's elements a cycle.
                head = groups * max(block["context"], self.p.head_size)
                self.ideal.append(block["heads"] * head)
            case Kind.GEMM | Kind.SOFTMAX if "matrix" in fields or kind is Kind.SOFTMAX:
                self.ideal.append(block["heads"] * groups * block["context"])
            case Kind.GEMM:
                # A group's pass, or the words of a tile: one a cycle.
                self.ideal.append(block["heads"] * steps * max(groups, 2 * self.p.slices))
            case Kind.TPHS:
                slots = self.p.lanes * np.arange(1, groups + 1) + block["context"] - tokens
                slots = np.minimum(slots if block["skip"] else block["context"], block["context"])
                slots = np.maximum(slots + np.zeros(groups, int), steps)
                head = max(int(slots.sum()), 2 * self.p.slices * steps)
                self.ideal.append(block["heads"] * head + 3 * int(slots[-1]))
            case _:
                self.ideal.append(tokens * fields["words"])
        self.instructions += self._packed(kind.value, block, fields)

    def _packed(self, kind: int, block: dict[str, int], fields: dict[str, int]) -> list[int]:
        """Return a packed instruction; what is not said is 0."""
        layout: Any = self.p.instruction_layout

        def filled(part: Any, said: dict[str, Any]) -> dict[str, Any]:
            assert set(said) <= {name for name, _field in part}, said
            return {name: np.array([said.get(name, 0)]) for name, _field in part}

        values = filled(layout, {"kind": kind, **fields})
        values["block"] = filled(layout["block"].shape, block)
        return to_integers(pack(layout, values))

    def weigh(self, told: dict[str, Any]) -> None:
        """Add a matrix, and count what is fetched of it."""

        def rows(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: rows(part) for key, part in value.items()}
            return np.array([value])

        self.matrices += to_integers(pack(self.p.matrix_layout, rows(told)))
        if self.p.biases:
            self.moved["biases"] += told["tiles"] * self.p.head_size * BIAS_OCTETS
        self.weights += told["words"] * self.p.head_size
        self.moved["tables"] += told["rows"] * self.p.unpacker.chunk
        self.moved["packets"] += told["number"] * self.p.unpacker.unpacker.packet_bits // 8
