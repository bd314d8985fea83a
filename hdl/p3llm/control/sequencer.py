"""The instruction issuer of one side."""

from amaranth.hdl import Array, Const, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.unit import Unit


class InstructionIssuer(Unit):
    """Issue the instructions of one side in order, with waits for the other side.

    The next instruction is fetched while the current one is in flight. The sequencer decides when
    it accepts it, and how many are in flight.

    **Latency** 2 cycles from an accepted instruction to the next. **Throughput** one instruction
    every second cycle.

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
        Request whose position the last accepted instruction uses. Only with several requests.
    completes : In(1)
        The oldest instruction in flight is complete; ignored if none is in flight.
    offered : Out(1)
        The payload of `instructions` is the next instruction, which may still wait.
    waits : Out(1)
        The next instruction waits for the other side, or all are complete.
    dependent : Out(1)
        The last accepted instruction depends on one of the other side that is not complete.
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
    ) -> None:
        self.program, self.width, self.bits = program, width, bits
        self.requests, self.lm_head_start = requests, lm_head_start
        request_bits = ceil_log2(requests)
        instruction = width - bits - request_bits
        super().__init__(
            {
                "begin": In(1),
                **({"lm_head": In(1)} if lm_head_start else {}),
                "other_done": In(bits),
                "chaining": In(1),
                "instructions": Out(stream.Signature(instruction)),
                **({"request": Out(request_bits)} if request_bits else {}),
                "completes": In(1),
                "offered": Out(1),
                "waits": Out(1),
                "dependent": Out(1),
                "done": Out(bits),
                "ended": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fetch, wait for the other side, issue; count the completed instructions."""
        m = Module()
        fetched = Signal(self.width)
        # The program is a table of constants.
        program = Array(Const(bits, self.width) for bits in self.program)
        instructions, after = self.instructions, fetched[: self.bits]
        issued, accepted_after = Signal(self.bits), Signal(self.bits)
        m.d.comb += [
            instructions.payload.eq(fetched[self.bits :]),
            self.dependent.eq(self.other_done < accepted_after),
        ]
        with m.If(self.completes & (self.done != issued)):
            m.d.sync += self.done.eq(self.done + 1)
        ends = issued == len(self.program)
        if self.lm_head_start:
            of_lm_head = Signal()
            ends = issued == Mux(of_lm_head, len(self.program), self.lm_head_start)
        with m.FSM():
            # All instructions are complete; `done` keeps their number, as the other side may wait
            # for it.
            with m.State("IDLE"):
                m.d.comb += [self.ended.eq(1), self.waits.eq(1)]
                with m.If(self.begin):
                    # For the LM head, the instructions of the layer count as complete: both sides
                    # skip them.
                    start = 0
                    if self.lm_head_start:
                        start = Mux(self.lm_head, self.lm_head_start, 0)
                        m.d.sync += of_lm_head.eq(self.lm_head)
                    m.d.sync += [self.done.eq(start), issued.eq(start)]
                    m.next = "FETCH"
            # Register the instruction, which shortens the path to the sequencers.
            with m.State("FETCH"):
                m.d.sync += fetched.eq(program[issued])
                m.next = "ISSUE"
                with m.If(ends):
                    m.next = "END"
            # The data that it reads must be complete, and those that it overwrites must have been
            # read.
            with m.State("ISSUE"):
                m.d.comb += [
                    self.offered.eq(1),
                    instructions.valid.eq(self.other_done + self.chaining >= after),
                    self.waits.eq(~instructions.valid),
                ]
                with m.If(instructions.valid & instructions.ready):
                    m.d.sync += [issued.eq(issued + 1), accepted_after.eq(after)]
                    if self.requests > 1:
                        m.d.sync += self.request.eq(fetched[-len(self.request) :])
                    m.next = "FETCH"
            with m.State("END"):
                with m.If(self.done == issued):
                    m.next = "IDLE"
        return m
