"""Models for P3-LLM's system: random layers of any dimensions, and those of SmolLM2."""

from collections.abc import Callable, Sequence

import numpy as np

from golden.arith.float_values import codes
from golden.llm import open_trace
from golden.llm.trace import Trace
from golden.nonlinear.rotary_embedding import paired
from golden.p3llm.dram_image import layer_image, vocabulary_image
from golden.p3llm.dram_layout import PE_LANES
from golden.p3llm.p3llm import Cache, Matrix, Vocabulary, Weights, decode
from hdl.p3llm.matrix_place import MatrixPlace
from hdl.p3llm.parameters import P3llmParameters

TOKENS = 640
LAYERS = (0, 14, 29)


def real_trace() -> Trace:
    """Return SmolLM2's tensors of prose."""
    return open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def real_weights(trace: Trace, layer: int, p: P3llmParameters) -> Weights:
    """Quantise a layer, with rows of queries and keys ordered so that rotated pairs adjoin."""

    def rows(name: str) -> np.ndarray:
        weight = trace.linear(layer, name).weight
        if name in ("q_proj", "k_proj"):
            weight = weight[paired(np.arange(len(weight)).reshape(-1, trace.head_size)).reshape(-1)]
        return weight

    def matrix(*names: str) -> Matrix:
        weights = np.concatenate([rows(name) for name in names])
        return Matrix.quantised(weights, p.group_weights, elements=p.elements)

    return Weights(
        qkv=matrix("k_proj", "v_proj", "q_proj"),
        output=matrix("o_proj"),
        gate_up=matrix("gate_proj", "up_proj"),
        down=matrix("down_proj"),
        norms=(trace.norm(layer, "input"), trace.norm(layer, "post_attention")),
    )


def real_cache(trace: Trace, layer: int, tokens: int, p: P3llmParameters) -> Cache:
    """Quantise the keys and values of a prompt; with `pre_rope`, keys before the rotation."""
    heads = [trace.attention_trace(layer, head) for head in range(0, trace.heads, p.group_size)]
    name = "k_before_rope" if p.pre_rope else "k"
    keys = np.stack([codes(paired(getattr(head, name)[:tokens])) for head in heads])
    return Cache.of_prompt(keys, np.stack([codes(head.v[:tokens]) for head in heads]))


def drawn_weights(p: P3llmParameters, rng: np.random.Generator) -> Weights:
    """Generate a layer of any dimensions."""

    def matrix(outputs: int, inputs: int) -> Matrix:
        numbers = rng.normal(size=(outputs, inputs)) / np.sqrt(inputs)
        return Matrix.quantised(numbers.astype(np.float32), p.group_weights, elements=p.elements)

    norms = rng.uniform(0.5, 1.5, (2, p.hidden_size))
    return Weights(
        **{name: matrix(place.outputs, place.inputs) for name, place in p.matrices.items()},
        norms=(norms[0], norms[1]),
    )


def drawn_codes(p: P3llmParameters, rng: np.random.Generator) -> Weights:
    """Generate a layer's codes and scales in the format of the banks, for large dimensions.

    All codes, special values and 8-bit scales occur. A row's outputs have about the magnitude of
    the inputs: a weight is 3 units, its scale half of the largest.
    """

    def matrix(place: MatrixPlace) -> Matrix:
        groups = (place.outputs, place.groups)
        size = (place.outputs // p.elements, place.inputs // PE_LANES, 2 * p.elements)
        rows = rng.uniform(0.5, 1.5, place.outputs) / (3 * 128 * np.sqrt(place.inputs))
        return Matrix(
            columns=rng.integers(0, 256, size, np.uint8),
            selects=rng.integers(0, 4, groups, np.uint8),
            steps=rng.integers(1, 256, groups, np.uint8),
            scales=codes(rows),
        )

    norms = rng.uniform(0.5, 1.5, (2, p.hidden_size))
    return Weights(
        **{name: matrix(place) for name, place in p.matrices.items()}, norms=(norms[0], norms[1])
    )


def drawn_vocabulary(p: P3llmParameters, rng: np.random.Generator) -> Vocabulary:
    """Generate a norm and an LM head in which every token ties with adjacent and distant ones."""
    different = 1 + p.vocabulary_size // 5
    rows = rng.normal(size=(different, p.hidden_size)).astype(np.float32)
    equals = np.arange(p.vocabulary_size) // 2 % different
    return Vocabulary.quantised(rng.uniform(0.5, 1.5, p.hidden_size), rows[equals], p)


def drawn_cache(
    p: P3llmParameters,
    tokens: int,
    rng: np.random.Generator,
    *,
    largest: float = 2,
    binades: int = 1,
) -> Cache:
    """Generate keys and values of some tokens, with some channels of keys larger than others.

    Values of later tokens are larger, so that an omission of the last scales is visible. The values
    of heads differ by powers of two, within `binades` binades.
    """
    size = (p.kv_heads, tokens, p.head_size)
    spread = np.exp(rng.normal(size=(p.kv_heads, 1, p.head_size)))
    keys, vectors = rng.normal(size=size) * spread, rng.normal(size=size)
    vectors *= np.linspace(0.5, largest, tokens)[:, np.newaxis]
    vectors /= np.exp2(rng.integers(0, binades, (p.kv_heads, 1, 1)))
    keys, vectors = (one.astype(np.float16).view(np.uint16) for one in (keys, vectors))
    return Cache.of_prompt(keys, vectors)


class Model:
    """Layers, caches of the requests, and the corresponding bytes in the banks.

    The cached tokens are followed by those of an older text.

    Parameters
    ----------
    p : P3llmParameters
        Parameters of the system.
    weights, caches : list
        Weights of the layers; per layer one cache per request.
    rng : numpy.random.Generator
        Source of the random older text.
    """

    def __init__(
        self,
        p: P3llmParameters,
        weights: list[Weights],
        caches: list[list[Cache]],
        rng: np.random.Generator,
    ) -> None:
        self.p, self.weights, self.caches = p, weights, caches
        # Their scales are larger, so that reading them changes the result.
        self.older = [[drawn_cache(p, p.slots, rng, largest=16) for _ in layer] for layer in caches]
        self.vocabulary = drawn_vocabulary(p, rng) if p.vocabulary_size else None

    @classmethod
    def random(
        cls,
        p: P3llmParameters,
        tokens: Sequence[int],
        rng: np.random.Generator,
        layer: Callable[[P3llmParameters, np.random.Generator], Weights] = drawn_weights,
        binades: int = 1,
    ) -> "Model":
        """Generate all layers by `layer`; each request has the given number of cached tokens."""
        weights = [layer(p, rng) for _ in range(p.layers)]
        caches = [
            [drawn_cache(p, count, rng, binades=binades) for count in tokens]
            for _ in range(p.layers)
        ]
        return cls(p, weights, caches, rng)

    @classmethod
    def real(cls, p: P3llmParameters, tokens: Sequence[int], rng: np.random.Generator) -> "Model":
        """Return layers of SmolLM2 after prompts of real text, all with the same beginning."""
        trace, layers = real_trace(), LAYERS[: p.layers]
        weights = [real_weights(trace, layer, p) for layer in layers]
        caches = [[real_cache(trace, layer, count, p) for count in tokens] for layer in layers]
        return cls(p, weights, caches, rng)

    @property
    def image(self) -> np.ndarray:
        """All bytes of the banks."""
        layers = []
        for weights, caches, older in zip(self.weights, self.caches, self.older, strict=True):
            full = [filled(cache, text) for cache, text in zip(caches, older, strict=True)]
            layers.append(layer_image(self.p, weights, *full))
        if self.vocabulary:
            layers.append(vocabulary_image(self.p, self.vocabulary))
        return np.concatenate(layers)

    def step(self, layer: int, states: np.ndarray, positions: Sequence[int]) -> np.ndarray:
        """Return the hidden states [requests, width] after a layer, and append to the caches.

        Each request is processed by itself.
        """
        caches = self.caches[layer]
        steps = [
            decode(self.weights[layer], cache, state, position, self.p)
            for cache, state, position in zip(caches, states, positions, strict=True)
        ]
        self.caches[layer] = [cache for _state, cache in steps]
        return np.stack([state for state, _cache in steps])


def filled(cache: Cache, older: Cache) -> Cache:
    """Return a cache with an older text after its tokens."""
    tokens = cache.keys.shape[1]
    parts = {
        name: np.concatenate([part, getattr(older, name)[:, tokens:]], axis=1)
        for name, part in vars(cache).items()
        if name != "factors"
    }
    return Cache(**parts, factors=cache.factors)
