"""Accumulators below the systolic array: byte passes and channel tiles become one result.

Section 5.2 of the paper: partial sums leave the array for the accumulators. They stay skewed:
a lane works when its sum arrives, one cycle after the lane before it.
"""

from typing import Annotated, Any

from amaranth.hdl import Module, Mux, Shape, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.memory.memory import Memory
from hdl.parameters import Parameters, Range, option, parameter_object, require
from hdl.unit import Unit


@parameter_object
class TileAccumulatorParameters(Parameters):
    """Dimensions of a lane's accumulator; they also drive its golden model.

    Parameters
    ----------
    sum_width : int
        Bits of a sum of the array.
    width : int
        Bits of an accumulator.
    vectors : int
        Vectors whose results accumulate at a time.
    bias_bits : int
        Bits of the bias that a total begins with; 0 if it begins from zero.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    sum_width: Annotated[int, Range(8, 32, "bits")] = 29
    width: Annotated[int, Range(16, 48, "bits")] = 48
    vectors: Annotated[int, Range(2, 1024, "vectors")] = 16
    bias_bits: Annotated[int, Range(0, "width", "bits")] = option(default=0)

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        least = self.sum_width + 8
        require(self.width >= least, f"width must be at least sum_width + 8 = {least}", self.width)

    @property
    def index_width(self) -> int:
        """Bits of a vector's number."""
        return ceil_log2(self.vectors)

    @property
    def shape(self) -> Shape:
        """An accumulator."""
        return signed(self.width)

    @property
    def step_layout(self) -> data.StructLayout:
        """What is done with a sum."""
        return data.StructLayout({"first": 1, "high": 1, "index": self.index_width})


class TileAccumulator(Unit):
    """Add a lane's sums to the accumulator of their vector.

    A sum of upper bytes (`high`) counts 256-fold. The first sum of a vector begins from its bias,
    or from zero if there are none.

    **Latency** 1 cycle from `sum` to `total`. **Throughput** one sum a cycle, also for one vector
    again and again. **Numerics** exact modulo ``2**width``: 11 bits of headroom over the upper
    bytes' sums of a 32-row array hold 2048 tiles of the longest products.

    Parameters
    ----------
    parameters : TileAccumulatorParameters
        Dimensions.

    Members
    -------
    next_index : In
        `index` of the step that comes in the next cycle.
    step : In(struct)
        `first`, `high`, and the vector's `index`.
    sum : In
        What the array's lane delivers.
    valid : In(1)
        Whether there is a sum.
    bias : In
        With `bias_bits`, what the total begins with if the sum is its first.
    total : Out
        The accumulator with the sum of the cycle before.

    Raises
    ------
    ValueError
        By `TileAccumulatorParameters`.
    """

    def __init__(self, *, parameters: TileAccumulatorParameters) -> None:
        self.parameters = parameters
        bias = {"bias": In(signed(parameters.bias_bits))} if parameters.bias_bits else {}
        super().__init__(
            bias
            | {
                "next_index": In(parameters.index_width),
                "step": In(parameters.step_layout),
                "sum": In(signed(parameters.sum_width)),
                "valid": In(1),
                "total": Out(parameters.shape),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Add; keep the accumulators in a memory, and the last one at hand."""
        m = Module()
        p = self.parameters
        m.submodules.words = words = Memory(depth=p.vectors, width=p.width)
        # A vector's total is written while it is held: the memory lacks only the one held.
        held = Signal(p.shape, reset_less=True)
        index = Signal(p.index_width, reset_less=True)
        # Forwarding: the step that comes next is for the vector that is now being held.
        newest = Mux(self.valid, self.step.index, index)
        forward = Signal(reset_less=True)
        total = Signal(p.shape)
        earlier = Mux(forward, held, words.read_data.as_signed())
        # Upper bytes count 256-fold; only the last byte pass ends a total.
        scaled = Mux(self.step.high, self.sum << 8, self.sum)
        begins = self.bias if p.bias_bits else 0
        m.d.comb += [
            total.eq(Mux(self.step.first, begins, earlier) + scaled),
            words.read_enable.eq(1),
            words.read_address.eq(self.next_index),
            words.write_enable.eq(self.valid),
            words.write_address.eq(self.step.index),
            words.write_data.eq(total),
            self.total.eq(held),
        ]
        m.d.sync += [index.eq(newest), forward.eq(self.next_index == newest)]
        with m.If(self.valid):
            m.d.sync += held.eq(total)
        return m
