"""Dimensions of VEDA's voting threshold, and payloads of its streams."""

from typing import Annotated

from amaranth.lib import data
from amaranth.utils import ceil_log2

from hdl.arith.float_format import BINARY16
from hdl.fixed_shape import FixedShape
from hdl.parameters import Parameters, Range, option, parameter_object

PROBABILITY_BITS = 14
"""Bits of an FP16 code from 0 up to, but not including, 2: the upper two are zero."""

SQUARE_FRACTION = 40
"""Fraction bits of a square and of the sum of squares."""

ROOT_FRACTION = 14
"""Fraction bits of the root of l * Q - 1."""

COEFFICIENT_BITS = 13
"""Bits of the coefficients a and b."""

LARGEST_MEAN = 6144
"""The largest coefficient of the mean, 1.5: no threshold rounds to 2."""

COEFFICIENT_FRACTION = 12
"""Fraction bits of the coefficients a and b."""

QUOTIENT_FRACTION = 25
"""Fraction bits of a - b * root and of the quotient: one below the last bit of any FP16 number."""

STAGES = 5
"""Pipeline stages from an element to the sum of squares."""


@parameter_object
class VoteThresholdParameters(Parameters):
    """Dimensions of a threshold unit, its golden model and its testbench.

    Parameters
    ----------
    slots : int
        Maximum number of elements of a head.
    fallback : bool
        The paper's rule for a head whose threshold is negative: it votes against its least probable
        element. Without the fallback such a head casts no vote.

    Raises
    ------
    ValueError
        If a value is outside its range; the message states rule and value.
    """

    slots: Annotated[int, Range(4, 4096, "tokens")] = 4096
    fallback: bool = option(default=True)

    @property
    def slot_bits(self) -> int:
        """Bits of an element's index."""
        return ceil_log2(self.slots)

    @property
    def length_bits(self) -> int:
        """Bits of a number of elements."""
        return self.slots.bit_length()

    @property
    def excess_bits(self) -> int:
        """Bits of l * Q - 1, with `2 * ROOT_FRACTION` fraction bits."""
        return self.length_bits + 1 + 2 * ROOT_FRACTION

    @property
    def root_bits(self) -> int:
        """Bits of the root of l * Q - 1."""
        return (self.excess_bits + 1) // 2

    @property
    def quotient_bits(self) -> int:
        """Bits of a threshold before it is rounded."""
        return QUOTIENT_FRACTION + 1

    @property
    def interval(self) -> int:
        """Minimum number of cycles from a head's threshold to the next one."""
        steps = (self.length_bits, self.root_bits, COEFFICIENT_BITS, self.quotient_bits)
        return max(steps) + 1

    @property
    def latency(self) -> int:
        """Cycles from a head's last element to its threshold."""
        steps = (self.length_bits, self.root_bits, COEFFICIENT_BITS, self.quotient_bits)
        return STAGES + sum(step + 1 for step in steps) + 2

    @property
    def element_layout(self) -> data.StructLayout:
        """An element of a head."""
        return data.StructLayout({"value": BINARY16.layout, "last": 1})

    @property
    def coefficients_layout(self) -> data.StructLayout:
        """The paper's a and b, in units of 2**-12."""
        coefficient = FixedShape(COEFFICIENT_BITS, False, COEFFICIENT_FRACTION)
        return data.StructLayout({"mean": coefficient, "deviation": coefficient})

    @property
    def outcome_layout(self) -> data.StructLayout:
        """Threshold of a head, which determines its votes."""
        only_vote = {"fallback": 1, "lowest": self.slot_bits} if self.fallback else {}
        return data.StructLayout({"threshold": PROBABILITY_BITS, **only_vote})
