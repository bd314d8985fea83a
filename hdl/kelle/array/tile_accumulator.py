"""Accumulators below the systolic array, which add up byte passes and channel tiles.

Section 5.2 of the paper: the array outputs partial sums to the accumulators. The sums are skewed:
each lane's accumulator operates one cycle after that of the previous lane.
"""

from typing import Annotated

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
        Vectors whose results accumulate concurrently.
    bias_bits : int
        Bits of the bias that a total starts from; 0 if totals start from zero.

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
        """Shape of an accumulator."""
        return signed(self.width)

    @property
    def step_layout(self) -> data.StructLayout:
        """Instruction for a sum: `first`, `high`, and the `index` of its vector."""
        return data.StructLayout({"first": 1, "high": 1, "index": self.index_width})


class TileAccumulator(Unit):
    """Add a lane's sums to the accumulator of their vector.

    A sum of upper bytes (`high`) is multiplied by 256. The first sum of a vector is added to the
    bias, or to zero without biases.

    **Latency** 1 cycle from `sum` to `total`. **Throughput** one sum per cycle, also for the same
    vector in successive cycles. **Numerics** exact modulo ``2**width``: 11 bits of headroom over
    the upper bytes' sums of a 32-row array hold 2048 tiles of the largest products.

    Parameters
    ----------
    parameters : TileAccumulatorParameters
        Bits of sums, accumulators and biases, and the number of vectors.

    Members
    -------
    next_index : In
        `index` of the step in the next cycle.
    step : In(struct)
        `first`, `high`, and the vector's `index`.
    sum : In
        Sum of the array's lane.
    valid : In(1)
        Whether `step` and `sum` are valid.
    bias : In
        With `bias_bits`, start value of the total if the sum is its first.
    total : Out
        The accumulator, with the sum of the previous cycle.

    Raises
    ------
    ValueError
        If `TileAccumulatorParameters` rejects a dimension.
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

    def elaborate(self, platform: object) -> Module:
        """Add; store the accumulators in a memory, and the last one in a register."""
        m = Module()
        p = self.parameters
        m.submodules.words = words = Memory(depth=p.vectors, width=p.width)
        # A total is written while it is held: only the held total may be missing in the memory.
        held = Signal(p.shape, reset_less=True)
        index = Signal(p.index_width, reset_less=True)
        # Forwarding: the next step is for the vector whose total is held.
        newest = Mux(self.valid, self.step.index, index)
        forward = Signal(reset_less=True)
        total = Signal(p.shape)
        earlier = Mux(forward, held, words.read_data.as_signed())
        # Sums of upper bytes are multiplied by 256; the last byte pass completes a total.
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
