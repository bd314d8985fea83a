"""What the units between the NPU's number formats share: slices in, slices out, in lanes."""

from typing import Annotated, Any

import numpy as np
from amaranth.hdl import Module, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.parameters import Parameters, Range, parameter_object
from hdl.unit import Unit

FIXED_FRACTION = 10
"""Fraction bits of scores and of what SiLU takes and gives."""

ADD_STAGES = 4
"""Pipeline stages of a sum in binary32."""


def score_factor(head_size: int) -> int:
    """Return what makes a score in base 2 of a dot product over a head: binary32's code."""
    return int(np.float32(np.log2(np.e) / np.sqrt(head_size)).view(np.uint32))


@parameter_object
class NumberLanesParameters(Parameters):
    """Dimensions of lanes between number formats; they also drive the testbench.

    Parameters
    ----------
    lanes : int
        Numbers in a slice.

    Raises
    ------
    ValueError
        If it is not from 1 to 64.
    """

    lanes: Annotated[int, Range(1, 64, "numbers")] = 16

    @property
    def singles(self) -> data.ArrayLayout:
        """A slice of numbers in binary32."""
        return data.ArrayLayout(32, self.lanes)

    @property
    def slice_layout(self) -> data.StructLayout:
        """What comes in a slice."""
        raise NotImplementedError

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of numbers in binary32."""
        return data.StructLayout({"values": self.singles, "last": 1})


class NumberLanes(Unit):
    """The streams of a unit that makes a slice of numbers of every slice.

    Parameters
    ----------
    parameters : NumberLanesParameters
        Number of lanes.

    Members
    -------
    slices : In(stream)
        Of the parameters' `slice_layout`.
    results : Out(stream)
        Of their `result_layout`.
    """

    def __init__(self, *, parameters: NumberLanesParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "slices": In(stream.Signature(parameters.slice_layout)),
                "results": Out(stream.Signature(parameters.result_layout)),
            }
        )


def move_together(m: Module, source: Any, results: Any, stages: int) -> Value:
    """Connect the handshake of a unit whose stages all move together; return when."""
    # Nothing is held back inside: the whole pipeline stands, or all of it moves.
    move = ~results.valid | results.ready
    beside = {"enable": move, "cycles": stages}
    m.d.comb += [
        source.ready.eq(move),
        results.valid.eq(delay_line(m, source.valid, name="valid", reset=True, **beside)[-1]),
        results.payload.last.eq(delay_line(m, source.payload.last, name="last", **beside)[-1]),
    ]
    return move
