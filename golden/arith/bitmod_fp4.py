"""BitMoD FP4: adaptive group quantiser, and model of `hdl.arith.bitmod_fp4`."""

from dataclasses import dataclass

import numpy as np

SPECIALS = (5, -5, 8, -8)
"""Value of the code of negative zero, indexed by a group's select."""

QUARTERS = 32
"""Quarters of the largest number, 8. All midpoints between numbers are multiples of 1/4."""

CLIP_RATIOS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
"""Ratios of a group's largest representable magnitude to its largest weight that are tried."""

BLOCK = 1 << 15
"""Weights that the search processes at a time."""


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
    largest = np.abs(groups).max(axis=-1)
    scales = largest / (np.abs(code_table(select)).max().astype(np.float32) / 2)
    selects = np.full(scales.shape, select, np.uint8)
    return BitmodFp4(codes=nearest_codes(groups, selects, scales), selects=selects, scales=scales)


def nearest_codes(groups: np.ndarray, selects: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the codes (uint8) of the nearest numbers; ties resolve to the more negative one.

    Parameters
    ----------
    groups : numpy.ndarray
        float32 weights, shape (..., groups, group size).
    selects, scales : numpy.ndarray
        Select and float32 scale of each group, shape (..., groups).
    """
    # All midpoints are multiples of 1/4, so that the code is constant on ((k - 1) / 4, k / 4].
    # A float64 quotient of float32 numbers equals a midpoint only if it is exact.
    units = groups / _divisors(scales).astype(np.float64)[..., np.newaxis]
    quarters = np.clip(np.ceil(4 * units), -QUARTERS, QUARTERS).astype(np.int8)
    tables = np.stack([_codes_of_quarters(select) for select in range(len(SPECIALS))])
    return tables[np.asarray(selects)[..., np.newaxis], quarters + np.int16(QUARTERS)]


def _codes_of_quarters(select: int) -> np.ndarray:
    """Return the nearest code of each multiple of 1/4 from -8 to 8; ties as `nearest_codes`."""
    table = code_table(select)
    order = np.argsort(table, kind="stable")
    numbers = table[order] / 2
    middles = (numbers[:-1] + numbers[1:]) / 2
    quarters = np.arange(-QUARTERS, QUARTERS + 1) / 4
    # The number of midpoints strictly below is the index of the nearest; a tie gives the lower one.
    return order[np.searchsorted(middles, quarters, side="left")].astype(np.uint8)


def _divisors(scales: np.ndarray) -> np.ndarray:
    """Return the scales; 1 for a group of zeros, which has no scale."""
    return np.where(scales == 0, np.float32(1), scales)


def quantise_weighted(
    weights: np.ndarray,
    importance: np.ndarray,
    *,
    group_size: int = 128,
    ratios: tuple[float, ...] = CLIP_RATIOS,
) -> BitmodFp4:
    """Quantise weights in groups with the smallest error of the outputs, for known inputs.

    If the inputs of a row are uncorrelated, the mean squared error of its output is the sum of
    ``E[x**2] * (quantised - weight)**2``. Each group takes the scale and the special value with the
    smallest such sum. Candidates for the scale are those of `quantise` times each clip ratio;
    weights beyond the largest number saturate. Ties resolve to the first ratio, then to the lowest
    select. This search is not the paper's; it changes neither the format nor the hardware.

    Parameters
    ----------
    weights : numpy.ndarray
        Finite floats, shape (outputs, inputs).
    importance : numpy.ndarray
        Mean square of each input, shape (inputs,).
    group_size : int
        Weights per group; a divisor of the number of inputs.
    ratios : tuple[float, ...]
        Clip ratios, each above 0 and at most 1.

    Raises
    ------
    ValueError
        If the group size does not divide the inputs, a ratio is illegal, or an importance is
        negative, not finite, or missing.
    """
    weights = np.asarray(weights, np.float32)
    importance = np.asarray(importance, np.float64)
    outputs, inputs = weights.shape
    if group_size < 1 or inputs % group_size:
        raise ValueError(f"group_size must divide {inputs} inputs, not {group_size!r}")
    if not ratios or not all(0 < ratio <= 1 for ratio in ratios):
        raise ValueError(f"ratios must be above 0 and at most 1, not {ratios!r}")
    if importance.shape != (inputs,):
        raise ValueError(f"importance must have the shape ({inputs},), not {importance.shape}")
    if not (np.isfinite(importance).all() and (importance >= 0).all()):
        raise ValueError("importance must be finite and at least 0")
    groups = weights.reshape(outputs, -1, group_size)
    by_group = importance.reshape(-1, group_size)
    # Blocks of rows whose temporary arrays fit in a processor's cache.
    rows = max(1, BLOCK // inputs)
    blocks = [
        _searched(groups[first : first + rows], by_group, ratios)
        for first in range(0, outputs, rows)
    ]
    selects, scales = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return BitmodFp4(codes=nearest_codes(groups, selects, scales), selects=selects, scales=scales)


def _searched(
    groups: np.ndarray, importance: np.ndarray, ratios: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the select and the scale of each group [rows, groups, group size]."""
    magnitudes = np.abs(groups).astype(np.float64)
    positive = (groups > 0).astype(np.float64)
    largest = np.abs(groups).max(axis=-1)
    best = np.full(largest.shape, np.inf)
    selects, scales = np.zeros(largest.shape, np.uint8), np.zeros_like(largest)
    for ratio in ratios:
        # A special value and its negative have the same scale, and differ in the sign of the
        # weights that may use it. Ties of magnitudes have equal errors in both directions.
        for first in (0, 2):
            top = np.float32(max(6, SPECIALS[first]))
            scale = largest / top * np.float32(ratio)
            divisor = _divisors(scale).astype(np.float64)
            units = magnitudes / divisor[..., np.newaxis]
            quarters = np.minimum(np.ceil(4 * units), QUARTERS).astype(np.intp)
            without = importance * (_MAGNITUDES[quarters] - units) ** 2
            gain = without - importance * (_WITH_SPECIAL[first // 2][quarters] - units) ** 2
            error = without.sum(axis=-1)
            above = (gain * positive).sum(axis=-1)
            below = (gain * (1 - positive)).sum(axis=-1)
            for select, gained in ((first, above), (first + 1, below)):
                own = (error - gained) * divisor**2
                better = own < best
                best = np.where(better, own, best)
                selects = np.where(better, np.uint8(select), selects)
                scales = np.where(better, scale, scales)
    return selects, scales


def _magnitudes_of_quarters(*special: int) -> np.ndarray:
    """Return the nearest magnitude of each multiple of 1/4 from 0 to 8; ties to the lower one."""
    numbers = np.array(sorted({*np.abs(np.delete(code_table(0), 8)) / 2, *special}))
    middles = (numbers[:-1] + numbers[1:]) / 2
    return numbers[np.searchsorted(middles, np.arange(QUARTERS + 1) / 4, side="left")]


_MAGNITUDES = _magnitudes_of_quarters()
_WITH_SPECIAL = (_magnitudes_of_quarters(5), _magnitudes_of_quarters(8))


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
