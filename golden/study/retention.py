"""Bit errors of an embedded DRAM in cached keys and values (Kelle, Sections 4.2 and 7.1).

A word holds two's complement integers of 16 bits, with one scale per layer (as the accelerator),
per head or per channel, or FP16. Each stored bit is wrong independently, with a probability that
depends on its half of the word and on whether its token is among the high scores. Which tokens are
high scores is `golden.study.policies.Split`: the paper's half of each head, or the accelerator's
one histogram of all heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from hdl.parameters import require

BITS = 16
INTERVALS_MS = {"hst_msb": 0.36, "lst_msb": 1.44, "hst_lsb": 5.4, "lst_lsb": 7.2}
"""The paper's refresh intervals."""


class WordFormat(Enum):
    """How a value is stored."""

    INT16 = "int16"
    INT16_LAYER = "int16, a scale a layer"
    INT16_CHANNEL = "int16, a scale a channel"
    FP16 = "fp16"


SCALED_OVER = {
    WordFormat.INT16: (1, 2),
    WordFormat.INT16_LAYER: (0, 1, 2),
    WordFormat.INT16_CHANNEL: (1,),
}
"""Dimensions of [heads, tokens, size] over which integers have one scale."""


@dataclass(frozen=True, kw_only=True)
class FlipRates:
    """Probability that a stored bit is wrong when it is read.

    Parameters
    ----------
    hst_msb, hst_lsb, lst_msb, lst_lsb : float
        For high-score and low-score tokens, bits 15 to 8 and 7 to 0; each from 0 to 1.
    format : WordFormat
        What the bits mean.

    Raises
    ------
    ValueError
        If a rate is no probability.
    """

    hst_msb: float = 0.0
    hst_lsb: float = 0.0
    lst_msb: float = 0.0
    lst_lsb: float = 0.0
    format: WordFormat = WordFormat.INT16

    def __post_init__(self) -> None:
        """Check every rate."""
        for name in INTERVALS_MS:
            rate = getattr(self, name)
            require(0 <= rate <= 1, f"{name} must be between 0 and 1", rate)

    @property
    def mean(self) -> float:
        """Average rate: groups are equally large."""
        return (self.hst_msb + self.hst_lsb + self.lst_msb + self.lst_lsb) / 4


def uniform(rate: float, word: WordFormat = WordFormat.INT16) -> FlipRates:
    """Give all bits one rate."""
    return FlipRates(hst_msb=rate, hst_lsb=rate, lst_msb=rate, lst_lsb=rate, format=word)


def two_dimensional(mean: float, word: WordFormat = WordFormat.INT16) -> FlipRates:
    """Give each group a rate in proportion to its refresh interval, `mean` on average.

    The paper's failure curve (Figure 4) is a picture; proportional is an assumption.
    """
    total = sum(INTERVALS_MS.values())
    rates = {name: 4 * mean * interval / total for name, interval in INTERVALS_MS.items()}
    return FlipRates(
        hst_msb=rates["hst_msb"],
        hst_lsb=rates["hst_lsb"],
        lst_msb=rates["lst_msb"],
        lst_lsb=rates["lst_lsb"],
        format=word,
    )


class Retention:
    """What is read of keys and values that were stored, for each lane's rates.

    All lanes, and the two groups of tokens, draw from the same random numbers: a bit that is wrong
    at one rate is wrong at every higher one.

    Parameters
    ----------
    rates : Sequence[FlipRates]
        One a lane.
    seed : int
        Repeats a run.
    """

    def __init__(self, rates: Sequence[FlipRates], seed: int = 1) -> None:
        self.rates = tuple(rates)
        self.seed = seed

    def read(self, layer: int, key: Tensor, value: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return keys and values as read while a token is among the high scores, and the low.

        Parameters
        ----------
        layer : int
            Chooses the random numbers.
        key, value : Tensor
            [lanes, key/value heads, tokens, size].
        """
        generator = torch.Generator().manual_seed(self.seed * 1000 + layer)
        read_keys, read_values = (self._read(stored, generator) for stored in (key, value))
        return list(zip(read_keys, read_values, strict=True))

    def _read(self, stored: Tensor, generator: torch.Generator) -> list[Tensor]:
        masks = torch.zeros(2, *stored.shape, dtype=torch.int16)
        for bit in range(BITS):
            draw = torch.rand(stored.shape[1:], generator=generator)
            weight = (1 << bit) - (1 << BITS if bit == BITS - 1 else 0)
            for lane, rates in enumerate(self.rates):
                msb = bit >= BITS // 2
                high = rates.hst_msb if msb else rates.hst_lsb
                low = rates.lst_msb if msb else rates.lst_lsb
                for group, rate in enumerate((high, low)):
                    if rate:
                        masks[group, lane] |= (draw < rate).to(torch.int16) * weight
        read = torch.empty(2, *stored.shape, dtype=stored.dtype)
        for lane, rates in enumerate(self.rates):
            for group in range(2):
                read[group, lane] = flipped(stored[lane], masks[group, lane], rates.format)
        return list(read)


def flipped(values: Tensor, mask: Tensor, word: WordFormat) -> Tensor:
    """Store `values` [heads, tokens, size] as words of a format, and flip bits of `mask`."""
    if word is WordFormat.FP16:
        return flip_fp16(values, mask)
    return flip_int16(values, mask, SCALED_OVER[word])


def flip_int16(values: Tensor, mask: Tensor, over: tuple[int, ...] = (1, 2)) -> Tensor:
    """Store `values` [heads, tokens, size] as integers, and flip bits of `mask`.

    What differs only in the dimensions `over` has one scale: by default each head.
    """
    scale = values.abs().amax(over, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny)
    scale = scale / 32767
    words = (values / scale).round().to(torch.int16)
    return (words ^ mask) * scale


def flip_fp16(values: Tensor, mask: Tensor) -> Tensor:
    """Store `values` as FP16 and flip bits of `mask`; what is no number is read as zero."""
    words = values.to(torch.float16).view(torch.int16) ^ mask
    return words.view(torch.float16).to(values.dtype).nan_to_num(0.0, 0.0, 0.0)
