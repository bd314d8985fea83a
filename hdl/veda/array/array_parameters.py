"""Dimensions and stream layouts of VEDA's processing element (PE) array, Section IV, Figure 5."""

from typing import Annotated

from amaranth.lib import data, enum

from hdl.arith.float_format import BINARY16, FP29, NAMED_FORMATS, FloatFormat
from hdl.parameters import Named, Parameters, PowerOfTwo, Range, parameter_object
from hdl.veda.array.processing_element import require_element

SUM_FORMATS = NAMED_FORMATS | {"fp29": FP29}
"""Sum formats that can be selected by name."""


class ArrayMode(enum.Enum, shape=1):
    """The product that a beat computes: Figure 5's inner or outer product."""

    INNER = 0
    """Inner product: a dot product with the stationary vector."""

    OUTER = 1
    """Outer product: a scalar times a row of weights, accumulated over beats."""


@parameter_object
class FlexiblePeArrayParameters(Parameters):
    """Dimensions of the array; the hardware, the golden model and the testbench share them.

    Parameters
    ----------
    rows, columns : int
        Processing elements (PEs) of a plane, vertically and horizontally.
    planes : int
        Planes of PEs.
    sum_format : FloatFormat
        Format of products and sums: FP16, or a format in which all FP16 products are exact and
        normal.
    multiply_stages : int
        Register stages of a multiplier.
    add_stages : int
        Register stages of an adder; equal to the number of partial sums interleaved in it.
    partial_sums : int
        Maximum number of dot products longer than `width` that are in flight.

    Raises
    ------
    ValueError
        If a value is outside its range; the message states rule and value.
    """

    rows: Annotated[int, PowerOfTwo(2, 16, "rows")] = 8
    columns: Annotated[int, PowerOfTwo(2, 16, "columns")] = 8
    planes: Annotated[int, Range(1, 2, "planes")] = 2
    sum_format: Annotated[FloatFormat, Named(SUM_FORMATS)] = FP29
    multiply_stages: Annotated[int, Range(2, 3, "stages")] = 2
    add_stages: Annotated[int, Range(2, 4, "stages")] = 3
    partial_sums: Annotated[int, PowerOfTwo(2, 1024, "sums")] = 32

    def __post_init__(self) -> None:
        """Check rules that involve several fields."""
        super().__post_init__()
        require_element(self.sum_format, self.multiply_stages, self.add_stages)

    @property
    def plane_width(self) -> int:
        """PEs of a plane."""
        return self.rows * self.columns

    @property
    def width(self) -> int:
        """PEs of the array, and elements of a vector."""
        return self.plane_width * self.planes

    @property
    def levels(self) -> int:
        """Adders in series in an inner product: the plane's tree, then the planes' adder."""
        return self.plane_width.bit_length()

    @property
    def tree_latency(self) -> int:
        """Cycles from a beat to the sum of its products."""
        return self.multiply_stages + self.add_stages * self.levels

    @property
    def dot_latency(self) -> int:
        """Cycles from a beat to its dot product at the output stream."""
        # The tree, the accumulator of slices, and the rounder's register.
        return self.tree_latency + self.add_stages + 1

    @property
    def dot_depth(self) -> int:
        """Maximum number of dot products in flight: a full pipeline, for one new beat per cycle."""
        return self.dot_latency + 2

    @property
    def drain(self) -> int:
        """Cycles that an outer product waits after an inner one, until the tree is empty."""
        return self.add_stages * (self.levels - 1)

    @property
    def fold(self) -> int:
        """Cycles after a row's last beat in which the array adds up interleaved partial sums."""
        # Each of the other partial sums is added to the previous one as soon as that sum is
        # complete.
        return self.add_stages * (self.add_stages - 1)

    @property
    def row_latency(self) -> int:
        """Cycles from a row's last beat to its results at the output stream."""
        # The product, its addition, the fold, and the rounder's register.
        return self.multiply_stages + self.add_stages**2 + 1

    @property
    def header_layout(self) -> data.StructLayout:
        """Control fields of a beat."""
        flags = {"split": 1, "load_vector": 1, "first": 1, "last": 1}
        return data.StructLayout({"mode": ArrayMode, **flags})

    @property
    def operand_layout(self) -> data.StructLayout:
        """A beat: control fields, scalars and weights."""
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
        """Dot products, one per plane."""
        return data.ArrayLayout(BINARY16.layout, self.planes)
