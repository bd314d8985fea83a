"""SmolLM2's queries, keys and values as FP16 codes, for units of any head size."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.llm import open_trace

Codes = NDArray[np.uint16]
LAYERS = (0, 14, 29)
TOKENS = 640


LONG_TEXT, LONG_TOKENS = "news", 2080
"""Length of a trace, that of the largest memories of positions."""


def prepare(p: Any) -> None:
    """Capture the tensors before the simulator starts; a testbench exports this function."""
    open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def head_vectors(
    name: str, head_size: int, *, layer: int = 14, head: int = 0, long: bool = False
) -> Codes:
    """Return a head's `q`, `k` or `v` [tokens, head_size] as FP16 codes.

    If the size is larger than the model's, the next heads' elements follow, so that all are real.
    """
    if long:
        trace = open_trace(text=LONG_TEXT, tokens=LONG_TOKENS, layers=LAYERS)
    else:
        trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    heads = -(-head_size // trace.head_size)
    parts = [
        getattr(trace.attention_trace(layer, (head + 3 * more) % trace.heads), name)
        for more in range(heads)
    ]
    return codes(np.concatenate(parts, axis=-1)[:, :head_size])


def random_codes(rng: np.random.Generator, shape: tuple[int, ...]) -> Codes:
    """Return random codes: some uniform over all codes, most of medium magnitude."""
    middling = codes(rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 4, shape))
    return np.where(rng.random(shape) < 0.1, rng.integers(0, 1 << 16, shape), middling).astype(
        np.uint16
    )
