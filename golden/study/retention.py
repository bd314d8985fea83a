"""Bit errors of an embedded DRAM in cached keys and values (Kelle, Sections 4.2 and 7.1).

A word contains FP16, or a two's complement integer of 16 bits with one scale per layer (as in the
accelerator), per head or per channel. Bit errors are independent. Their probability depends on the
half of the word and on whether the token is a high-score token. The
policy selects these tokens by its method `important`: the paper's half of each head, or the
accelerator's tracked median. Refresh intervals give probabilities by the distribution of retention
times in `golden.kelle.edram.retention_times`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from golden.kelle.edram.retention_times import PAPER_TIMES
from hdl.kelle.edram.refresh_intervals import RefreshIntervals
from hdl.parameters import require

BITS = 16
GROUPS = ("hst_msb", "hst_lsb", "lst_msb", "lst_lsb")


class WordFormat(Enum):
    """The storage format of a value."""

    INT16 = "int16"
    INT16_LAYER = "int16, scale per layer"
    INT16_CHANNEL = "int16, scale per channel"
    FP16 = "fp16"


SCALED_OVER = {
    WordFormat.INT16: (1, 2),
    WordFormat.INT16_LAYER: (0, 1, 2),
    WordFormat.INT16_CHANNEL: (1,),
}
"""Dimensions of [heads, tokens, size] that share one scale."""


@dataclass(frozen=True, kw_only=True)
class FlipRates:
    """Probabilities of an error in a stored bit when it is read.

    Parameters
    ----------
    hst_msb, hst_lsb, lst_msb, lst_lsb : float
        Probabilities for high-score and low-score tokens, bits 15 to 8 and 7 to 0; 0 to 1.
    format : WordFormat
        Storage format of the bits.

    Raises
    ------
    ValueError
        If a rate is not from 0 to 1.
    """

    hst_msb: float = 0.0
    hst_lsb: float = 0.0
    lst_msb: float = 0.0
    lst_lsb: float = 0.0
    format: WordFormat = WordFormat.INT16

    def __post_init__(self) -> None:
        """Check every rate."""
        for name in GROUPS:
            rate = getattr(self, name)
            require(0 <= rate <= 1, f"{name} must be between 0 and 1", rate)

    @property
    def mean(self) -> float:
        """Mean rate of the four groups, which are equally large."""
        return (self.hst_msb + self.hst_lsb + self.lst_msb + self.lst_lsb) / 4


def uniform(rate: float, word: WordFormat = WordFormat.INT16) -> FlipRates:
    """Return equal rates for all bits."""
    return FlipRates(hst_msb=rate, hst_lsb=rate, lst_msb=rate, lst_lsb=rate, format=word)


def refreshed(intervals: RefreshIntervals, word: WordFormat = WordFormat.INT16) -> FlipRates:
    """Return the rates of the groups at their refresh intervals."""
    lost = {name: PAPER_TIMES.lost(getattr(intervals, name)) for name in GROUPS}
    return FlipRates(**lost, format=word)


class Retention:
    """Keys and values read from the memory with bit errors, for each lane's rates.

    All lanes and both groups of tokens use the same random numbers: a bit with an error at one rate
    has an error at every higher rate.

    Parameters
    ----------
    rates : Sequence[FlipRates]
        Rates of each lane.
    seed : int
        Seed of the random numbers.
    """

    def __init__(self, rates: Sequence[FlipRates], seed: int = 1) -> None:
        self.rates = tuple(rates)
        self.seed = seed

    def read(self, layer: int, key: Tensor, value: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return keys and values as read for high-score tokens, and for low-score tokens.

        Parameters
        ----------
        layer : int
            Layer number, which selects the random numbers.
        key, value : Tensor
            [lanes, KV heads, tokens, size].
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
    """Convert `values` [heads, tokens, size] to words of a format, and flip the bits of `mask`."""
    if word is WordFormat.FP16:
        return flip_fp16(values, mask)
    return flip_int16(values, mask, SCALED_OVER[word])


def flip_int16(values: Tensor, mask: Tensor, over: tuple[int, ...] = (1, 2)) -> Tensor:
    """Convert `values` [heads, tokens, size] to integers, and flip the bits of `mask`.

    The dimensions `over` share one scale; by default, there is one scale per head.
    """
    scale = values.abs().amax(over, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny)
    scale = scale / 32767
    words = (values / scale).round().to(torch.int16)
    return (words ^ mask) * scale


def flip_fp16(values: Tensor, mask: Tensor) -> Tensor:
    """Convert `values` to FP16, and flip the bits of `mask`; infinities and NaN become zero."""
    words = values.to(torch.float16).view(torch.int16) ^ mask
    return words.view(torch.float16).to(values.dtype).nan_to_num(0.0, 0.0, 0.0)
