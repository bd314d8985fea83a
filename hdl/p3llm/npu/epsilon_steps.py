"""The norms' epsilon in a row's own steps."""

from amaranth.hdl import Module, Mux
from amaranth.lib.wiring import In, Out

from hdl.arith.integer_to_float import POINT
from hdl.arith.operator import Operator
from hdl.nonlinear.row_norm import EPSILON_BITS
from hdl.parameters import require_range

EPSILON = 1e-5
"""Of the norms, as the models have it."""


def step_table(width: int) -> dict[int, int]:
    """Return ``width * epsilon`` in squared steps of a row, by the row's binary point.

    Below the points that are listed it is 0, above them all ones.
    """
    steps = {point: round(width * EPSILON * 4.0**point) for point in range(-10, 40)}
    return {point: value for point, value in steps.items() if 0 < value < 1 << EPSILON_BITS}


class EpsilonSteps(Operator):
    """Epsilon is a number, a row counts in steps: this is what is added to its squares' sum.

    **Latency** `stages` cycles. **Throughput** a row a cycle. **Numerics** rounded to nearest, and
    at most all ones: there the squares of a row that fills 16 bits are far smaller.

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
        """Look the point up."""
        m = Module()
        table = step_table(self.width)
        found = Mux(self.point > max(table), (1 << EPSILON_BITS) - 1, 0)
        for point, steps in table.items():
            found = Mux(self.point == point, steps, found)
        (steps,) = self.pipeline(m, cuts=1).cut(found)
        m.d.comb += self.steps.eq(steps)
        return m
