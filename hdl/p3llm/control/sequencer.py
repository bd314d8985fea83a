"""The instruction issuer of one side."""

from amaranth.hdl import Array, Const, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.unit import Unit


class InstructionIssuer(Unit):
    """Issue the instructions of one side sequentially, with waits for the other side.

    **Latency** 2 cycles from the end of an instruction to the next. **Throughput** one instruction
    at a time.

    Parameters
    ----------
    program : tuple[int, ...]
        Encoded instructions: the lowest `bits` hold the number of instructions of the other side
        that must be complete, the highest ones the request.
    width, bits : int
        Bits of an encoded instruction, and of an instruction count.
    requests : int
        Number of requests.
    lm_head_start : int
        Index of the first instruction of the LM head, stored after those of the layer; 0 if there
        is no LM head.
    preview : bool
        Output the next instruction before it is issued.

    Members
    -------
    begin : In(1)
        Start with the first instruction of the layer.
    lm_head : In(1)
        With `begin`: start with the first instruction of the LM head.
    other_done : In
        Number of completed instructions of the other side.
    chaining : In(1)
        Treat the instruction in flight on the other side as complete: it outputs its data in order,
        and the reader does not overtake it.
    instructions : Out(stream)
        The instruction.
    request : Out
        Request whose position the instruction uses; valid until it is complete. Only with several
        requests.
    idle : In(1)
        The sequencer that executes the instructions is idle.
    following, follows : Out
        Only with `preview`: the next instruction while it waits to be issued, or while the one in
        flight ends and the data that the next one depends on are complete.
    waits : Out(1)
        No instruction is in flight: the next one waits for the other side, or all are complete.
    dependent : Out(1)
        The instruction in flight depends on one of the other side that is not complete.
    done : Out
        Number of completed instructions.
    ended : Out(1)
        All instructions of the layer, or of the LM head, are complete.
    """

    def __init__(
        self,
        *,
        program: tuple[int, ...],
        width: int,
        bits: int,
        requests: int = 1,
        lm_head_start: int = 0,
        preview: bool = False,
    ) -> None:
        self.program, self.width, self.bits = program, width, bits
        self.requests, self.lm_head_start = requests, lm_head_start
        self.preview = preview
        request_bits = ceil_log2(requests)
        instruction = width - bits - request_bits
        previewed = {"following": Out(instruction), "follows": Out(1)}
        super().__init__(
            {
                "begin": In(1),
                **({"lm_head": In(1)} if lm_head_start else {}),
                "other_done": In(bits),
                "chaining": In(1),
                "instructions": Out(stream.Signature(instruction)),
                **({"request": Out(request_bits)} if request_bits else {}),
                "idle": In(1),
                **(previewed if preview else {}),
                "waits": Out(1),
                "dependent": Out(1),
                "done": Out(bits),
                "ended": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fetch, wait for the other side, issue, wait for completion."""
        m = Module()
        fetched = Signal(self.width)
        # The program is a table of constants.
        program = Array(Const(bits, self.width) for bits in self.program)
        instructions, after = self.instructions, fetched[: self.bits]
        ahead, next_fetched = Signal(), Signal(self.width)
        entry = program[self.done + ahead if self.preview else self.done]
        m.d.comb += [
            instructions.payload.eq(fetched[self.bits :]),
            self.dependent.eq(self.other_done < after),
        ]
        # An instruction is held until it is complete.
        if self.requests > 1:
            m.d.comb += self.request.eq(fetched[-len(self.request) :])
        with m.FSM():
            # All instructions are complete; `done` keeps their number, as the other side may wait
            # for it.
            with m.State("IDLE"):
                m.d.comb += [self.ended.eq(1), self.waits.eq(1)]
                with m.If(self.begin):
                    # For the LM head, the instructions of the layer count as complete: both sides
                    # skip them.
                    start = Mux(self.lm_head, self.lm_head_start, 0) if self.lm_head_start else 0
                    m.d.sync += self.done.eq(start)
                    m.next = "FETCH"
            # Register the instruction, which shortens the path to the sequencers.
            with m.State("FETCH"):
                m.d.sync += fetched.eq(entry)
                m.next = "ISSUE"
            # The data that it reads must be complete, and those that it overwrites must have been
            # read.
            with m.State("ISSUE"):
                m.d.comb += [
                    instructions.valid.eq(self.other_done + self.chaining >= after),
                    self.waits.eq(~instructions.valid),
                ]
                if self.preview:
                    m.d.comb += [self.following.eq(instructions.payload), self.follows.eq(1)]
                with m.If(instructions.valid & instructions.ready):
                    m.next = "WAIT"
            # One instruction at a time: the next one may read what this one writes.
            with m.State("WAIT"):
                if self.preview:
                    m.d.comb += [
                        ahead.eq(1),
                        self.following.eq(next_fetched[self.bits :]),
                        self.follows.eq(
                            self.other_done + self.chaining >= next_fetched[: self.bits]
                        ),
                    ]
                    m.d.sync += next_fetched.eq(entry)
                with m.If(self.idle):
                    m.d.sync += self.done.eq(self.done + 1)
                    m.next = "FETCH"
                    with m.If(self.done == len(self.program) - 1):
                        m.next = "IDLE"
                    if self.lm_head_start:
                        with m.If(self.done == self.lm_head_start - 1):
                            m.next = "IDLE"
        return m
