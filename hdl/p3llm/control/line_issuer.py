"""One side's lines of the program, each when the other side is far enough."""

from typing import Any

from amaranth.hdl import Array, Const, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.unit import Unit


class LineIssuer(Unit):
    """Offer lines one behind the other; a line begins when the one before is done.

    **Latency** 2 cycles from a line's end to the next. **Throughput** a line at a time.

    Parameters
    ----------
    lines : tuple[int, ...]
        Lines as bits; the lowest `bits` say how many of the other side's must be done, the highest
        ones whose position counts.
    width, bits : int
        Bits of a line, and of a number of lines.
    requests : int
        Whose positions may count.
    second : int
        The line with which a second program begins, behind the first one's last; 0 if there is
        none.

    Members
    -------
    begin : In(1)
        Begin with the first line.
    choose : In(1)
        With it: the second program's first line, if there is one.
    others : In
        Lines of the other side that are done.
    early : In(1)
        The line that the other side has under way counts as done: it gives what it makes in order,
        and who reads that does not overtake it.
    instructions : Out(stream)
        A line's instruction.
    request : Out
        Until the line is done: whose position counts. Only of several requests.
    idle : In(1)
        What takes the lines has nothing under way.
    behind : Out(1)
        The line under way counts on one of the other side that is not done.
    done : Out
        Lines that are done.
    ended : Out(1)
        All are.
    """

    def __init__(
        self, *, lines: tuple[int, ...], width: int, bits: int, requests: int = 1, second: int = 0
    ) -> None:
        self.lines, self.width, self.bits = lines, width, bits
        self.requests, self.second = requests, second
        request_bits = ceil_log2(requests)
        super().__init__(
            {
                "begin": In(1),
                **({"choose": In(1)} if second else {}),
                "others": In(bits),
                "early": In(1),
                "instructions": Out(stream.Signature(width - bits - request_bits)),
                **({"request": Out(request_bits)} if request_bits else {}),
                "idle": In(1),
                "behind": Out(1),
                "done": Out(bits),
                "ended": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Fetch, wait for the other side, wait for the end."""
        m = Module()
        line = Signal(self.width)
        lines = Array(Const(bits, self.width) for bits in self.lines)
        instructions, after = self.instructions, line[: self.bits]
        m.d.comb += [
            instructions.payload.eq(line[self.bits :]),
            self.behind.eq(self.others < after),
        ]
        # A line stands until it is done.
        if self.requests > 1:
            m.d.comb += self.request.eq(line[-len(self.request) :])
        with m.FSM():
            # All lines are done, and `done` stays at their number: the other side may wait for it.
            with m.State("IDLE"):
                m.d.comb += self.ended.eq(1)
                with m.If(self.begin):
                    # Lines of the other program count as done: both sides pass over theirs.
                    m.d.sync += self.done.eq(Mux(self.choose, self.second, 0) if self.second else 0)
                    m.next = "FETCH"
            # The program is a table of constants.
            with m.State("FETCH"):
                m.d.sync += line.eq(lines[self.done])
                m.next = "ISSUE"
            # What this line reads must be there, what it overwrites read.
            with m.State("ISSUE"):
                m.d.comb += instructions.valid.eq(self.others + self.early >= after)
                with m.If(instructions.valid & instructions.ready):
                    m.next = "WAIT"
            # One line at a time: the next one may need what this one writes.
            with m.State("WAIT"):
                with m.If(self.idle):
                    m.d.sync += self.done.eq(self.done + 1)
                    m.next = "FETCH"
                    with m.If(self.done == len(self.lines) - 1):
                        m.next = "IDLE"
                    if self.second:
                        with m.If(self.done == self.second - 1):
                            m.next = "IDLE"
        return m
