"""A model of a decode step on an NPU, HBM-PIM, Ecco, Pimba, and each step of P3-LLM.

All parameters are those of the paper or of HBM2. The model excludes row changes, refresh, input
writes, and the LM head, which is FP16 in all systems.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

CHANNELS, UNITS = 16, 8
"""Pseudo-channels, and compute units per pseudo-channel."""
COLUMN_BYTES = 32
SHORT_GAP, LONG_GAP = 2.0, 4.0
"""tCCD_S and tCCD_L in ns, at 1 GHz."""
NPU_OPERATIONS = 4 * 128 * 128 * 2
"""Operations/ns: four arrays at 1 GHz."""
SCALED_BITS = 4 + 8 / 128
"""Bits/weight, with the scale of its group."""
CACHE_BITS = 4 + 20 / 128
"""Bits per element of a key or value, with scale and zero point."""
CONTEXT = 4096
BATCHES = (1, 2, 4, 8)
MOST_IN_MEMORY = 8
"""The largest batch whose linear layers P3-LLM multiplies in the memory."""

NORMAL_BANDWIDTH = CHANNELS * COLUMN_BYTES / SHORT_GAP
"""Bytes/ns on the external bus of the memory."""
PIM_BANDWIDTH = CHANNELS * UNITS * COLUMN_BYTES / LONG_GAP
"""Bytes/ns that the compute units in the memory read."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A decoder's dimensions."""

    name: str
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    post_rope: bool
    head_size: int = 128

    @property
    def weights(self) -> int:
        """Number of weights per layer."""
        attention = self.width * self.head_size * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.width * self.feed_forward

    @property
    def keys(self) -> int:
        """Number of key elements per layer and request; equal to that of value elements."""
        return CONTEXT * self.kv_heads * self.head_size

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.heads // self.kv_heads


SHAPES = (
    Shape(
        name="Llama-2-7B", width=4096, heads=32, kv_heads=32, feed_forward=11008, post_rope=False
    ),
    Shape(
        name="Llama-2-13B", width=5120, heads=40, kv_heads=40, feed_forward=13824, post_rope=False
    ),
    Shape(
        name="Llama-3.1-8B", width=4096, heads=32, kv_heads=8, feed_forward=14336, post_rope=True
    ),
    Shape(name="Llama-3.2-3B", width=3072, heads=24, kv_heads=8, feed_forward=8192, post_rope=True),
    Shape(name="Mistral-7B", width=4096, heads=32, kv_heads=8, feed_forward=14336, post_rope=True),
)


@dataclass(frozen=True, kw_only=True)
class Work:
    """Time, traffic and arithmetic of an operator.

    Parameters
    ----------
    ns : float
        Time in ns.
    external, internal : float
        Bytes on the external bus of the memory, and bytes that the units in the memory read.
    outer, inner : float
        Multiply-adds of the NPU, and of the units in the memory.
    """

    ns: float
    external: float = 0.0
    internal: float = 0.0
    outer: float = 0.0
    inner: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        """Return the work of two operators, one after the other."""
        return Work(**{name: part + getattr(other, name) for name, part in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class LayerWork:
    """Work of a layer's linear operators and of its attention."""

    linear: Work
    attention: Work

    @property
    def total(self) -> Work:
        """The work of both parts."""
        return self.linear + self.attention

    @property
    def ns(self) -> float:
        """Time of both parts in ns."""
        return self.total.ns


def npu(products: float, size: float) -> Work:
    """Return the work of `products` on the NPU, bound by its arithmetic or by `size` bytes."""
    ns = max(size / NORMAL_BANDWIDTH, 2 * products / NPU_OPERATIONS)
    return Work(ns=ns, external=size, outer=products)


def in_memory(products: float, size: float, reads: int) -> Work:
    """Return the work of `products` in the memory, which read `size` bytes `reads` times."""
    return Work(ns=reads * size / PIM_BANDWIDTH, internal=reads * size, inner=products)


def quicker(*choices: Work) -> Work:
    """Return the work with the shortest time; ties resolve to the first."""
    return min(choices, key=lambda work: work.ns)


def npu_layer(shape: Shape, batch: int) -> LayerWork:
    """Return the work of a layer's decode step in FP16 on the NPU."""
    cache = 2 * shape.keys * batch
    return LayerWork(
        linear=npu(shape.weights * batch, 2 * shape.weights),
        attention=npu(cache * shape.group, 2 * cache),
    )


def hbm_pim_layer(shape: Shape, batch: int) -> LayerWork:
    """Return the work on HBM-PIM in FP16.

    Each input reads all weights, unless the NPU is faster.
    """
    size, cache = 2 * shape.weights, 2 * shape.keys * batch
    own = npu_layer(shape, batch)
    return LayerWork(
        linear=quicker(in_memory(shape.weights * batch, size, batch), own.linear),
        attention=quicker(
            in_memory(cache * shape.group, 2 * cache, shape.group),
            own.attention,
        ),
    )


def ecco_layer(shape: Shape, batch: int) -> LayerWork:
    """Return the work on Ecco: the NPU in FP16, with a quarter of FP16's bytes on the bus."""
    cache = 2 * shape.keys * batch
    return LayerWork(
        linear=npu(shape.weights * batch, shape.weights / 2),
        attention=npu(cache * shape.group, cache / 2),
    )


def pimba_layer(shape: Shape, batch: int, *, enhanced: bool) -> LayerWork:
    """Return the work on Pimba: a cache of 8 bits, in the memory; each input reads all operands.

    Parameters
    ----------
    shape : Shape
        The model.
    batch : int
        Number of requests.
    enhanced : bool
        Whether weights have 8 bits too and are multiplied in the memory; otherwise they have 16
        and are multiplied by the NPU.
    """
    cache = 2 * shape.keys * batch
    linear = npu_layer(shape, batch).linear
    if enhanced:
        linear = quicker(
            in_memory(shape.weights * batch, shape.weights, batch),
            npu(shape.weights * batch, shape.weights),
        )
    attention = quicker(
        in_memory(cache * shape.group, cache, shape.group), npu(cache * shape.group, cache)
    )
    return LayerWork(linear=linear, attention=attention)


BASELINES: dict[str, Callable[[Shape, int], LayerWork]] = {
    "NPU": npu_layer,
    "HBM-PIM": hbm_pim_layer,
    "Ecco": ecco_layer,
}
"""The systems of Figures 9 and 10."""


def drain_share(inputs: int, group: int, *, free_slots: bool) -> float:
    """Return the share that reads of group sums add to the column reads of a linear layer.

    A group is `group / 4` column reads. Two reads per unit and input, for eight units, take one
    tCCD_S each. With `free_slots`, the free slot of each column read hides one of them.
    """
    columns = group / 4 * LONG_GAP
    reads = 2 * UNITS * inputs * SHORT_GAP
    if free_slots:
        # One slot per column read is free for a transfer.
        reads = max(0.0, reads - group / 4 * SHORT_GAP)
    return reads / columns


def p3llm_layer(
    shape: Shape,
    batch: int,
    *,
    pump: bool = True,
    probabilities: bool = True,
    drains: bool = False,
    free_slots: bool = False,
) -> LayerWork:
    """Return the work of a layer's decode step in W4A8KV4 on PIM.

    Parameters
    ----------
    shape : Shape
        The model.
    batch : int
        Number of requests.
    pump : bool
        Whether each column read is used for two inputs.
    probabilities : bool
        Whether probabilities are FP8, so that P.V is computed in the memory.
    drains : bool
        Whether to include the reads of group sums.
    free_slots : bool
        Whether these reads use the free tCCD_S slots.
    """
    together = 2 if pump else 1
    weights = shape.weights * SCALED_BITS / 8
    inputs = min(batch, together)
    share = drain_share(inputs, 128, free_slots=free_slots) if drains else 0.0
    linear = in_memory(shape.weights * batch, weights, -(-batch // together))
    linear = replace(linear, ns=linear.ns * (1 + share))
    if batch > MOST_IN_MEMORY:
        linear = npu(shape.weights * batch, weights)
    cache = shape.keys * CACHE_BITS / 8 * batch
    products = shape.keys * shape.group * batch
    inside = in_memory(products, cache, -(-shape.group // together))
    outside = npu(products, cache)
    keys = quicker(inside, outside) if shape.post_rope else outside
    values = quicker(inside, outside) if probabilities else outside
    return LayerWork(linear=linear, attention=keys + values)


def mean_speedup(baseline: str, batches: tuple[int, ...] = BATCHES, **options: bool) -> float:
    """Return the mean ratio of a baseline's time to P3-LLM's, over models and batches."""
    slow = BASELINES[baseline]
    ratios = [
        slow(shape, batch).ns / p3llm_layer(shape, batch, **options).ns
        for shape in SHAPES
        for batch in batches
    ]
    return sum(ratios) / len(ratios)


def peak_ratio() -> float:
    """Return the ratio of peak throughputs of P3-LLM and HBM-PIM."""
    return (64 / SHORT_GAP) / (16 / LONG_GAP)
