"""Nested-loop address generator: three loops, each with its own stride."""

from typing import Annotated

from amaranth.hdl import Cat, Module, Shape, Signal, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.lad.instructions import LOOPS, loops_layout
from hdl.parameters import Parameters, Range, parameter_object
from hdl.unit import Unit


@parameter_object
class SliceWalkParameters(Parameters):
    """Dimensions of the address generator; they also configure its testbench.

    Parameters
    ----------
    bits : int
        Bits of an address and of a number of rounds.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    bits: Annotated[int, Range(2, 24, "bits")] = 11

    @property
    def address(self) -> Shape:
        """Shape of an address."""
        return unsigned(self.bits)

    @property
    def loops_layout(self) -> data.StructLayout:
        """Record of a sequence of addresses."""
        return loops_layout(self.address)


class SliceWalk(Unit):
    """Generate the addresses of three nested loops.

    Several sequences can be interleaved wherever an inner loop ends.

    **Latency** 1 cycle from `start` to `address`. **Throughput** one address per cycle.

    Parameters
    ----------
    parameters : SliceWalkParameters
        Bits of an address.

    Members
    -------
    loops : In(struct)
        Base and loops, constant from `start` to the end of the sequence; each loop has at least one
        round.
    start : In(1)
        Begin a sequence, also in the middle of another one.
    advance : In(1)
        Move to the next address; not beyond the end.
    address : Out(address)
        The current address.
    middle : Out(address)
        The round of the middle loop.
    inner_ends, ends : Out(1)
        The inner loop is in its last round; all three loops are.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `SliceWalkParameters`.
    """

    def __init__(self, *, parameters: SliceWalkParameters) -> None:
        self.parameters = parameters
        address = parameters.address
        super().__init__(
            {
                "loops": In(parameters.loops_layout),
                "start": In(1),
                "advance": In(1),
                "address": Out(address),
                "middle": Out(address),
                "inner_ends": Out(1),
                "ends": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Store the address at which each loop's round began, so that no stride is multiplied."""
        m = Module()
        address = self.parameters.address
        begins = {"inner": self.address} | {
            name: Signal(address, name=f"{name}_begin", reset_less=True)
            for name in ("middle", "outer")
        }
        rounds = {"middle": self.middle} | {
            name: Signal(address, name=f"{name}_round", reset_less=True)
            for name in ("outer", "inner")
        }
        last = {name: Signal(name=f"{name}_last") for name in LOOPS}
        # Each loop compares its own round with its own number of rounds.
        for name in LOOPS:
            m.d.comb += last[name].eq(rounds[name] == self.loops[name].rounds - 1)
        m.d.comb += [
            self.inner_ends.eq(last["inner"]),
            self.ends.eq(last["inner"] & last["middle"] & last["outer"]),
        ]
        with m.If(self.start):
            m.d.sync += [begin.eq(self.loops.base) for begin in begins.values()]
            m.d.sync += [count.eq(0) for count in rounds.values()]
        # The innermost loop that is not in its last round advances; the loops inside it start
        # again.
        with m.Elif(self.advance), m.Switch(Cat(last["inner"], last["middle"])):
            for pattern, name, anew in (
                ("-0", "inner", ()),
                ("01", "middle", ("inner",)),
                ("11", "outer", ("middle", "inner")),
            ):
                with m.Case(pattern):
                    following = begins[name] + self.loops[name].stride
                    m.d.sync += [begins[one].eq(following) for one in (name, *anew)]
                    m.d.sync += rounds[name].eq(rounds[name] + 1)
                    m.d.sync += [rounds[one].eq(0) for one in anew]
        return m
