"""INT4 with a zero point: quantiser, and model of `hdl.arith.int4_asym`."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Int4Asym:
    """Quantised groups.

    Parameters
    ----------
    codes : numpy.ndarray
        uint8, 0 to 15, in the shape of the values.
    zero_points : numpy.ndarray
        uint8, 0 to 15, with an axis of length 1.
    scales : numpy.ndarray
        float32, with an axis of length 1.
    """

    codes: np.ndarray
    zero_points: np.ndarray
    scales: np.ndarray

    def values(self) -> np.ndarray:
        """Return the values of the codes, as float32."""
        return operand(self.codes, self.zero_points).astype(np.float32) * self.scales


def operand(codes: np.ndarray, zero_points: np.ndarray) -> np.ndarray:
    """Return ``code - zero_point`` as int8, -15 to 15."""
    return np.asarray(codes).astype(np.int8) - np.asarray(zero_points).astype(np.int8)


def quantise(values: np.ndarray, *, axis: int = -1) -> Int4Asym:
    """Quantise keys or values of one token and head.

    ``scale = max((max - min) / 15, 1e-6)``, ``zero = clamp(round(-min / scale), 0, 15)``, ``code =
    clamp(round(x / scale) + zero, 0, 15)``, all with rounding half to even, in float32. The zero
    point is clamped, so a group with values of one sign loses range, as in the authors' code
    (P3-LLM, section 4.1).

    Parameters
    ----------
    values : numpy.ndarray
        Finite floats.
    axis : int
        Axis of a group.
    """
    values = np.asarray(values, np.float32)
    low = values.min(axis=axis, keepdims=True)
    high = values.max(axis=axis, keepdims=True)
    scales = np.maximum((high - low) / np.float32(15), np.float32(1e-6))
    zero_points = np.clip(np.rint(-low / scales), 0, 15)
    codes = np.clip(np.rint(values / scales) + zero_points, 0, 15)
    return Int4Asym(
        codes=codes.astype(np.uint8), zero_points=zero_points.astype(np.uint8), scales=scales
    )
