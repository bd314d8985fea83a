"""The argmax of logits, which arrive as binary32 in slices; not in the paper."""

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
"""Bits of a logit."""


@parameter_object
class LogitArgmaxParameters(Parameters):
    """Dimensions of an argmax of logits.

    Parameters
    ----------
    lanes : int
        Logits per slice.
    requests : int
        Number of requests, each with an argmax of its own.
    vocabulary : int
        Maximum number of logits per request, rounded up to whole slices.

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
        """A slice of logits."""
        return data.ArrayLayout(WIDTH, self.lanes)

    @property
    def slices(self) -> int:
        """Maximum number of slices per request."""
        return -(-self.vocabulary // self.lanes)

    @property
    def token_bits(self) -> int:
        """Bits of a token."""
        return max(ceil_log2(self.slices * self.lanes), 1)


class LogitArgmax(Unit):
    """Find the argmax of the logits since `clear`, for each request in flight.

    **Latency** ``log2(lanes) + 1`` cycles. **Throughput** one slice per cycle. **Numerics** exact:
    logits in binary32 are compared in IEEE 754's total order, so that ``-0`` is less than ``0``.
    Ties resolve to the lowest token.

    Parameters
    ----------
    parameters : LogitArgmaxParameters
        Lanes, requests and vocabulary.

    Members
    -------
    request : In
        Request to which `values`, `clear`, `token` and `sum` belong. Only with several requests.
    values : In(array)
        A slice of logits in binary32.
    strobe : In(1)
        The slice is valid.
    last : In(1)
        The slice is the last one of a piece of the LM head.
    compared : Out(1)
        The last slice of a piece has been compared.
    clear : In(1)
        Restart the argmax; not while a slice of the request is in flight.
    token : Out
        Index of the largest logit, counted from 0 since `clear`; 0 if there was no slice.
    sum : Out(32)
        The largest logit; undefined if there was no slice.
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
        """Compare the logits as integers of the same order."""
        m, p = Module(), self.parameters
        argmaxes = [
            RunningArgmax(lanes=p.lanes, width=WIDTH, number_bits=p.token_bits)
            for _ in range(p.requests)
        ]
        # A piece is complete when its last slice has passed the comparator tree.
        latency = argmaxes[0].latency
        ends = delay_line(m, self.strobe & self.last, latency, name="ends", reset=True)
        m.d.comb += self.compared.eq(ends[-1])
        for number, argmax in enumerate(argmaxes):
            m.submodules[f"argmax{number or ''}"] = argmax
            values = zip(argmax.values, self.values, strict=True)
            m.d.comb += [own.eq(in_order(value)) for own, value in values]
            # The argmaxes of other requests are not changed.
            with m.If(self.request == number) if p.requests > 1 else nullcontext():
                m.d.comb += [
                    argmax.strobe.eq(self.strobe),
                    argmax.clear.eq(self.clear),
                    self.token.eq(argmax.number),
                    self.sum.eq(in_order(argmax.largest.as_unsigned())),
                ]
        return m


def in_order(number: Value) -> Value:
    """Map binary32 numbers to integers of the same order; the map is its own inverse."""
    # A negative number is smaller the larger its magnitude: invert all bits but the sign.
    return number ^ Cat(number[WIDTH - 1].replicate(WIDTH - 1), Const(0, 1))
