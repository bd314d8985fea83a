"""Position of a word inside a beat of several words."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_power_of_two
from hdl.unit import Unit


class LaneCounter(Unit):
    """Count the lanes of the beats of a burst.

    The first beat of a burst begins in lane `first`; all further beats begin in lane 0. A flag
    marks the first word of a burst, because `first` of the next burst is not known when the present
    one ends.

    **Latency** 0 cycles. **Throughput** one lane per cycle.

    Parameters
    ----------
    lanes : int
        Words per beat, a power of two from 2 to 64.

    Members
    -------
    first : In(range(lanes))
        Lane of the burst's first word.
    end : In(range(lanes))
        Lane of the present beat's last word.
    burst_ends : In(1)
        The present beat is the last of the burst.
    step : In(1)
        The word of the present lane is transferred.
    restart : In(1)
        Continue with the first word of a burst.
    lane : Out(range(lanes))
        The present lane.
    ends : Out(1)
        The present lane is the last of its beat.

    Raises
    ------
    ValueError
        If `lanes` is not legal.
    """

    def __init__(self, *, lanes: int) -> None:
        require_power_of_two("lanes", lanes, 2, 64)
        self.lanes = lanes
        lane = range(lanes)
        super().__init__(
            {
                "first": In(lane),
                "end": In(lane),
                "burst_ends": In(1),
                "step": In(1),
                "restart": In(1),
                "lane": Out(lane),
                "ends": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Use `first` for the first word, and the counter afterwards."""
        m = Module()
        following = Signal(range(self.lanes), reset_less=True)
        fresh = Signal(init=1)
        # `fresh` marks the first word of a burst.
        m.d.comb += [
            self.lane.eq(Mux(fresh, self.first, following)),
            self.ends.eq(self.lane == self.end),
        ]
        with m.If(self.step):
            # Lane 0 follows the last lane.
            m.d.sync += [following.eq(self.lane + 1), fresh.eq(self.ends & self.burst_ends)]
        with m.If(self.restart):
            m.d.sync += fresh.eq(1)
        return m
