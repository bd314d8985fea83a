"""The authors' quantisers in torch, rewritten from their code, in float32.

They do not use `golden`: they are the reference of the models.
"""

import torch
from torch import Tensor


def e4m3(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of E4M3 codes before scaling, and the scales."""
    scale = (x.abs().amax(-1, keepdim=True) / 448).clamp_min(1e-6)
    scaled = x / scale
    exponent = scaled.abs().clamp_min(1e-30).log2().floor().clamp_min(-6)
    step = 2.0 ** (exponent - 3)
    return (scaled / step).round() * step, scale


def int4(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes, zero points and scales of a token's head."""
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    scale = ((high - low) / 15).clamp_min(1e-6)
    zero = (-low / scale).round().clamp(0, 15)
    return ((x / scale).round() + zero).clamp(0, 15), zero, scale


def s0e4m4(p: Tensor) -> Tensor:
    """Return FP16 probabilities with four mantissa bits."""
    bits = p.view(torch.int16)
    kept, rest = bits & ~63, bits & 63
    return torch.where(rest > 31, kept + 64, kept).view(torch.float16)


def smoothed(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys divided by their channels' maxima over all tokens, and the maxima."""
    factors = keys.abs().amax(-2, keepdim=True)
    return keys / factors, factors
