"""BitMoD FP4: adaptive group quantiser, and model of `hdl.arith.bitmod_fp4`."""

from dataclasses import dataclass

import numpy as np

SPECIALS = (5, -5, 8, -8)
"""Value of the code of negative zero, indexed by a group's select."""


@dataclass(frozen=True, kw_only=True)
class BitmodFp4:
    """Quantised groups.

    Parameters
    ----------
    codes : numpy.ndarray
        uint8, 0 to 15, shape (..., groups, group size).
    selects : numpy.ndarray
        uint8 select of each group's special value, 0 to 3, shape (..., groups).
    scales : numpy.ndarray
        float32 value of one unit, that is of two half-units, shape (..., groups).
    """

    codes: np.ndarray
    selects: np.ndarray
    scales: np.ndarray

    def values(self) -> np.ndarray:
        """Return the values of the codes as float32, shape (..., groups, group size)."""
        half_units = decode(self.codes, self.selects[..., np.newaxis])
        return half_units.astype(np.float32) * np.float32(0.5) * self.scales[..., np.newaxis]


def code_table(select: int) -> np.ndarray:
    """Return the half-units (int8) of the codes 0 to 15 with a given special value."""
    # E2M1: a subnormal binade and three normal binades of two numbers each.
    exponent, mantissa = np.divmod(np.arange(8), 2)
    positive = np.where(exponent == 0, mantissa, (2 + mantissa) << np.maximum(exponent - 1, 0))
    table = np.concatenate([positive, -positive]).astype(np.int8)
    table[8] = 2 * SPECIALS[select]
    return table


def decode(codes: np.ndarray, selects: np.ndarray) -> np.ndarray:
    """Return the half-units (int8) of codes with the special values of their groups."""
    tables = np.stack([code_table(select) for select in range(len(SPECIALS))])
    return tables[np.asarray(selects), np.asarray(codes)]


def quantise(weights: np.ndarray, *, group_size: int = 128) -> BitmodFp4:
    """Quantise weights in groups along the last axis, each with its best special value.

    For every special value in the order +5, -5, +8, -8, the scale maps the group's largest
    magnitude to the largest number of the set. Every weight is quantised to the nearest number of
    the set; ties resolve to the more negative one. The set with the smallest squared error is
    selected; ties resolve to the lowest select (P3-LLM, section 4.1; BitMoD). Scales are float32
    and errors float64; ties are exact.

    Parameters
    ----------
    weights : numpy.ndarray
        Finite floats, shape (..., inputs).
    group_size : int
        Weights per group; a divisor of the number of inputs.

    Raises
    ------
    ValueError
        If the group size does not divide the last axis.
    """
    weights = np.asarray(weights, np.float32)
    if group_size < 1 or weights.shape[-1] % group_size:
        raise ValueError(f"group_size must divide {weights.shape[-1]} inputs, not {group_size!r}")
    groups = weights.reshape(*weights.shape[:-1], -1, group_size)
    best = _quantise_with(groups, 0)
    best_error = _squared_error(groups, best)
    for select in range(1, len(SPECIALS)):
        candidate = _quantise_with(groups, select)
        error = _squared_error(groups, candidate)
        better = error < best_error
        best = BitmodFp4(
            codes=np.where(better[..., np.newaxis], candidate.codes, best.codes),
            selects=np.where(better, candidate.selects, best.selects),
            scales=np.where(better, candidate.scales, best.scales),
        )
        best_error = np.where(better, error, best_error)
    return best


def _quantise_with(groups: np.ndarray, select: int) -> BitmodFp4:
    """Quantise all groups with one special value."""
    table = code_table(select)
    order = np.argsort(table)
    numbers = table[order].astype(np.float32) / 2
    largest = np.abs(groups).max(axis=-1)
    scales = largest / np.abs(numbers).max()
    # A group of zeros has no scale; any value will do.
    divisor = np.where(scales == 0, np.float32(1), scales).astype(np.float64)
    # A float64 quotient of float32 numbers equals a midpoint only if it is exact.
    units = groups / divisor[..., np.newaxis]
    middles = (numbers[:-1] + numbers[1:]) / 2
    # The number of midpoints strictly below is the index of the nearest; a tie gives the lower one.
    nearest = np.searchsorted(middles, units, side="left")
    return BitmodFp4(
        codes=order[nearest].astype(np.uint8),
        selects=np.full(scales.shape, select, np.uint8),
        scales=scales,
    )


def _squared_error(groups: np.ndarray, quantised: BitmodFp4) -> np.ndarray:
    """Return the sum of squared errors of each group."""
    return ((quantised.values().astype(np.float64) - groups) ** 2).sum(axis=-1)


def quantise_scales(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantise the group scales of each output row to 8 bits, ``s = s2 * code``.

    Parameters
    ----------
    scales : numpy.ndarray
        Non-negative floats, shape (..., groups).

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray]
        Codes (uint8, half to even) of that shape, and float32 row scales ``s2 = max(s) / 255``
        with an axis of length 1.
    """
    scales = np.asarray(scales, np.float32)
    row = scales.max(axis=-1, keepdims=True) / np.float32(255)
    codes = np.rint(scales / np.where(row == 0, np.float32(1), row))
    return np.clip(codes, 0, 255).astype(np.uint8), row
