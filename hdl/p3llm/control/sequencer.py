"""The instruction issuer of one side."""

from amaranth.hdl import Array, Const, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.unit import Unit


class LineIssuer(Unit):
    """Issue the instructions of one side sequentially, with waits for the other side.

    **Latency** 2 cycles from the end of an instruction to the next. **Throughput** one instruction
    at a time.

    Parameters
    ----------
    lines : tuple[int, ...]
        Encoded instructions: the lowest `bits` hold the number of instructions of the other side
        that must be complete, the highest ones the request.
    width, bits : int
        Bits of an encoded instruction, and of an instruction count.
    requests : int
        Number of requests.
    second : int
        Index of the first instruction of a second program, stored after the first; 0 if there is
        none.

    Members
    -------
    begin : In(1)
        Start with the first instruction.
    choose : In(1)
        With `begin`: start with the first instruction of the second program.
    others : In
        Number of completed instructions of the other side.
    early : In(1)
        Treat the instruction in flight on the other side as complete: it outputs its data in order,
        and the reader does not overtake it.
    instructions : Out(stream)
        The instruction.
    request : Out
        Request whose position the instruction uses; valid until it is complete. Only with several
        requests.
    idle : In(1)
        The sequencer that executes the instructions is idle.
    dependent : Out(1)
        The instruction in flight depends on one of the other side that is not complete.
    done : Out
        Number of completed instructions.
    ended : Out(1)
        All instructions are complete.
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
                "dependent": Out(1),
                "done": Out(bits),
                "ended": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fetch, wait for the other side, issue, wait for completion."""
        m = Module()
        line = Signal(self.width)
        lines = Array(Const(bits, self.width) for bits in self.lines)
        instructions, after = self.instructions, line[: self.bits]
        m.d.comb += [
            instructions.payload.eq(line[self.bits :]),
            self.dependent.eq(self.others < after),
        ]
        # An instruction is held until it is complete.
        if self.requests > 1:
            m.d.comb += self.request.eq(line[-len(self.request) :])
        with m.FSM():
            # All instructions are complete; `done` keeps their number, as the other side may wait
            # for it.
            with m.State("IDLE"):
                m.d.comb += self.ended.eq(1)
                with m.If(self.begin):
                    # The instructions of the other program count as complete: both sides skip them.
                    m.d.sync += self.done.eq(Mux(self.choose, self.second, 0) if self.second else 0)
                    m.next = "FETCH"
            # The program is a table of constants.
            with m.State("FETCH"):
                m.d.sync += line.eq(lines[self.done])
                m.next = "ISSUE"
            # The data that it reads must be complete, and those that it overwrites must have been
            # read.
            with m.State("ISSUE"):
                m.d.comb += instructions.valid.eq(self.others + self.early >= after)
                with m.If(instructions.valid & instructions.ready):
                    m.next = "WAIT"
            # One instruction at a time: the next one may read what this one writes.
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
