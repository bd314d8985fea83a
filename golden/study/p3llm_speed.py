"""Rooflines and a model of decoding speed: an NPU, HBM-PIM, and P3-LLM's steps from there.

Every figure is that of the paper or of HBM2. What the model leaves out: row changes, refresh, input
writes, and the language model's head, which stays in FP16 everywhere.
"""

from dataclasses import dataclass

CHANNELS, UNITS = 16, 8
"""Pseudo-channels, and compute units in each."""
COLUMN_BYTES = 32
SHORT_GAP, LONG_GAP = 2.0, 4.0
"""tCCD_S and tCCD_L in ns, at 1 GHz."""
NPU_OPERATIONS = 4 * 128 * 128 * 2
"""Operations a ns: four arrays at 1 GHz."""
SCALED_BITS = 4 + 8 / 128
"""Bits of a weight with its group's scale."""
CACHE_BITS = 4 + 20 / 128
"""Bits of a key's or value's element with scale and zero point."""
CONTEXT = 4096
BATCHES = (1, 2, 4, 8)

NORMAL_BANDWIDTH = CHANNELS * COLUMN_BYTES / SHORT_GAP
"""Bytes a ns that leave the memory."""
PIM_BANDWIDTH = CHANNELS * UNITS * COLUMN_BYTES / LONG_GAP
"""Bytes a ns that its compute units read."""


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
        """Weights of a layer."""
        attention = self.width * self.head_size * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.width * self.feed_forward

    @property
    def keys(self) -> int:
        """Elements of the keys of a layer and request; as many are those of the values."""
        return CONTEXT * self.kv_heads * self.head_size

    @property
    def group(self) -> int:
        """Query heads that share a key."""
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
    """Return the ns of an operator on the NPU: bound by memory or by arithmetic."""
    return max(size / NORMAL_BANDWIDTH, operations / NPU_OPERATIONS)


def npu_layer(shape: Shape, batch: int) -> float:
    """Return the ns of a layer's decode step in FP16 on the NPU."""
    linear = npu(2 * shape.weights * batch, 2 * shape.weights)
    cache = 2 * shape.keys * batch
    return linear + npu(2 * cache * shape.group, 2 * cache)


def hbm_pim_layer(shape: Shape, batch: int) -> float:
    """Return the ns on HBM-PIM in FP16: each input reads everything, unless the NPU is faster."""
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
    """Return what reading group sums adds to the column reads of a linear layer.

    A group is `group / 4` column reads; two reads a unit and input, of eight units, take a tCCD_S
    each. In the free slot of each column read one of them is hidden.
    """
    columns = group / 4 * LONG_GAP
    reads = 2 * UNITS * inputs * SHORT_GAP
    if free_slots:
        # One slot a column read is free, and a transfer fills it.
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
    """Return the ns of W4A8KV4 on PIM.

    Parameters
    ----------
    shape : Shape
        The model.
    batch : int
        Requests.
    pump : bool
        Whether a column serves two inputs.
    probabilities : bool
        Whether probabilities are FP8, so that P.V runs in the memory.
    drains : bool
        Whether reading group sums is counted.
    free_slots : bool
        Whether they use the free tCCD_S slots.
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
    """Return the mean over models and batches of a baseline's time over P3-LLM's."""
    slow = {"NPU": npu_layer, "HBM-PIM": hbm_pim_layer}[baseline]
    ratios = [
        slow(shape, batch) / p3llm_layer(shape, batch, **options)
        for shape in SHAPES
        for batch in batches
    ]
    return sum(ratios) / len(ratios)


def peak_ratio() -> float:
    """Return P3-LLM's peak over HBM-PIM's: products a unit and clock, times the clocks."""
    return (64 / SHORT_GAP) / (16 / LONG_GAP)
