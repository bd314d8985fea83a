"""Tile passes for the systolic array: from SmolLM2's tensors, or random."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from golden.arith.int_symmetric import quantise
from golden.kelle.array.systolic_array import Integers, TilePass, tiles
from golden.llm import Trace
from hdl.kelle.array.systolic_array import SystolicArrayParameters
from testbenches.packing import pack, to_integers


def activation_bits(p: SystolicArrayParameters) -> int:
    """Bits of an element of a vector."""
    return p.element_shape.width


def integers(values: NDArray[np.floating], bits: int, axis: int | None = None) -> Integers:
    """Quantise symmetrically, with one scale, or with one scale per vector along an axis."""
    return quantise(values, bits=bits, axis=axis)[0].astype(np.int64)


def projection(
    trace: Trace, layer: int, name: str, p: SystolicArrayParameters, vectors: int
) -> tuple[Integers, Integers]:
    """Return INT8 weights [inputs, outputs], one scale per output, and quantised activations."""
    linear = trace.linear(layer, name)
    weights = integers(linear.weight, 8, axis=1).T
    return weights, integers(linear.inputs, activation_bits(p))[:vectors]


def scores_operands(
    trace: Trace, layer: int, kv_head: int, p: SystolicArrayParameters, tokens: int
) -> tuple[Integers, Integers]:
    """Return keys [tokens, 64] and the last token's queries [heads, 64] of a key/value head."""
    group = trace.heads // trace.kv_heads
    heads = [trace.attention_trace(layer, kv_head * group + head) for head in range(group)]
    queries = np.stack([head.q[tokens - 1] for head in heads])
    return integers(heads[0].k[:tokens], 16), integers(queries, activation_bits(p))


def values_operands(
    trace: Trace, layer: int, kv_head: int, p: SystolicArrayParameters, tokens: int
) -> tuple[Integers, Integers]:
    """Return values [tokens, 64] and the last token's attention weights [heads, tokens]."""
    group = trace.heads // trace.kv_heads
    heads = [trace.attention_trace(layer, kv_head * group + head) for head in range(group)]
    weights = np.stack([head.probabilities[tokens - 1, :tokens] for head in heads])
    return integers(heads[0].v[:tokens], 16), integers(weights, activation_bits(p))


def passes_of(
    operands: tuple[Integers, Integers],
    p: SystolicArrayParameters,
    *,
    transposed: bool = False,
    wide: bool = False,
    outputs: int | None = None,
) -> Iterator[TilePass]:
    """Split a product into passes, for all or only for its first output tiles."""
    stationary, moving = operands
    for number, (_, passes) in enumerate(
        tiles(stationary, moving, p, transposed=transposed, wide=wide)
    ):
        if outputs is None or number < outputs:
            yield from passes


def random_passes(
    rng: np.random.Generator, p: SystolicArrayParameters, count: int
) -> Iterator[TilePass]:
    """Generate tiles and vectors of few distinct values at the range limits, and of all values."""
    low, high = -(1 << activation_bits(p) - 1), (1 << activation_bits(p) - 1) - 1
    ends = np.array([low, low + 1, -256, -129, -1, 0, 1, 127, 128, 255, high])
    ends = ends[(ends >= low) & (ends <= high)]
    for _ in range(count):
        unsigned = bool(rng.integers(2))
        first, last = (0, 255) if unsigned else (-128, 127)
        shape = (int(rng.choice([1, 2, 3, p.rows])), p.rows)
        weights = rng.integers(first, last + 1, (p.rows, p.rows))
        vectors = rng.integers(low, high + 1, shape)
        match rng.integers(4):
            case 0:
                weights = np.full_like(weights, rng.choice([first, last]))
                vectors = np.full_like(vectors, rng.choice([low, high]))
            case 1:
                weights = rng.choice([first, last, 0, 1, 127], weights.shape)
                vectors = rng.choice(ends, shape)
        yield TilePass(weights, vectors, bool(rng.integers(2)), unsigned)


def few_digits(
    rng: np.random.Generator, p: SystolicArrayParameters
) -> tuple[TilePass, tuple[int, int]]:
    """Generate a pass whose sums have two digits, and a factor that makes the upper one a half.

    Then the lower one alone decides on a tie, wherever it is.
    """
    up, down = (int(rng.integers(low, high)) for low, high in ((0, 7), (0, activation_bits(p) - 1)))
    vectors = np.zeros((p.rows, p.rows), np.int64)
    lower = np.where(rng.random(p.rows) < 0.8, 1 << rng.integers(0, down + 1, p.rows), 0)
    digits = ((1 << down) | lower) * rng.choice([1, -1], p.rows)
    vectors[np.arange(p.rows), rng.integers(0, p.rows, p.rows)] = digits
    # Only the largest scales and upper bytes produce the upper digits of products.
    item = TilePass(np.full((p.rows, p.rows), 1 << up), vectors, high=bool(rng.random() < 0.75))
    scale = int(rng.choice(np.array([15, int(rng.integers(0, 16))]), p=[0.7, 0.3]))
    return item, (1 << scale, up + down + 8 * item.high + scale + int(rng.choice([0, 1, 1, 1])))


def pack_weights(tile: Integers, p: SystolicArrayParameters) -> list[int]:
    """Pack a tile as the beats of its load."""
    beats = (tile & 255).reshape(p.bands, p.load_cycles, p.rows).swapaxes(0, 1)
    return to_integers(pack(p.weights_layout, beats))


def pack_vectors(item: TilePass, tags: Integers, p: SystolicArrayParameters) -> list[int]:
    """Pack the vectors of a pass; the first one has the swap."""
    count = len(item.vectors)
    fields = {
        "elements": item.vectors,
        "transposed": np.full(count, int(item.transposed)),
        "swap": (np.arange(count) == 0).astype(int),
        "unsigned_weights": np.full(count, int(item.unsigned_weights)),
        "tag": tags,
    }
    return to_integers(pack(p.vector_layout, fields))
