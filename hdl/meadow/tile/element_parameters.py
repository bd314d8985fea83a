"""Dimensions, settings and payloads of both kinds of hybrid processing elements (Section 3)."""

from dataclasses import dataclass, replace
from typing import Annotated

from amaranth.hdl import Shape, signed, unsigned
from amaranth.lib import data, enum
from amaranth.utils import ceil_log2

from hdl.parameters import (
    Parameters,
    PowerOfTwo,
    Range,
    named_fields,
    option,
    parameter_object,
    require,
)

OPERAND = signed(8)
"""A weight or an activation."""

SCALE_BITS = 16
"""Bits of a requantiser's scale."""


LEAST_SUM_BITS = 24
"""Minimum bits of an accumulator."""


class Mode(enum.Enum, shape=unsigned(1)):
    """Source of an element's inputs and destination of its results."""

    GEMM = 0
    """Inputs from the input register file, results through the output register file."""
    PIPELINED = 1
    """Inputs from the pipeline register (PREG), results directly to the next element."""


@dataclass(frozen=True, repr=False)
class ElementParts:
    """Parts of a processing element; by default all those of the paper's hybrid element.

    Members
    -------
    input_file : bool
        Input register file, which GEMM mode reads.
    pipeline_register : bool
        Pipeline register (PREG), which pipelined mode reads.
    weight_file : bool
        Weight register file; without it all weights are streamed.
    requantiser : bool
        Requantisation of sums to INT8.
    sums : bool
        Output of sums without requantisation.
    output_file : bool
        Output register file, which holds the INT8 results of GEMM mode.
    clamp : bool
        Clamp of requantised sums to INT8; without it they have 16 bits, but not in an output
        register file.
    outputs : int
        Outputs that a parallel element computes at the same time, 1 or 2; only without weight
        register file and requantiser.
    lookup : bool
        Products in lookup tables of an FPGA, not in its multipliers.
    """

    input_file: bool = True
    pipeline_register: bool = True
    weight_file: bool = True
    requantiser: bool = True
    sums: bool = True
    output_file: bool = True
    clamp: bool = True
    outputs: int = option(default=1)
    lookup: bool = option(default=False)

    def __repr__(self) -> str:
        """Return the constructor call, without options at their defaults."""
        values = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in named_fields(self))
        return f"{type(self).__qualname__}({values})"


HYBRID = ElementParts()
"""The element of Figure 2 (b, c), which switches between both modes."""

GEMM_ONLY = ElementParts(
    pipeline_register=False, weight_file=False, requantiser=False, output_file=False
)
"""An element of the first stage (Q): rows in a register file, streamed weights, exact sums."""

PAIRED = replace(GEMM_ONLY, outputs=2)
"""Two elements of the first stage that share their inputs, for multipliers of two products."""

PIPELINED_ONLY = ElementParts(input_file=False, weight_file=False, sums=False, output_file=False)
"""An element of QK or SM x V: operands from the previous stage, streamed weights, INT8 results."""


@parameter_object
class ElementParameters(Parameters):
    """Dimensions of a hybrid processing element; its golden model and testbench use them too.

    Parameters
    ----------
    multipliers : int
        Multipliers of an element, and operands in a word.
    input_file : int
        Words per bank of the double-buffered input register file.
    weight_file : int
        Words per bank of the double-buffered weight register file.
    output_file : int
        Results in the output register file.
    scalar_bits : int
        Bits of a broadcast scalar, including its sign.
    sum_bits : int
        Bits of an accumulator; passes longer than the register files may need more than the rules
        require.

    Raises
    ------
    ValueError
        If a value breaks a rule; the message names the rule and the value.
    """

    multipliers: Annotated[int, PowerOfTwo(2, 128, "multipliers")] = 64
    input_file: Annotated[int, PowerOfTwo(2, 1024, "words")] = 64
    weight_file: Annotated[int, PowerOfTwo(2, 1024, "words")] = 64
    output_file: Annotated[int, PowerOfTwo(2, 8192, "results")] = 4096
    scalar_bits: Annotated[int, Range(8, 17, "bits")] = 13
    sum_bits: Annotated[int, Range(LEAST_SUM_BITS, 40, "bits")] = 32

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        rule = "sum_bits must hold the sums over a row of the input register file"
        row = 2 * OPERAND.width + ceil_log2(self.input_file * self.multipliers)
        require(self.sum_bits >= row, rule, self.sum_bits)
        rule = "sum_bits must hold the sums over the weight register file"
        column = self.scalar_bits + OPERAND.width + ceil_log2(self.weight_file)
        require(self.sum_bits >= column, rule, self.sum_bits)

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

    def settings_layout(self, parts: ElementParts = HYBRID) -> data.StructLayout:
        """Return the settings of an element, constant during a block.

        `last_word` is the index of a row's last word. A setting that selects between parts exists
        only if the element has both.
        """
        shift = range(self.sum_bits + SCALE_BITS)
        settings = (
            ("mode", Mode, parts.input_file and parts.pipeline_register),
            ("streamed", 1, parts.weight_file),
            ("hold", 1, parts.weight_file),
            ("wide", 1, parts.requantiser and parts.sums),
            ("last_word", range(self.input_file), parts.input_file),
            ("scale", SCALE_BITS, parts.requantiser),
            ("shift", shift, parts.requantiser),
        )
        return data.StructLayout({name: shape for name, shape, present in settings if present})

    def weight_layout(self, parts: ElementParts) -> data.ArrayLayout:
        """Return a word of weights, or one word for each output."""
        if parts.outputs == 1:
            return self.word_layout
        return data.ArrayLayout(self.word_layout, parts.outputs)

    def stream_layouts(self, parts: ElementParts, row: data.StructLayout) -> dict[str, data.Layout]:
        """Return the payloads of an element's input streams; `row` is that of the pipeline."""
        streams = (
            ("inputs", self.block_layout, parts.input_file),
            ("weights", data.StructLayout({"word": self.weight_layout(parts), "last": 1}), True),
            ("pipeline", row, parts.pipeline_register),
        )
        return {name: layout for name, layout, present in streams if present}

    @property
    def result_layout(self) -> data.StructLayout:
        """A result; `last` ends a pass over the weights."""
        return data.StructLayout({"value": self.sum_shape, "last": 1})

    def results_layout(self, parts: ElementParts) -> data.StructLayout:
        """Return a result, or one for each output; `last` ends a pass over the weights."""
        if parts.outputs == 1:
            return self.result_layout
        values = data.ArrayLayout(self.sum_shape, parts.outputs)
        return data.StructLayout({"value": values, "last": 1})
