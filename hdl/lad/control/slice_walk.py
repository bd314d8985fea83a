"""A walk through slices: three loops, each with a stride of its own."""

from typing import Annotated, Any

from amaranth.hdl import Cat, Module, Shape, Signal, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.parameters import Parameters, Range, parameter_object
from hdl.unit import Unit

LOOPS = ("outer", "middle", "inner")
"""Of a walk."""


def walk_layout(place: Shape) -> data.StructLayout:
    """Return a walk's record: where it begins, and of each loop the rounds and the stride."""
    return data.StructLayout(
        {"base": place}
        | {name: data.StructLayout({"rounds": place, "stride": place}) for name in LOOPS}
    )


@parameter_object
class SliceWalkParameters(Parameters):
    """Dimensions of a walk; they also drive its testbench.

    Parameters
    ----------
    bits : int
        Of a place and of a number of rounds.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    bits: Annotated[int, Range(2, 24, "bits")] = 11

    @property
    def place(self) -> Shape:
        """Shape of a place."""
        return unsigned(self.bits)

    @property
    def walk_layout(self) -> data.StructLayout:
        """A walk's record."""
        return walk_layout(self.place)


class SliceWalk(Unit):
    """Go from place to place.

    Whoever has several walks at the same time can change between them wherever an inner loop ends.

    **Latency** `place` is there a cycle after `start`. **Throughput** a place a cycle.

    Parameters
    ----------
    parameters : SliceWalkParameters
        Dimensions.

    Members
    -------
    walk : In(struct)
        Stands from `start` to the walk's end; each loop has a round at least.
    start : In(1)
        Begin, also in the middle of another walk.
    advance : In(1)
        Go on; not beyond the end.
    place : Out(place)
        Where it is.
    middle : Out(place)
        The round of the middle loop.
    pauses, ends : Out(1)
        The inner loop is in its last round; so are all three.

    Raises
    ------
    ValueError
        By `SliceWalkParameters`.
    """

    def __init__(self, *, parameters: SliceWalkParameters) -> None:
        self.parameters = parameters
        place = parameters.place
        super().__init__(
            {
                "walk": In(parameters.walk_layout),
                "start": In(1),
                "advance": In(1),
                "place": Out(place),
                "middle": Out(place),
                "pauses": Out(1),
                "ends": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Each loop keeps the place where its round began: no stride is ever multiplied."""
        m = Module()
        place = self.parameters.place
        begins = {"inner": self.place} | {
            name: Signal(place, name=f"{name}_begin", reset_less=True)
            for name in ("middle", "outer")
        }
        rounds = {"middle": self.middle} | {
            name: Signal(place, name=f"{name}_round", reset_less=True)
            for name in ("outer", "inner")
        }
        last = {name: Signal(name=f"{name}_last") for name in LOOPS}
        # Rounds are compared one by one: none of the three loops knows the others' lengths.
        for name in LOOPS:
            m.d.comb += last[name].eq(rounds[name] == self.walk[name].rounds - 1)
        m.d.comb += [
            self.pauses.eq(last["inner"]),
            self.ends.eq(last["inner"] & last["middle"] & last["outer"]),
        ]
        with m.If(self.start):
            m.d.sync += [begin.eq(self.walk.base) for begin in begins.values()]
            m.d.sync += [count.eq(0) for count in rounds.values()]
        # The innermost loop that is not in its last round goes on; those in it begin anew there.
        with m.Elif(self.advance), m.Switch(Cat(last["inner"], last["middle"])):
            for pattern, name, anew in (
                ("-0", "inner", ()),
                ("01", "middle", ("inner",)),
                ("11", "outer", ("middle", "inner")),
            ):
                with m.Case(pattern):
                    following = begins[name] + self.walk[name].stride
                    m.d.sync += [begins[one].eq(following) for one in (name, *anew)]
                    m.d.sync += rounds[name].eq(rounds[name] + 1)
                    m.d.sync += [rounds[one].eq(0) for one in anew]
        return m
