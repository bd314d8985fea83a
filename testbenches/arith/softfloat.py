"""Berkeley SoftFloat on whole arrays: the independent reference of the golden models.

The Python package of SoftFloat computes one operation per call. A loop in C++ calls its library
directly instead, at tens of millions of operand sets/s.
"""

import ctypes
import hashlib
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from softfloatpy import _core

from hdl.paths import BUILD

LOOPS = Path(__file__).with_suffix(".cpp")
PREDICATES = ("eq", "lt_quiet", "le_quiet")


def softfloat(function: str, *operands: np.ndarray) -> np.ndarray:
    """Apply one SoftFloat function, rounding to nearest even, to each set of operands.

    Parameters
    ----------
    function : str
        SoftFloat's name, such as ``f16_mulAdd`` or ``f32_to_f16``.
    *operands : numpy.ndarray
        One to three one-dimensional arrays of codes, all of one length.

    Returns
    -------
    numpy.ndarray
        Codes of the result's type; uint8 of 0 and 1 for a comparison. NaNs are those of SoftFloat.
    """
    source, operation = function.split("_", 1)
    from_bits = int(source[1:])
    to_bits = from_bits
    if operation in PREDICATES:
        to_bits = 8
    elif operation.startswith("to_"):
        to_bits = int(operation.removeprefix("to_f"))
    arrays = [np.ascontiguousarray(operand, f"uint{from_bits}") for operand in operands]
    result = np.empty(len(arrays[0]), f"uint{to_bits}")
    library, loops = _libraries()
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    pointers += [ctypes.c_void_p(None)] * (3 - len(pointers))
    getattr(loops, f"apply_{from_bits}_{to_bits}")(
        ctypes.cast(getattr(library, function), ctypes.c_void_p),
        ctypes.c_size_t(len(result)),
        *pointers,
        ctypes.c_void_p(result.ctypes.data),
    )
    return result


@cache
def _libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """Return SoftFloat and the loops, compiled unless cached."""
    digest = hashlib.sha256(LOOPS.read_bytes()).hexdigest()[:16]
    loops = BUILD / "bulk" / f"softfloat-{digest}.so"
    if not loops.exists():
        loops.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=loops.parent) as scratch:
            new = Path(scratch, "loops.so")
            subprocess.run(["g++", "-O2", "-shared", "-fPIC", LOOPS, "-o", new], check=True)
            new.rename(loops)
    return ctypes.CDLL(_core.__file__), ctypes.CDLL(str(loops))
