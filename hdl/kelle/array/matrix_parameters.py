"""Dimensions of the systolic array with its accumulators and requantisers."""

from dataclasses import replace
from typing import Annotated

from amaranth.hdl import signed
from amaranth.lib import data
from amaranth.utils import ceil_log2

from hdl.kelle.array.output_stage import OutputStageParameters
from hdl.kelle.array.systolic_array import Moving
from hdl.kelle.array.tile_accumulator import TileAccumulatorParameters
from hdl.nonlinear.argmax import ArgmaxParameters
from hdl.parameters import PowerOfTwo, Range, option, parameter_object, require

RESULT = signed(16)
"""Shape of a result."""

SCALE = data.StructLayout({"scale": 16, "shift": 6})
"""Factor and shift of a requantiser."""

BIAS_BITS = 32
"""Bits of a bias, in units of the total that it is added to."""


@parameter_object
class MatrixUnitParameters(OutputStageParameters):
    """Dimensions of an array with accumulators and requantisers.

    Parameters
    ----------
    rows, bands, vectors, stages : int
        As in `OutputStageParameters`.
    activation_bits : int
        Bits of an element of a vector, 16 or 8.
    shared : int
        Lanes per requantiser, a power of two and a divisor of `rows`.
    spacing : int
        Minimum number of cycles between the results of two vectors, at least `shared`.
    scales : int
        Scales per lane.
    user_width : int
        Bits of `user`, which accompanies the results of a vector.
    compared : int
        Totals of the longest argmax; 0 if no totals are compared.
    biases : bool
        Whether totals start from biases.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    activation_bits: Annotated[int, PowerOfTwo(8, 16, "bits")] = 16
    shared: Annotated[int, PowerOfTwo(1, 64, "lanes")] = 8
    spacing: Annotated[int, Range(1, 64, "cycles")] = 8
    scales: Annotated[int, Range(2, 65536, "scales")] = 64
    user_width: Annotated[int, Range(1, 48, "bits")] = 16
    compared: Annotated[int, Range(0, 1 << 24, "totals")] = 0
    biases: bool = option(default=False)

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        rule = f"shared must be at most rows = {self.rows}"
        require(self.shared <= self.rows, rule, self.shared)
        rule = f"spacing must be at least shared = {self.shared}"
        require(self.spacing >= self.shared, rule, self.spacing)

    @property
    def moving(self) -> Moving:
        """Form of the moving operand; activations of 8 bits need one multiplier per element."""
        return Moving.WIDE if self.activation_bits == 16 else Moving.MODE8

    @property
    def accumulator(self) -> TileAccumulatorParameters:
        """Dimensions of the accumulators."""
        own = super().accumulator
        return replace(own, bias_bits=BIAS_BITS) if self.biases else own

    @property
    def scale_layout(self) -> data.StructLayout:
        """A lane's `scale` and `shift`, and its `bias` if there are biases."""
        bias = {"bias": signed(BIAS_BITS)} if self.biases else {}
        return data.StructLayout(SCALE.members | bias)

    @property
    def tag_layout(self) -> data.StructLayout:
        """Tag of a vector in the array: `step`, `done`, and `compares` with an argmax.

        With biases it has the word of scales as well, because all lanes need it.
        """
        return data.StructLayout(
            {"step": self.accumulator.step_layout, "done": 1}
            | ({"scale": ceil_log2(self.scales)} if self.biases else {})
            | ({"compares": 1} if self.compared else {})
        )

    @property
    def vector_layout(self) -> data.StructLayout:
        """The array's vector; its tag has the word of scales and the `user` of its results too."""
        members = dict(self.array.vector_layout.members)
        tag = data.StructLayout(self.tag_layout.members | self.total_layout.members)
        return data.StructLayout(members | {"tag": tag})

    @property
    def held(self) -> int:
        """Vectors whose totals wait for a requantiser or are in the array: two bursts."""
        return 2 * self.vectors

    @property
    def total_layout(self) -> data.StructLayout:
        """A total that is complete at lane 0: word of its `scale` and its `user`."""
        return data.StructLayout({"scale": ceil_log2(self.scales), "user": self.user_width})

    @property
    def coming_layout(self) -> data.StructLayout:
        """The result that is at lane 0 in the next cycle: its `user`, and whether it is `valid`."""
        return data.StructLayout({"user": self.user_width, "valid": 1})

    @property
    def largest_layout(self) -> data.StructLayout:
        """Argmax of the totals: the `number` of the largest, and the `total`."""
        bits = self.argmax.index_bits if self.compared else 0
        return data.StructLayout({"number": bits, "total": self.accumulator.shape})

    @property
    def argmax(self) -> ArgmaxParameters:
        """Dimensions of the argmax of totals, which the array outputs lane by lane."""
        return ArgmaxParameters(
            lanes=self.rows, length=self.compared, width=self.accumulator.width, skewed=True
        )

    @property
    def scales_layout(self) -> data.StructLayout:
        """A word of scales, one per lane, and its address."""
        return data.StructLayout(
            {
                "address": ceil_log2(self.scales),
                "values": data.ArrayLayout(self.scale_layout, self.rows),
            }
        )

    @property
    def result_layout(self) -> data.StructLayout:
        """Aligned results of a vector."""
        values = data.ArrayLayout(RESULT, self.rows)
        return data.StructLayout({"values": values, "user": self.user_width, "valid": 1})
