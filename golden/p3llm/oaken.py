"""Oaken's quantiser of keys and values (Kim et al., ISCA 2025), a rival of Table IV.

Thresholds from a calibration text divide the elements of a vector into three groups: outliers of
either sign, the middle, and the elements next to zero. Each group has a scale per vector. Outer and
middle elements are shifted by their threshold first ("group shift"), so that their range begins
with zero. Keys are quantised before the rotary embedding. The published code computes the scales of
outer and middle groups over a whole text; here each token has its own, as its hardware has.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from golden.p3llm.scheme import linear_layers

OUTER, MIDDLE = 0.04, 0.9
"""Shares of elements in the outer and in the middle group; the others are inner."""
MIDDLE_BITS, OTHER_BITS = 4, 5
"""Bits of a middle element, and of an outer or inner one."""
PROJECTIONS = ("k_proj", "v_proj")


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Lower and upper boundary of the outer group, and of the inner group."""

    outer: tuple[float, float]
    inner: tuple[float, float]

    @classmethod
    def of(cls, elements: Tensor) -> "Thresholds":
        """Return the boundaries that give the groups their shares of calibration elements."""
        flat = elements.flatten()

        def between(share: float) -> tuple[float, float]:
            low = torch.quantile(flat, share / 2, interpolation="lower")
            high = torch.quantile(flat, 1 - share / 2, interpolation="higher")
            return float(low), float(high)

        return cls(outer=between(OUTER), inner=between(OUTER + MIDDLE))


def oaken(vectors: Tensor, thresholds: Thresholds) -> Tensor:
    """Return vectors [.., size], each quantised with scales of its own."""
    (low, high), (inner_low, inner_high) = thresholds.outer, thresholds.inner
    outer = (vectors <= low) | (vectors >= high)
    inner = (vectors > inner_low) & (vectors < inner_high)
    middle = ~outer & ~inner
    shift = torch.where(vectors > 0, inner_high, inner_low)
    far = torch.where(vectors > 0, high, low)
    return (
        _uniform(vectors * inner, OTHER_BITS) * inner
        + (_uniform((vectors - shift) * middle, MIDDLE_BITS) + shift) * middle
        + (_uniform((vectors - far) * outer, OTHER_BITS) + far) * outer
    )


def _uniform(elements: Tensor, bits: int) -> Tensor:
    """Return elements on a grid from the smallest to the largest of each vector."""
    least, most = elements.amin(-1, keepdim=True), elements.amax(-1, keepdim=True)
    step = (most - least) / ((1 << bits) - 1)
    step = torch.where(step == 0, 1, step)
    return ((elements - least) / step).round() * step + least


def projections(model: Any) -> dict[str, torch.nn.Linear]:
    """Return the layers that compute keys and values, by name."""
    return {
        name: module
        for name, module in linear_layers(model).items()
        if name.rpartition(".")[2] in PROJECTIONS
    }


@contextmanager
def _hooked(model: Any, hook: Callable[[str, Tensor], Tensor | None]) -> Iterator[None]:
    """Give `hook` all keys and values inside the context; what it returns replaces them."""
    with ExitStack() as undo:
        for name, module in projections(model).items():

            def own(_: Any, __: Any, made: Tensor, name: str = name) -> Tensor | None:
                return hook(name, made)

            undo.callback(module.register_forward_hook(own).remove)
        yield


@contextmanager
def watched_projections(model: Any) -> Iterator[dict[str, Thresholds]]:
    """Collect the thresholds of the text that a model reads inside the context."""
    found: dict[str, Thresholds] = {}

    def seen(name: str, made: Tensor) -> None:
        found[name] = Thresholds.of(made)

    with _hooked(model, seen):
        yield found


@contextmanager
def oaken_cache(model: Any, thresholds: dict[str, Thresholds]) -> Iterator[None]:
    """Quantise a model's keys and values inside the context."""
    with _hooked(model, lambda name, made: oaken(made, thresholds[name])):
        yield
