"""Programs of decoder layers: instructions, memory images, and expected results."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from golden.meadow.layer_quantisation import IntegerLayer
from golden.meadow.meadow import run_layer
from golden.meadow.packing.weight_packer import Level
from golden.meadow.tile.hybrid_tile import tile_of
from golden.meadow.tile.requantisation import Integers
from golden.meadow.whole_model import IntegerVocabulary, vocabulary_sums
from golden.meadow.wilu.weight_unpacker import PackedWeights, of_weights, unpack_weights
from hdl.meadow.control.program import Program
from hdl.meadow.parameters import MeadowParameters
from testbenches.meadow.memory_images import MemoryImages
from testbenches.meadow.traffic import Traffic, traffic_of
from testbenches.meadow.wilu.packed_work import corrupted


class LayerProgram:
    """A program, and the results of the golden model for it.

    Parameters
    ----------
    p : MeadowParameters
        Dimensions of the accelerator.
    layers : Sequence[IntegerLayer]
        Layers in memory.
    vocabulary : IntegerVocabulary, optional
        LM head.
    level : Level
        Level of packing of the weights.
    skip : bool
        Whether attention skips keys that no token of a group attends to.
    rng : numpy.random.Generator, optional
        Generator of the base addresses of the memories, as in `MemoryImages`, and of the place of
        each block in the activation memory.

    Members
    -------
    images : MemoryImages
        The memories.
    code : Program
        Instructions and descriptions of matrices.
    expected : list[tuple[int, numpy.ndarray]]
        Address and expected values of each block of hidden states at the end.
    predictions : list[tuple[int, int]]
        Expected tokens and their logits.
    caches : list[tuple]
        Expected keys and values of each layer.
    errors : int
        Expected error flags.
    ends : int
        Number of predictions that are output.
    """

    def __init__(
        self,
        p: MeadowParameters,
        layers: Sequence[IntegerLayer],
        *,
        vocabulary: IntegerVocabulary | None = None,
        level: Level = Level.REINDEXED,
        skip: bool = False,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.p, self.layers, self.vocabulary, self.rng = p, list(layers), vocabulary, rng
        self.errors = self.ends = 0
        self.images = MemoryImages(p, level, rng)
        self.code = Program(p, skip=skip, spacing=self.images.cache.spacing)
        self.expected: list[tuple[int, Integers]] = []
        self.predictions: list[tuple[int, int]] = []
        none = np.zeros((p.kv_heads, 0, p.head_size), np.int64)
        self.caches = [(none, none) for _ in layers]
        self.places = [self.images.add_layer(layer) for layer in layers]
        if vocabulary is not None:
            self.vocabulary_place = self.images.add_vocabulary(vocabulary)

    @property
    def traffic(self) -> Traffic:
        """Expected traffic of the program so far."""
        return traffic_of(self.code)

    def corrupt(self, number: int, name: str, rng: np.random.Generator, how: str) -> None:
        """Corrupt the packets of a matrix; the golden model uses the weights that they give."""
        p, description = self.p, self.places[number].matrices[name]
        parts = self.images.packed(self.layers[number].matrices[name])
        given = [of_weights(part) for part in parts]
        # The packets of one unpacker are corrupted; all unpackers have the same description.
        place = int(rng.integers(len(given)))
        bad = corrupted(p.unpacker.unpacker, given[place].packed, rng, how)
        description["packing"]["packed"] = bad.description(p.unpacker.unpacker.id_bits)
        weights = np.zeros((description["words"], len(given), p.head_size), np.int64)
        for part, one in enumerate(given):
            packets = bad.packets if part == place else one.packed.packets
            description["packet_address"][part] = self.images.packets.add(
                packets.astype("<u8").view(np.uint8)
            )
            description["packet_count"][part] = len(packets)
            read = PackedWeights(packed=replace(bad, packets=packets), table=one.table)
            found = unpack_weights(read, p.unpacker)
            for bit, wrong in enumerate([*found.unpacked.result.values(), found.table]):
                self.errors |= int(wrong) << bit
            # Missing weights are 0, surplus ones are discarded.
            own = np.zeros(weights[:, part].size, np.int64)
            chunks = found.chunks.reshape(-1)[: len(own)]
            own[: len(chunks)] = chunks
            weights[:, part] = own.reshape(-1, p.head_size)
        words = description["tile_words"] * len(given)
        tiles = [tile_of(tile, p.tile) for tile in weights.reshape(-1, words, p.head_size)]
        matrices = self.layers[number].matrices | {name: np.stack(tiles)}
        self.layers[number] = replace(self.layers[number], matrices=matrices)

    def fill_cache(self, caches: Sequence[tuple[Integers, Integers]]) -> None:
        """Set the keys and values of each layer that are cached before the program begins."""
        p = self.p
        rows = np.zeros((2 * len(caches), p.kv_heads, p.slots, p.head_size), np.int8)
        for layer, kept in enumerate(caches):
            for part, heads in enumerate(kept):
                rows[2 * layer + part, :, : heads.shape[1]] = heads
        self.images.cache.parts = [rows.view(np.uint8).reshape(-1, p.head_size)]
        self.caches = list(caches)

    def end(self) -> None:
        """Add a prediction that marks the completion of all earlier instructions."""
        self.code.end()
        self.ends += 1

    def add_block(
        self,
        states: Integers,
        layers: Sequence[int],
        *,
        predict: bool = False,
        gemm: int = 0,
    ) -> None:
        """Add a block of tokens that passes through layers, from memory to memory.

        Attention uses TPHS, or GEMM with probabilities of `gemm` bytes.
        """
        p, tokens, code = self.p, len(states), self.code
        if self.rng is not None:
            code.base = int(self.rng.integers((p.most_tokens - tokens) * p.state_words + 1))
        rows = self.images.add_rows(tokens, gemm) if gemm else None
        code.load(tokens, self.images.add_vector(states))
        for number in layers:
            past = self.caches[number][0].shape[1]
            layer = self.layers[number]
            code.layer(layer, self.places[number], past=past, tokens=tokens, rows=rows)
            result = run_layer(layer, states, self.caches[number], p)
            states, self.caches[number] = result.states, (result.keys, result.values)
        self.expected.append((self.images.add_vector(np.zeros_like(states)), states))
        code.store(tokens, self.expected[-1][0])
        if predict and self.vocabulary is not None:
            epsilon = self.vocabulary.epsilon
            code.predict(self.vocabulary_place, tokens=tokens, epsilon=epsilon)
            self.ends += 1
            sums = vocabulary_sums(self.vocabulary, states[-1:], p)[0]
            token = int(sums.argmax())
            self.predictions.append((token, int(sums[token])))
