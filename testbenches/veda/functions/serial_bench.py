"""Common parts of the testbenches of units that output one FP16 element per input element."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from testbenches.packing import code_fields
from testbenches.unit_bench import Fields, UnitBench

Rows = Sequence[NDArray[np.uint16]]
"""Rows of elements, as FP16 codes."""

W = TypeVar("W")


class SerialBench(UnitBench[W]):
    """A unit whose values are FP16 numbers."""

    def integers(self, value: Any) -> NDArray[np.int64]:
        """Return a field as integers, FP16 structs as their codes."""
        return codes_of(value)

    def shown(self, value: int) -> str:
        """Format a value as a code and, if possible, as an FP16 number."""
        return shown(value)


def elements_of(rows: Rows) -> Fields:
    """Return the elements of rows, with marks at the last element of each row."""
    return {"value": code_fields(np.concatenate(rows)), "last": last_of(rows)}


def last_of(rows: Rows) -> NDArray[np.int64]:
    """Return 1 at each row's last element."""
    ends = np.cumsum([len(row) for row in rows]) - 1
    last = np.zeros(ends[-1] + 1, np.int64)
    last[ends] = 1
    return last


def codes_of(value: Any) -> NDArray[np.int64]:
    """Return a field as integers, FP16 structs as their codes."""
    if isinstance(value, dict):
        return value["mantissa"] | value["exponent"] << 10 | value["sign"] << 15
    return value


def shown(code: int) -> str:
    """Format a value as a code and, if possible, as an FP16 number."""
    return f"{int(code):#06x} ({np.uint16(code).view(np.float16)})"
