"""Instructions of decoder layers, the memory that they work on, and what must come of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.meadow.attention_pipeline import weight_words
from golden.meadow.layer_quantisation import IntegerLayer
from golden.meadow.meadow import run_layer
from golden.meadow.packing.chunks import encode, reindexed
from golden.meadow.packing.weight_packer import Level, PackedMatrix, pack_encoded, pack_matrix
from golden.meadow.tile.requantisation import Integers
from golden.meadow.wilu.weight_unpacker import PackedWeights, of_weights, unpack_weights
from hdl.meadow.attention_parameters import HALVES, AttentionParameters
from hdl.meadow.parameters import Combine, Kind, MeadowParameters
from testbenches.meadow.wilu.packed_work import damaged
from testbenches.packing import pack, to_integers

Octets = NDArray[np.uint8]
STATE_OCTETS = 3


def octets_of(values: Integers, octets: int) -> Octets:
    """Return the low octets of integers, side by side along the last axis."""
    low = values.astype("<i8")[..., np.newaxis].view(np.uint8)[..., :octets]
    return low.reshape(*values.shape[:-1], -1)


class Image:
    """A memory that is filled from its start.

    Parameters
    ----------
    octets : int
        Of a word.
    """

    def __init__(self, octets: int) -> None:
        self.parts: list[Octets] = []
        self.octets, self.size = octets, 0

    def add(self, rows: Octets) -> int:
        """Add words; return the first one's address."""
        first, self.size = self.size, self.size + len(rows)
        self.parts.append(rows.reshape(-1, self.octets))
        return first

    @property
    def words(self) -> Octets:
        """The whole memory, of at least one word."""
        return np.concatenate([*self.parts, np.zeros((1, self.octets), np.uint8)])


def tile_of(words: Integers, p: AttentionParameters) -> Integers:
    """Return a tile [elements, size]: the inverse of `weight_words`."""
    pairs = words.reshape(p.size // HALVES, -1, HALVES, p.slices, p.size)
    return pairs.transpose(1, 3, 4, 0, 2).reshape(-1, p.size)


class LayerProgram:
    """A program, and the golden model beside it.

    Parameters
    ----------
    p : MeadowParameters
        Dimensions.
    layers : Sequence[IntegerLayer]
        What there is in memory.
    level : Level
        How the weights are packed.
    skip : bool
        Whether attention leaves out what no token of a group sees.

    Members
    -------
    instructions, matrices : list[int]
        Packed.
    expected : list[tuple[int, numpy.ndarray]]
        Where each block of hidden states must stand in the end.
    caches : list[tuple]
        Keys and values of each layer as they must be.
    moved : dict[str, int]
        Octets that must cross each port.
    weights : int
        Octets of the weights as they are unpacked.
    ideal : list[int]
        For each instruction the cycles that its work takes: a lane's, or its weights' way in.
    damage : int
        What must be found wrong.
    """

    def __init__(
        self,
        p: MeadowParameters,
        layers: Sequence[IntegerLayer],
        *,
        level: Level = Level.REINDEXED,
        skip: bool = False,
    ) -> None:
        self.p, self.layers, self.skip = p, list(layers), int(skip)
        self.damage = self.weights = 0
        self.ideal: list[int] = []
        # A matrix of a few hundred weights would never be smaller packed.
        self.forced = p.head_size < 64
        size = p.head_size
        self.vectors, self.cache = Image(STATE_OCTETS * size), Image(size)
        self.tables = Image(p.unpacker.chunk)
        self.packets = Image(p.unpacker.unpacker.packet_bits // 8)
        self.instructions: list[int] = []
        self.matrices: list[int] = []
        self.expected: list[tuple[int, Integers]] = []
        none = np.zeros((p.kv_heads, 0, size), np.int64)
        self.caches = [(none, none) for _ in layers]
        self.moved = dict.fromkeys(
            ("vectors", "states", "cache", "written", "tables", "packets"), 0
        )
        self.packed = [self._pack(layer, level) for layer in layers]
        self._places = [self._place(layer) for layer in layers]
        self._matrices = [
            {name: self._describe(one, layer.matrices[name]) for name, one in packed.items()}
            for layer, packed in zip(layers, self.packed, strict=True)
        ]

    def _pack(self, layer: IntegerLayer, level: Level) -> dict[str, PackedMatrix]:
        """Pack a layer's matrices, each as the pipeline wants its words."""
        packed = {}
        for name, tiles in layer.matrices.items():
            words = np.concatenate([weight_words(tile, self.p.attention) for tile in tiles])
            unpacker = self.p.unpacker
            how = {"chunk": unpacker.chunk, "packet_bits": unpacker.unpacker.packet_bits}
            encoded = encode(words, unpacker.chunk)
            if level in (Level.REINDEXED, Level.CLASSES):
                encoded = reindexed(encoded)
            if level is Level.RAW or len(encoded.unique) > unpacker.entries:
                packed[name] = pack_matrix(words, Level.RAW, **how)
            elif self.forced:
                bits = unpacker.unpacker.packet_bits
                packed[name] = pack_encoded(encoded, words.shape, level, bits)
            else:
                packed[name] = pack_matrix(words, level, **how)
        return packed

    def _place(self, layer: IntegerLayer) -> dict[str, int]:
        """Put norms, exponentials and room for the cache into memory."""
        p, size = self.p, self.p.head_size
        vectors = {"first": layer.norms[0], "second": layer.norms[1], "table": layer.table}
        places = {
            name: self.vectors.add(octets_of(vector.reshape(-1, size), STATE_OCTETS))
            for name, vector in vectors.items()
        }
        room = np.zeros((p.kv_heads * p.features, size), np.uint8)
        return places | {name: self.cache.add(room) for name in ("keys", "values")}

    def _describe(self, one: PackedMatrix, tiles: Integers) -> dict[str, Any]:
        """Put a matrix into memory; return what is told of it."""
        given = of_weights(one)
        rows = np.zeros((0, self.p.unpacker.chunk), np.int8) if given.table is None else given.table
        words = tiles.size // self.p.head_size
        return {
            "packing": {
                "packed": given.packed.told(self.p.unpacker.unpacker.id_bits),
                "bypass": int(given.table is None),
            },
            "table": self.tables.add(rows.view(np.uint8)),
            "rows": len(rows),
            "packets": self.packets.add(one.packets.astype("<u8").view(np.uint8)),
            "number": len(one.packets),
            "words": words,
            "tile": words // len(tiles),
        }

    def harm(self, number: int, name: str, rng: np.random.Generator, how: str) -> None:
        """Damage a matrix's packets; the model has what the unpacker makes of them."""
        p, told = self.p, self._matrices[number][name]
        given = of_weights(self.packed[number][name])
        bad = PackedWeights(
            packed=damaged(p.unpacker.unpacker, given.packed, rng, how), table=given.table
        )
        told["packing"]["packed"] = bad.packed.told(p.unpacker.unpacker.id_bits)
        told["packets"] = self.packets.add(bad.packed.packets.astype("<u8").view(np.uint8))
        told["number"] = len(bad.packed.packets)
        found = unpack_weights(bad, p.unpacker)
        for place, wrong in enumerate([*found.unpacked.result.values(), found.table]):
            self.damage |= int(wrong) << place
        # What lacks is 0, what is too much is dropped.
        weights = np.zeros(told["words"] * p.head_size, np.int64)
        chunks = found.chunks.reshape(-1)[: len(weights)]
        weights[: len(chunks)] = chunks
        tiles = [
            tile_of(words, p.attention) for words in weights.reshape(-1, told["tile"], p.head_size)
        ]
        matrices = self.layers[number].matrices | {name: np.stack(tiles)}
        self.layers[number] = replace(self.layers[number], matrices=matrices)

    def add_block(self, states: Integers, layers: Sequence[int]) -> None:
        """Take a block of tokens through layers, from the memory to the memory."""
        p, tokens = self.p, len(states)
        rows = octets_of(states.reshape(-1, p.head_size), STATE_OCTETS)
        whole = {"block": {"tokens": tokens}, "words": p.state_words, "stride": p.state_words}
        self._instruct(Kind.LOAD, vectors=self.vectors.add(rows), **whole)
        for number in layers:
            self._layer(number, tokens)
            result = run_layer(self.layers[number], states, self.caches[number], p)
            states, self.caches[number] = result.states, (result.keys, result.values)
        self.expected.append((self.vectors.add(np.zeros_like(rows)), states))
        self._instruct(Kind.STORE, vectors=self.expected[-1][0], **whole)
        self.moved["vectors"] += rows.size
        self.moved["states"] += rows.size

    def _layer(self, number: int, tokens: int) -> None:
        """Add a layer's instructions, in whose order the weights come."""
        p, layer, places = self.p, self.layers[number], self._places[number]
        past = self.caches[number][0].shape[1]
        state, inner = p.state_words, p.feed_forward_words
        # States, what is normalised, and what is wider.
        at_norm, at_wide = tokens * state, 2 * tokens * state
        short = {"source": at_norm, "words": state}
        norm = {"target": at_norm, "words": state, "stride": state, "epsilon": layer.epsilon}
        cached = {"spacing": p.features, "shared": p.kv_heads}
        wide = {"target": at_wide, "stride": inner}
        sizes = {"tokens": tokens, "context": past + tokens, "chunks": state // p.slices}

        def gemm(name: str, heads: int, *, rotate: int = 0, **fields: Any) -> None:
            block = sizes | {"heads": heads, "members": 1, "rotate": rotate}
            block |= {"chunks": fields["words"] // p.slices, "wide": int("cached" not in fields)}
            block |= self._scales(layer, query=name)
            lift = layer.lifts.get(name, 0)
            self._instruct(Kind.GEMM, block=block, lift=lift, **fields)
            self._weights(number, name)

        self._norm(tokens, vectors=places["first"], **norm)
        for name in ("key", "value"):
            cells = {"cached": 1, "keys": places[f"{name}s"] + past}
            gemm(name, p.kv_heads, rotate=int(name == "key"), **short, **cells, **cached)
        self.moved["written"] += 2 * p.kv_heads * tokens * p.head_size
        members = p.heads // p.kv_heads
        attention = sizes | {"heads": p.heads, "members": members, "rotate": 1}
        attention |= {"causal": 1, "skip": self.skip}
        attention |= self._scales(layer, query="query", score="score", output="attended")
        where = {name: places[name] for name in ("keys", "values")} | {"vectors": places["table"]}
        heads = {"target": at_wide, "stride": state}
        self._instruct(Kind.TPHS, block=attention, **short, **where, **cached, **heads)
        self._weights(number, "query")
        self.moved["vectors"] += p.table_words * self.vectors.octets
        self.moved["cache"] += 2 * p.kv_heads * (past + tokens) * p.head_size
        adds = {"target": 0, "stride": state, "combine": Combine.ADD.value}
        gemm("output", state, source=at_wide, words=state, **adds)
        self._norm(tokens, vectors=places["second"], **norm)
        gemm("gate", inner, **short, **wide)
        gemm("up", inner, **short, **wide, combine=Combine.GATE.value)
        gemm("down", state, source=at_wide, words=inner, **adds)

    @property
    def fetched(self) -> int:
        """Octets of packets and unique matrices."""
        return self.moved["packets"] + self.moved["tables"]

    def _norm(self, tokens: int, **fields: Any) -> None:
        self._instruct(Kind.NORM, block={"tokens": tokens}, **fields)
        self.moved["vectors"] += self.p.state_words * self.vectors.octets

    def _scales(self, layer: IntegerLayer, **names: str) -> dict[str, int]:
        fields = {}
        for port, name in names.items():
            fields[f"{port}_scale"], fields[f"{port}_shift"] = layer.factors[name]
        return fields

    def add_unknown(self) -> None:
        """Add an instruction of no kind, which does nothing."""
        last = max(kind.value for kind in Kind)
        self.instructions += self._packed(last + 1, {}, {})

    def _instruct(self, kind: Kind, *, block: dict[str, int], **fields: int) -> None:
        """Add an instruction, and the cycles of its work."""
        tokens = block["tokens"]
        groups = -(-tokens // self.p.lanes)
        steps = self.p.head_size // HALVES * block.get("chunks", 0)
        match kind:
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

    def _weights(self, number: int, name: str) -> None:
        told = self._matrices[number][name]

        def rows(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: rows(part) for key, part in value.items()}
            return np.array([value])

        self.matrices += to_integers(pack(self.p.matrix_layout, rows(told)))
        self.weights += told["words"] * self.p.head_size
        self.moved["tables"] += told["rows"] * self.tables.octets
        self.moved["packets"] += told["number"] * self.packets.octets
