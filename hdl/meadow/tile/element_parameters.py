"""What both kinds of hybrid processing elements share: dimensions, settings and payloads."""

from typing import Annotated

from amaranth.hdl import Shape, signed, unsigned
from amaranth.lib import data, enum

from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object

OPERAND = signed(8)
"""A weight or an activation."""

SCALE_BITS = 16


class Mode(enum.Enum, shape=unsigned(1)):
    """Where an element takes its inputs from, and where its results go."""

    GEMM = 0
    """Inputs from the input register file, results through the output register file."""
    PIPELINED = 1
    """Inputs from the pipeline register, results at once to the next element."""


@parameter_object
class ElementParameters(Parameters):
    """Dimensions of a hybrid processing element; they also drive its model and its testbench.

    Parameters
    ----------
    multipliers : int
        Multipliers of an element, and operands in a word.
    input_file : int
        Words of the input register file, of which there are two.
    weight_file : int
        Words of the weight register file, of which there are two.
    output_file : int
        Results in the output register file.
    scalar_bits : int
        Bits of a scalar that is broadcast, its sign included.
    sum_bits : int
        Bits of an accumulator.
    """

    multipliers: Annotated[int, PowerOfTwo(2, 128, "multipliers")] = 64
    input_file: Annotated[int, PowerOfTwo(2, 1024, "words")] = 64
    weight_file: Annotated[int, PowerOfTwo(2, 1024, "words")] = 64
    output_file: Annotated[int, PowerOfTwo(2, 8192, "results")] = 4096
    scalar_bits: Annotated[int, Range(8, 17, "bits")] = 13
    sum_bits: Annotated[int, Range(24, 40, "bits")] = 32

    @property
    def word_layout(self) -> data.ArrayLayout:
        """A word of operands."""
        return data.ArrayLayout(OPERAND, self.multipliers)

    @property
    def block_layout(self) -> data.StructLayout:
        """A word of a block; `last` ends the block."""
        return data.StructLayout({"word": self.word_layout, "last": 1})

    @property
    def vector_layout(self) -> data.StructLayout:
        """A word for the pipeline register of a parallel element."""
        return data.StructLayout({"word": self.word_layout})

    @property
    def scalar_layout(self) -> data.StructLayout:
        """A scalar for the pipeline register of a broadcasting element."""
        return data.StructLayout({"value": signed(self.scalar_bits)})

    @property
    def sum_shape(self) -> Shape:
        """An accumulator."""
        return signed(self.sum_bits)

    @property
    def settings_layout(self) -> data.StructLayout:
        """What stands while an element works; `chunks` is one less than words a row."""
        return data.StructLayout(
            {
                "mode": Mode,
                "streamed": 1,
                "hold": 1,
                "wide": 1,
                "chunks": range(self.input_file),
                "scale": SCALE_BITS,
                "shift": range(self.sum_bits + SCALE_BITS),
            }
        )

    @property
    def result_layout(self) -> data.StructLayout:
        """A result; `last` ends a pass over the weights."""
        return data.StructLayout({"value": self.sum_shape, "last": 1})
