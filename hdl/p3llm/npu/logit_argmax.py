"""The token of the largest of the vocabulary's sums, which come as binary32 in slices."""

from contextlib import nullcontext
from typing import Annotated, Any

from amaranth.hdl import Cat, Const, Module, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.arith.running_argmax import RunningArgmax
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object
from hdl.unit import Unit

WIDTH = 32
"""Bits of a sum."""


@parameter_object
class LogitArgmaxParameters(Parameters):
    """Dimensions of an argmax of logits; they also drive its testbench.

    Parameters
    ----------
    lanes : int
        Sums of a slice.
    requests : int
        Whose sums are compared side by side.
    vocabulary : int
        Sums of a request at most, filled up to whole slices.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    lanes: Annotated[int, PowerOfTwo(1, 64, "sums")] = 16
    requests: Annotated[int, Range(1, 8, "requests")] = 1
    vocabulary: Annotated[int, Range(1, 1 << 18, "tokens")] = 49152

    @property
    def slice_layout(self) -> data.ArrayLayout:
        """A slice of sums."""
        return data.ArrayLayout(WIDTH, self.lanes)

    @property
    def slices(self) -> int:
        """Slices of a request at most."""
        return -(-self.vocabulary // self.lanes)

    @property
    def token_bits(self) -> int:
        """Bits of a sum's number."""
        return max(ceil_log2(self.slices * self.lanes), 1)


class LogitArgmax(Unit):
    """Find the first of the largest sums since `clear`, of each request that is under way.

    **Latency** ``log2(lanes) + 1`` cycles. **Throughput** one slice per cycle. **Numerics** exact: sums
    in binary32 are compared in IEEE 754's total order, so that ``-0`` is less than ``0``; of equal
    ones the one of the smallest number is taken.

    Parameters
    ----------
    parameters : LogitArgmaxParameters
        Lanes, requests and vocabulary.

    Members
    -------
    request : In
        Whose sums come, are cleared and shown. Only of several requests.
    values : In(array)
        A slice.
    strobe : In(1)
        It counts.
    last : In(1)
        It is the last one of a piece of the vocabulary.
    compared : Out(1)
        A piece's last slice has been compared.
    clear : In(1)
        Begin anew; not while a slice of the request is under way.
    token : Out
        Number of the largest, counted from 0 since `clear`; 0 if there was none.
    sum : Out(32)
        It; only if there was one.
    """

    def __init__(self, *, parameters: LogitArgmaxParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                **({"request": In(range(p.requests))} if p.requests > 1 else {}),
                "values": In(p.slice_layout),
                "strobe": In(1),
                "last": In(1),
                "compared": Out(1),
                "clear": In(1),
                "token": Out(p.token_bits),
                "sum": Out(WIDTH),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Compare integers of the numbers' order."""
        m, p = Module(), self.parameters
        argmaxes = [
            RunningArgmax(lanes=p.lanes, width=WIDTH, number_bits=p.token_bits)
            for _ in range(p.requests)
        ]
        # The piece ends when nothing of it is under way between the lanes.
        latency = argmaxes[0].latency
        ends = delay_line(m, self.strobe & self.last, latency, name="ends", reset=True)
        m.d.comb += self.compared.eq(ends[-1])
        for number, argmax in enumerate(argmaxes):
            m.submodules[f"argmax{number or ''}"] = argmax
            values = zip(argmax.values, self.values, strict=True)
            m.d.comb += [own.eq(in_order(value)) for own, value in values]
            # The others keep what they have found.
            with m.If(self.request == number) if p.requests > 1 else nullcontext():
                m.d.comb += [
                    argmax.strobe.eq(self.strobe),
                    argmax.clear.eq(self.clear),
                    self.token.eq(argmax.number),
                    self.sum.eq(in_order(argmax.largest.as_unsigned())),
                ]
        return m


def in_order(number: Value) -> Value:
    """Return a binary32 number as an integer of its order, or the number of such an integer."""
    # Of negative numbers the larger magnitude is the smaller one: all bits but the sign turn.
    return number ^ Cat(number[WIDTH - 1].replicate(WIDTH - 1), Const(0, 1))
