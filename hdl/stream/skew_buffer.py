"""The delays by which a systolic array's edges put a vector on a slant."""

from typing import Any

from amaranth.hdl import Cat, Module, Shape, ShapeLike, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.unit import Unit


class SkewBuffer(Unit):
    """Delay lanes by their number: lane k by k times `step` cycles.

    **Latency** k * step cycles for lane k. **Throughput** one value a lane and cycle.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a lane's values; hashable.
    lanes : int
        Number of lanes, 1 to 64.
    step : int
        Cycles by which a lane is later than the one before, 1 to 64.

    Members
    -------
    aligned : In(ArrayLayout(shape, lanes))
        Values of one vector in one cycle.
    skewed : Out(ArrayLayout(shape, lanes))
        The same, each lane later.

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    def __init__(self, *, shape: ShapeLike, lanes: int, step: int = 1) -> None:
        require_range("lanes", lanes, 1, 64)
        require_range("step", step, 1, 64)
        self.shape, self.lanes, self.step = shape, lanes, step
        layout = data.ArrayLayout(shape, lanes)
        super().__init__({"aligned": In(layout), "skewed": Out(layout)})

    def elaborate(self, platform: Any) -> Module:
        """Build one shift register a lane."""
        m = Module()
        width = Shape.cast(self.shape).width
        for lane in range(self.lanes):
            value = self.aligned.as_value().word_select(lane, width)
            if depth := lane * self.step:
                # One wide register is a whole lane: simulators move it in one step.
                line = Signal(depth * width, name=f"line_{lane}", reset_less=True)
                m.d.sync += line.eq(Cat(value, line))
                value = line[-width:]
            m.d.comb += self.skewed.as_value().word_select(lane, width).eq(value)
        return m
