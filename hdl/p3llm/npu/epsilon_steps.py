"""The norms' epsilon in steps of a row."""

from amaranth.hdl import Module, Mux
from amaranth.lib.wiring import In, Out

from hdl.arith.integer_to_float import POINT
from hdl.arith.operator import Operator
from hdl.model_shape import NORM_EPSILON
from hdl.nonlinear.row_norm import EPSILON_BITS
from hdl.parameters import require_range


def step_table(width: int) -> dict[int, int]:
    """Return ``width * epsilon`` in squared steps of a row, by the row's binary point.

    Below the listed points the value is 0, above them all ones.
    """
    steps = {point: round(width * NORM_EPSILON * 4.0**point) for point in range(-10, 40)}
    return {point: value for point, value in steps.items() if 0 < value < 1 << EPSILON_BITS}


class EpsilonSteps(Operator):
    """Conversion of epsilon to the squared steps of a row, which are added to its sum of squares.

    **Latency** `stages` cycles. **Throughput** one row per cycle. **Numerics** rounded to nearest,
    at most all ones; at that value the squares of a row that fills 16 bits are far smaller.

    Parameters
    ----------
    width : int
        Elements of a row, 1 to 65536.
    stages : int
        Pipeline stages.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    point : In(POINT)
        Fraction bits of the row's integers.
    steps : Out(EPSILON_BITS)
        ``width * epsilon * 4 ** point``.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, width: int, stages: int = 0, enable: bool = False) -> None:
        require_range("width", width, 1, 1 << 16)
        self.width = width
        members = {"point": In(POINT), "steps": Out(EPSILON_BITS)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Select the table entry of the point."""
        m = Module()
        table = step_table(self.width)
        found = Mux(self.point > max(table), (1 << EPSILON_BITS) - 1, 0)
        for point, steps in table.items():
            found = Mux(self.point == point, steps, found)
        (steps,) = self.pipeline(m, cuts=1).cut(found)
        m.d.comb += self.steps.eq(steps)
        return m
