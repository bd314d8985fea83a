"""Rooflines and a model of decode speed for an NPU, HBM-PIM, and each step of P3-LLM.

All parameters are those of the paper or of HBM2. The model excludes row changes, refresh, input
writes, and the LM head, which is FP16 in all systems.
"""

from dataclasses import dataclass

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


def npu(operations: float, size: float) -> float:
    """Return the time of an operator on the NPU in ns, bound by memory or by arithmetic."""
    return max(size / NORMAL_BANDWIDTH, operations / NPU_OPERATIONS)


def npu_layer(shape: Shape, batch: int) -> float:
    """Return the time of a layer's decode step in FP16 on the NPU, in ns."""
    linear = npu(2 * shape.weights * batch, 2 * shape.weights)
    cache = 2 * shape.keys * batch
    return linear + npu(2 * cache * shape.group, 2 * cache)


def hbm_pim_layer(shape: Shape, batch: int) -> float:
    """Return the time on HBM-PIM in FP16, in ns.

    Each input reads all weights, unless the NPU is faster.
    """
    linear = min(
        2 * shape.weights * batch / PIM_BANDWIDTH,
        npu(2 * shape.weights * batch, 2 * shape.weights),
    )
    cache = 2 * shape.keys * batch
    attention = min(
        2 * cache * shape.group / PIM_BANDWIDTH, npu(2 * cache * shape.group, 2 * cache)
    )
    return linear + attention


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
) -> float:
    """Return the time of a layer's decode step in W4A8KV4 on PIM, in ns.

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
    linear = -(-batch // together) * weights / PIM_BANDWIDTH * (1 + share)
    if batch > 8:
        linear = npu(2 * shape.weights * batch, weights)
    cache = shape.keys * CACHE_BITS / 8 * batch
    reads = -(-shape.group // together)
    in_memory = cache * reads / PIM_BANDWIDTH
    outside = npu(2 * shape.keys * shape.group * batch, cache)
    keys = min(in_memory, outside) if shape.post_rope else outside
    values = min(in_memory, outside) if probabilities else outside
    return linear + keys + values


def mean_speedup(baseline: str, batches: tuple[int, ...] = BATCHES, **options: bool) -> float:
    """Return the mean ratio of a baseline's time to P3-LLM's, over models and batches."""
    slow = {"NPU": npu_layer, "HBM-PIM": hbm_pim_layer}[baseline]
    ratios = [
        slow(shape, batch) / p3llm_layer(shape, batch, **options)
        for shape in SHAPES
        for batch in batches
    ]
    return sum(ratios) / len(ratios)


def peak_ratio() -> float:
    """Return the ratio of peak throughputs of P3-LLM and HBM-PIM."""
    return (64 / SHORT_GAP) / (16 / LONG_GAP)
