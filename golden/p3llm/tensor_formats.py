"""Rounding of whole tensors to P3-LLM's formats and to those of the comparison.

The values are those of the bit-exact models in `golden.arith`; tests compare both. Arithmetic is
float32, where the authors' own code runs in float16.
"""

from enum import Enum

import torch
from torch import Tensor

from golden.arith.bitmod_fp4 import SPECIALS, code_table

SMALLEST_SCALE = 1e-6
ROWS_AT_A_TIME = 32


class Probabilities(Enum):
    """Format of attention probabilities.

    Members
    -------
    FP16 : str
        Binary16.
    INT8, INT6, INT4 : str
        Unsigned integers; the largest probability of a query has the largest code.
    E4M3 : str
        Without a scale.
    S0E4M4, S0E4M4_RNE, S0E4M4_TRUNC : str
        Rounded half up, half to even, towards zero; saturated at 1.9375.
    S1E5M4 : str
        Rounded half up, with the fifth exponent bit of the authors' emulation.
    """

    FP16 = "FP16"
    INT8 = "INT8"
    INT6 = "INT6"
    INT4 = "INT4"
    E4M3 = "FP8-E4M3"
    S0E4M4 = "FP8-S0E4M4"
    S0E4M4_RNE = "FP8-S0E4M4, ties to even"
    S0E4M4_TRUNC = "FP8-S0E4M4, truncated"
    S1E5M4 = "FP16's five exponent bits, four mantissa bits"


def e4m3(values: Tensor) -> Tensor:
    """Return values in E4M3 with a scale for each vector of the last axis."""
    scale = (values.abs().amax(-1, keepdim=True) / 448).clamp_min(SMALLEST_SCALE)
    return cast_e4m3(values / scale) * scale


def cast_e4m3(values: Tensor) -> Tensor:
    """Return values in E4M3 without a scale, saturated."""
    return values.clamp(-448, 448).to(torch.float8_e4m3fn).to(values.dtype)


def integers(values: Tensor, bits: int, clip: float = 1.0) -> Tensor:
    """Return values as symmetric integers with a scale for each vector of the last axis.

    The largest integer represents `clip` times the largest magnitude.
    """
    limit = (1 << bits - 1) - 1
    scale = (values.abs().amax(-1, keepdim=True) * clip / limit).clamp_min(SMALLEST_SCALE)
    return (values / scale).round().clamp(-limit, limit) * scale


def asymmetric(values: Tensor, bits: int = 4, clip: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return integers ``code - zero point`` as floats, and a scale per vector.

    The codes represent `clip` times the range of the vector.
    """
    top = (1 << bits) - 1
    low, high = values.amin(-1, keepdim=True) * clip, values.amax(-1, keepdim=True) * clip
    scale = ((high - low) / top).clamp_min(SMALLEST_SCALE)
    zero = (-low / scale).round().clamp(0, top)
    return ((values / scale).round() + zero).clamp(0, top) - zero, scale


def probabilities(values: Tensor, target: Probabilities) -> Tensor:
    """Return probabilities, or their products with scales, in a format."""
    if target.value.startswith("INT"):
        steps = (1 << int(target.value.removeprefix("INT"))) - 1
        step = values.amax(-1, keepdim=True).clamp_min(1e-30) / steps
        return (values / step).round() * step
    half = values.to(torch.float16)
    if target is Probabilities.FP16:
        return half.to(values.dtype)
    if target is Probabilities.E4M3:
        return cast_e4m3(half.to(values.dtype))
    bits = half.view(torch.int16)
    if target is Probabilities.S0E4M4_RNE:
        bits = bits + 31 + ((bits >> 6) & 1)
    elif target is not Probabilities.S0E4M4_TRUNC:
        bits = bits + 32
    bits = bits & ~63
    if target is not Probabilities.S1E5M4:
        bits = bits.clamp_max(0xFF << 6)
    return bits.view(torch.float16).to(values.dtype)


def grouped_integers(weights: Tensor, group: int, bits: int = 4) -> Tensor:
    """Return weights [rows, inputs] as asymmetric integers in groups along the inputs."""
    groups = weights.unflatten(-1, (-1, group))
    # A weight group's zero point may be any integer, as its range always includes zero.
    low = groups.amin(-1, keepdim=True).clamp_max(0)
    high = groups.amax(-1, keepdim=True).clamp_min(0)
    top = (1 << bits) - 1
    scale = ((high - low) / top).clamp_min(1e-12)
    zero = (-low / scale).round()
    codes = ((groups / scale).round() + zero).clamp(0, top)
    return ((codes - zero) * scale).flatten(-2)


def bitmod(weights: Tensor, group: int) -> Tensor:
    """Return weights [rows, inputs] in BitMoD FP4 with 8-bit group scales."""
    # A few rows at a time fit in the processor's cache.
    return torch.cat([_bitmod_rows(rows, group) for rows in weights.split(ROWS_AT_A_TIME)])


def _bitmod_rows(weights: Tensor, group: int) -> Tensor:
    """Select each group's special value, then round the groups' scales, row by row."""
    groups = weights.unflatten(-1, (-1, group))
    largest = groups.abs().amax(-1, keepdim=True)
    best = torch.zeros_like(groups)
    best_scale = torch.zeros_like(largest)
    best_error = torch.full_like(largest, torch.inf)
    for select in range(len(SPECIALS)):
        numbers = torch.tensor(sorted(code_table(select).tolist()), dtype=groups.dtype) / 2
        scale = largest / numbers.abs().max()
        units = groups / torch.where(scale == 0, 1, scale)
        middles = (numbers[:-1] + numbers[1:]) / 2
        # The number of midpoints strictly below is the index of the nearest number; ties resolve to
        # the more negative one.
        chosen = numbers[torch.bucketize(units, middles)]
        error = ((chosen * scale - groups) ** 2).sum(-1, keepdim=True)
        better = error < best_error
        best = torch.where(better, chosen, best)
        best_scale = torch.where(better, scale, best_scale)
        best_error = torch.where(better, error, best_error)
    # The scales are rounded after the codes are chosen, and codes are not chosen again.
    row = best_scale.amax(-2, keepdim=True) / 255
    steps = (best_scale / torch.where(row == 0, 1, row)).round()
    return (best * steps * row).flatten(-2)
