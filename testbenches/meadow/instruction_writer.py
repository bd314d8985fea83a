"""Writer of MEADOW's instructions for layers and LM head, with their traffic and ideal cycles."""

from typing import Any

import numpy as np

from golden.meadow.layer_quantisation import IntegerLayer
from hdl.meadow.parameters import Combine, Kind, Matrix, MeadowParameters
from hdl.meadow.tile.attention_parameters import HALVES
from testbenches.meadow.memory_images import (
    BIAS_BYTES,
    STATE_BYTES,
    LayerPlace,
    RowsPlace,
    VocabularyPlace,
)
from testbenches.packing import pack, to_integers


class InstructionWriter:
    """Write instructions, and count their traffic and ideal cycles.

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
    instructions, matrices : list[int]
        Packed payloads of the two streams.
    moved : dict[str, int]
        Expected bytes at each port.
    weights : int
        Size of the unpacked weights in bytes.
    ideal : list[int]
        Ideal cycles of each instruction: the larger one of a lane's work and the transfer of its
        weights.
    """

    def __init__(
        self, p: MeadowParameters, *, skip: bool = False, spacing: int | None = None
    ) -> None:
        self.p, self.skip = p, int(skip)
        self.spacing = p.slots if spacing is None else spacing
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
        """Size of packets and unique matrices in bytes."""
        return self.moved["packets"] + self.moved["tables"]

    def load(self, tokens: int, address: int) -> None:
        """Load hidden states."""
        self._move(Kind.LOAD, tokens, address, "vectors")

    def store(self, tokens: int, address: int) -> None:
        """Store hidden states."""
        self._move(Kind.STORE, tokens, address, "states")

    def _move(self, kind: Kind, tokens: int, address: int, port: str) -> None:
        state = self.p.state_words
        block = {"tokens": tokens}
        self.instruct(kind, block=block, vectors=address, words=state, stride=state)
        self.moved[port] += tokens * state * STATE_BYTES * self.p.head_size

    def layer(
        self,
        layer: IntegerLayer,
        place: LayerPlace,
        *,
        past: int,
        tokens: int,
        rows: RowsPlace | None = None,
    ) -> None:
        """Write a layer for a block of tokens that follow `past` cached ones.

        Weights have the order of the instructions. Attention uses TPHS, or with `rows`, addresses
        for scores and probabilities, GEMM.
        """
        p, places = self.p, place.vectors
        state, inner = p.state_words, p.feed_forward_words
        # Areas of the activation memory: hidden states, normalised states, wider rows.
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
            rotate = int(name == "key")
            gemm(name, p.kv_heads, rotate=rotate, wide=0, **short, **cells, **cached)
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
        self.moved["vectors"] += p.table_words * STATE_BYTES * p.head_size
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
        """Write scores, probabilities and outputs; the outputs overwrite the queries."""
        size = self.p.head_size
        words = -(-block["context"] // size)
        shares = {"words": rows.probability_bytes * words}
        wide = block | {"wide": int(rows.probability_bytes > 1)}
        queries = {"source": heads["target"], "words": heads["stride"]}
        scores = {"cached": 1, "values": rows.scores, "stride": words}
        keys, values = where | scores, where | {"keys": rows.probabilities}
        self.instruct(Kind.GEMM, block=block, matrix=Matrix.KEYS.value, **keys | queries)
        between = {"keys": rows.scores, "values": rows.probabilities, "stride": shares["words"]}
        self.instruct(Kind.SOFTMAX, block=wide, words=words, **where | between)
        self.instruct(Kind.GEMM, block=wide, matrix=Matrix.VALUES.value, **values | heads | shares)
        # Scores and probabilities are written once and read once.
        written = size * (1 + rows.probability_bytes) * block["heads"] * block["tokens"] * words
        self.moved["written"] += written
        self.moved["cache"] += written

    def predict(self, place: VocabularyPlace, *, tokens: int, epsilon: int) -> None:
        """Write the LM head for the last token of a block, and output the prediction."""
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
        """Output a prediction when all earlier instructions are complete; without sums, token 0."""
        self.instruct(Kind.PREDICT, block={"tokens": 0}, words=0)

    def _norm(self, tokens: int, **fields: Any) -> None:
        self.instruct(Kind.NORM, block={"tokens": tokens}, **fields)
        self.moved["vectors"] += self.p.norm_words * STATE_BYTES * self.p.head_size

    def _scales(self, layer: IntegerLayer, **names: str) -> dict[str, int]:
        fields = {}
        for port, name in names.items():
            fields[f"{port}_scale"], fields[f"{port}_shift"] = layer.factors[name]
        return fields

    def add_unknown(self) -> None:
        """Add an instruction of unknown kind, which has no effect."""
        last = max(kind.value for kind in Kind)
        self.instructions += self._packed(last + 1, {}, {})

    def instruct(self, kind: Kind, *, block: dict[str, int], **fields: int) -> None:
        """Add an instruction and its ideal cycles."""
        tokens = block["tokens"]
        groups = -(-tokens // self.p.lanes)
        steps = self.p.head_size // HALVES * block.get("chunks", 0)
        match kind:
            case Kind.GEMM if fields.get("matrix", 0) == Matrix.VALUES.value:
                # An element outputs one element of an output per cycle.
                head = groups * max(block["context"], self.p.head_size)
                self.ideal.append(block["heads"] * head)
            case Kind.GEMM | Kind.SOFTMAX if "matrix" in fields or kind is Kind.SOFTMAX:
                self.ideal.append(block["heads"] * groups * block["context"])
            case Kind.GEMM:
                # The passes of all groups, or the words of a tile at one per cycle.
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
        """Return a packed instruction; missing fields are 0."""
        layout: Any = self.p.instruction_layout

        def filled(part: Any, given: dict[str, Any]) -> dict[str, Any]:
            assert set(given) <= {name for name, _field in part}, given
            return {name: np.array([given.get(name, 0)]) for name, _field in part}

        values = filled(layout, {"kind": kind, **fields})
        values["block"] = filled(layout["block"].shape, block)
        return to_integers(pack(layout, values))

    def weigh(self, description: dict[str, Any]) -> None:
        """Add the description of a matrix, and count the bytes that are fetched for it."""

        def rows(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: rows(part) for key, part in value.items()}
            return np.array([value])

        self.matrices += to_integers(pack(self.p.matrix_layout, rows(description)))
        if self.p.biases:
            self.moved["biases"] += description["tiles"] * self.p.head_size * BIAS_BYTES
        self.weights += description["words"] * self.p.head_size
        self.moved["tables"] += description["rows"] * self.p.unpacker.chunk
        packet_bytes = self.p.unpacker.unpacker.packet_bits // 8
        self.moved["packets"] += description["number"] * packet_bytes
