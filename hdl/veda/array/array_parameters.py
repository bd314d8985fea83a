"""What VEDA's array, its sequencer, its model and its testbench have in common."""

from typing import Annotated

from amaranth.lib import data, enum

from hdl.arith.float_format import BINARY16, FP29, NAMED_FORMATS, FloatFormat
from hdl.parameters import Named, Parameters, PowerOfTwo, Range, parameter_object
from hdl.veda.array.processing_element import require_element

SUM_FORMATS = NAMED_FORMATS | {"fp29": FP29}
"""The formats of sums that have a name."""


class ArrayMode(enum.Enum, shape=1):
    """Which product a beat belongs to."""

    INNER = 0
    """A dot product with the stationary vector."""

    OUTER = 1
    """A scalar times a row, added to the row's sums."""


@parameter_object
class FlexiblePeArrayParameters(Parameters):
    """Dimensions of the array; they also drive its golden model and its testbench.

    Parameters
    ----------
    rows, columns : int
        Elements of a plane, down and across.
    planes : int
        Planes of elements.
    sum_format : FloatFormat
        Of products and sums: FP16, or a format in which all products are exact and normal.
    multiply_stages : int
        Register stages of a multiplier.
    add_stages : int
        Register stages of an adder, and partial sums interleaved in it.
    partial_sums : int
        Dot products of more than `width` elements that may be under way.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    rows: Annotated[int, PowerOfTwo(2, 16, "rows")] = 8
    columns: Annotated[int, PowerOfTwo(2, 16, "columns")] = 8
    planes: Annotated[int, Range(1, 2, "planes")] = 2
    sum_format: Annotated[FloatFormat, Named(SUM_FORMATS)] = FP29
    multiply_stages: Annotated[int, Range(2, 3, "stages")] = 2
    add_stages: Annotated[int, Range(2, 4, "stages")] = 3
    partial_sums: Annotated[int, PowerOfTwo(2, 1024, "sums")] = 32

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        require_element(self.sum_format, self.multiply_stages, self.add_stages)

    @property
    def plane_width(self) -> int:
        """Elements of a plane."""
        return self.rows * self.columns

    @property
    def width(self) -> int:
        """Elements of the array, and of a vector."""
        return self.plane_width * self.planes

    @property
    def levels(self) -> int:
        """Adders on the way of an inner product: the plane's tree and the one behind it."""
        return self.plane_width.bit_length()

    @property
    def tree_latency(self) -> int:
        """Cycles from a beat to the sum of its products."""
        return self.multiply_stages + self.add_stages * self.levels

    @property
    def dot_latency(self) -> int:
        """Cycles from a beat to its dot product on the stream."""
        # The tree, the accumulator behind it, and the rounder's register.
        return self.tree_latency + self.add_stages + 1

    @property
    def dot_depth(self) -> int:
        """Dot products that may be under way: a whole pipeline, so that one enters each cycle."""
        return self.dot_latency + 2

    @property
    def drain(self) -> int:
        """Cycles that an outer product waits behind an inner one, until the tree is empty."""
        return self.add_stages * (self.levels - 1)

    @property
    def fold(self) -> int:
        """Cycles behind a row's last element in which the array joins partial sums."""
        # All partial sums but one are added to the one before, each when that sum has come out.
        return self.add_stages * (self.add_stages - 1)

    @property
    def row_latency(self) -> int:
        """Cycles from a row's last element to its results on the stream."""
        # The product, its own sum, the fold, and the rounder's register.
        return self.multiply_stages + self.add_stages**2 + 1

    @property
    def header_layout(self) -> data.StructLayout:
        """A beat without its numbers."""
        flags = {"split": 1, "load_vector": 1, "first": 1, "last": 1}
        return data.StructLayout({"mode": ArrayMode, **flags})

    @property
    def operand_layout(self) -> data.StructLayout:
        """A beat."""
        half = BINARY16.layout
        numbers = {
            "scalars": data.ArrayLayout(half, self.planes),
            "weights": data.ArrayLayout(half, self.width),
        }
        return data.StructLayout({**dict(self.header_layout.members), **numbers})

    @property
    def vector_layout(self) -> data.ArrayLayout:
        """A stationary vector, or a row of results."""
        return data.ArrayLayout(BINARY16.layout, self.width)

    @property
    def dot_layout(self) -> data.ArrayLayout:
        """Dot products: one a plane."""
        return data.ArrayLayout(BINARY16.layout, self.planes)
