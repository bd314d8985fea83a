"""Common parts of the units that convert between the NPU's number formats."""

from typing import Annotated

import numpy as np
from amaranth.hdl import Module, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_to_fixed import RESULT
from hdl.fixed_shape import FixedShape
from hdl.parameters import Parameters, Range, parameter_object
from hdl.unit import Unit

FIXED_FRACTION = 10
"""Fraction bits of scores, and of operands and results of SiLU."""

ADD_STAGES = 4
"""Pipeline stages of an addition in binary32."""


def score_factor(head_size: int) -> int:
    """Return ``log2(e) / sqrt(head_size)`` as a binary32 code."""
    return int(np.float32(np.log2(np.e) / np.sqrt(head_size)).view(np.uint32))


@parameter_object
class NumberLanesParameters(Parameters):
    """Dimensions of lanes between number formats.

    Parameters
    ----------
    lanes : int
        Numbers per slice.

    Raises
    ------
    ValueError
        If the number of lanes is not from 1 to 64.
    """

    lanes: Annotated[int, Range(1, 64, "numbers")] = 16

    @property
    def singles(self) -> data.ArrayLayout:
        """A slice of numbers in binary32."""
        return data.ArrayLayout(32, self.lanes)

    @property
    def fixed(self) -> data.ArrayLayout:
        """A slice of numbers in Q6.10."""
        shape = FixedShape(RESULT.width, RESULT.signed, FIXED_FRACTION)
        return data.ArrayLayout(shape, self.lanes)

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of operands."""
        raise NotImplementedError

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of numbers in binary32."""
        return data.StructLayout({"values": self.singles, "last": 1})


class NumberLanes(Unit):
    """Base of the units that convert each slice of operands to a slice of results.

    Parameters
    ----------
    parameters : NumberLanesParameters
        Number of lanes.

    Members
    -------
    slices : In(stream)
        Operands, in the parameters' `slice_layout`.
    results : Out(stream)
        Results, in the parameters' `result_layout`.
    """

    def __init__(self, *, parameters: NumberLanesParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "slices": In(stream.Signature(parameters.slice_layout)),
                "results": Out(stream.Signature(parameters.result_layout)),
            }
        )


def move_together(
    m: Module, source: stream.Interface, results: stream.Interface, stages: int
) -> Value:
    """Connect the handshake of a unit whose stages advance together; return their enable."""
    # Stages do not stall individually: the whole pipeline advances or is held.
    move = ~results.valid | results.ready
    beside = {"enable": move, "cycles": stages}
    m.d.comb += [
        source.ready.eq(move),
        results.valid.eq(delay_line(m, source.valid, name="valid", reset=True, **beside)[-1]),
        results.payload.last.eq(delay_line(m, source.payload.last, name="last", **beside)[-1]),
    ]
    return move
