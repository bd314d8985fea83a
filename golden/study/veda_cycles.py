"""Cycles of decode attention on VEDA and an adder tree, and speedup by eviction (Section VI)."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from hdl.parameters import require, require_range

PROMPT = 512
RATIOS = (0.5, 0.4, 0.3, 0.2)
GENERATED = (128, 256, 512, 1024)


@dataclass(frozen=True, kw_only=True)
class AttentionCycles:
    """Cycles for one head of `head_size` attending to l tokens.

    The paper states neither the width of its baseline nor the latency of its softmax. Three
    assumptions reproduce the ends of all four of its ranges within 0.02: both machines multiply 256
    pairs per cycle, a softmax that is not hidden stops the array for l/2 cycles, and a head on VEDA
    takes 135 cycles in addition to its products.

    Parameters
    ----------
    width : int
        Multiplications per cycle.
    head_size : int
        Head size d.
    softmax_rate : int
        Elements per cycle of a softmax that is not hidden.
    overhead : int
        Cycles per head between its products if the softmax is hidden.
    """

    width: int = 256
    head_size: int = 128
    softmax_rate: int = 2
    overhead: int = 135

    def __post_init__(self) -> None:
        """Check every rule."""
        for name in ("width", "head_size", "softmax_rate"):
            require_range(name, getattr(self, name), 1, 1 << 16)
        require_range("overhead", self.overhead, 0, 1 << 16)

    def baseline(self, length: int) -> float:
        """Return the cycles of an adder tree: one dot product of `width` elements per cycle."""
        scores = length * ceil(self.head_size / self.width)
        values = self.head_size * ceil(length / self.width)
        return scores + values + length / self.softmax_rate

    def flexible(self, length: int) -> float:
        """Return the cycles of the flexible product, with an unhidden softmax between products."""
        return 2 * length * self.head_size / self.width + length / self.softmax_rate

    def element_serial(self, length: int) -> float:
        """Return the cycles of the flexible product with the softmax hidden by both products."""
        return 2 * length * self.head_size / self.width + self.overhead

    def ratios(self, generated: int) -> tuple[float, float]:
        """Return mean latencies relative to the baseline: flexible product; with serial softmax."""
        lengths = range(PROMPT, PROMPT + max(generated, 1))

        def total(cycles: Callable[[int], float]) -> float:
            return sum(cycles(length) for length in lengths)

        baseline = total(self.baseline)
        return total(self.flexible) / baseline, total(self.element_serial) / baseline


def eviction_speedup(generated: int, ratio: float) -> float:
    """Return the mean length without eviction, divided by the constant length with eviction."""
    require_range("generated", generated, 1, 1 << 20)
    require(0 < ratio <= 1, "ratio must be above 0 and at most 1", ratio)
    return (PROMPT + generated / 2) / (PROMPT * ratio)
