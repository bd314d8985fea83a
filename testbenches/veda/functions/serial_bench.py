"""Common parts of the testbenches of units that output one FP16 element per input element."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbenches.stream_bench import Fields, StreamBench

Rows = Sequence[NDArray[np.uint16]]
"""Rows of elements, as FP16 codes."""

BEATS = ["none", "random", "bursty", "adversarial"]
"""Stall patterns, all pairs of which are applied to input and output."""


class SerialBench(StreamBench):
    """A unit that outputs one element per input element, in order."""

    async def run_rows(self, rows: Rows, answers: Rows) -> int:
        """Run rows and compare every output with the expected one; return the cycles."""
        cycles = await self.run(elements_of(rows))
        self.check({"value": np.concatenate(answers), "last": last_of(rows)})
        return cycles

    def integers(self, value: Any) -> NDArray[np.int64]:
        """Return a field as integers, FP16 structs as their codes."""
        return codes_of(value)

    def shown(self, value: int) -> str:
        """Format a value as a code and, if possible, as an FP16 number."""
        return shown(value)


def code_fields(codes: NDArray[Any]) -> Fields:
    """Return FP16 codes as the fields of their layout."""
    codes = np.asarray(codes).astype(np.int64)
    return {"mantissa": codes & 1023, "exponent": codes >> 10 & 31, "sign": codes >> 15}


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
