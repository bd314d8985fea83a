"""Skew delays at the edges of a systolic array."""

from amaranth.hdl import Cat, Module, Shape, ShapeLike, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.unit import Unit


class SkewBuffer(Unit):
    """Delay lane k by k times `step` cycles.

    **Latency** k * step cycles for lane k. **Throughput** one value per lane and cycle.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a lane's values; hashable.
    lanes : int
        Number of lanes, 1 to 64.
    step : int
        Delay from one lane to the next in cycles, 1 to 64.

    Members
    -------
    aligned : In(ArrayLayout(shape, lanes))
        Values of one vector, in one cycle.
    skewed : Out(ArrayLayout(shape, lanes))
        The same values, with the delay of each lane.

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

    def elaborate(self, platform: object) -> Module:
        """Build one shift register per lane."""
        m = Module()
        width = Shape.cast(self.shape).width
        for lane in range(self.lanes):
            value = self.aligned.as_value().word_select(lane, width)
            if depth := lane * self.step:
                # One wide register per lane: simulators update it in one operation.
                line = Signal(depth * width, name=f"line_{lane}", reset_less=True)
                m.d.sync += line.eq(Cat(value, line))
                value = line[-width:]
            m.d.comb += self.skewed.as_value().word_select(lane, width).eq(value)
        return m
