"""The FSM of the vector unit: one operation after the other."""

from amaranth.hdl import Cat, Module, Mux, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.p3llm.instructions import (
    READS_NUMBERS,
    NpuOperation,
    npu_instruction,
    reads_factors,
    reads_sums,
)
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.dot_product import PE_LANES
from hdl.p3llm.places import Places
from hdl.unit import Unit


class OperationControl(Unit):
    """Accept an operation, start its readers, wait for its end.

    **Latency** 2 cycles from an instruction to `starts`; for `SCORES` the scales of the values are
    read in between. **Throughput** one operation at a time.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    instructions : In(stream)
        An operation; the next one is accepted when it is complete.
    position : In
        Position of the token.
    begin : Out(1)
        The instruction offered is accepted in this cycle.
    instruction : Out(struct)
        The operation in flight.
    starts : Out(1)
        All readers that the operation needs start.
    fetching, running : Out(1)
        The scales of the values are read; the operation runs.
    fetched, finished : In(1)
        The last slice of these scales is transferred; the operation ends.
    count : Out
        Slices of the operation's vectors.
    reads_numbers, reads_sums, reads_factors, factors : Out
        Start of each reader, and the first place of FP16 numbers.
    idle : Out(1)
        No operation is in flight.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        instruction, places = npu_instruction(p), Places(p)
        super().__init__(
            {
                "instructions": In(stream.Signature(instruction)),
                "position": In(range(p.slots)),
                "begin": Out(1),
                "instruction": Out(instruction),
                "starts": Out(1),
                "fetching": Out(1),
                "running": Out(1),
                "fetched": In(1),
                "finished": In(1),
                "count": Out(places.count_bits),
                "reads_numbers": Out(1),
                "reads_sums": Out(1),
                "reads_factors": Out(1),
                "factors": Out(places.factors_bits),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Sequence an operation; count its slices."""
        m = Module()
        p, given = self.parameters, self.instruction
        of_scores = given.operation == NpuOperation.SCORES
        # The number of scores is that of tokens, rounded up to whole columns of values.
        quantum = max(PE_LANES, p.lanes)
        tokens = self.position + 1
        columns = (tokens + (quantum - 1)) >> ceil_log2(quantum)
        scores = columns << ceil_log2(quantum // p.lanes)
        m.d.comb += [
            self.count.eq(Mux(of_scores, scores, given.count)),
            self.reads_numbers.eq(self.starts & self._is_any(READS_NUMBERS)),
            self.reads_sums.eq(self.starts & self._is_any(reads_sums(p))),
            self.reads_factors.eq(self.starts & self._is_any(reads_factors(p))),
            self.factors.eq(given.factors),
        ]
        with m.FSM():
            # No operation is in flight: all memories and functions are free.
            with m.State("IDLE"):
                m.d.comb += [
                    self.instructions.ready.eq(1),
                    self.begin.eq(self.instructions.valid),
                    self.idle.eq(1),
                ]
                with m.If(self.begin):
                    m.d.sync += given.eq(self.instructions.payload)
                    m.next = "PREPARE"
            # The multiplication for the common factor starts in this cycle and is ready for the
            # first sum.
            with m.State("PREPARE"):
                m.next = "START"
                with m.If(of_scores):
                    m.d.comb += [self.reads_factors.eq(1), self.factors.eq(given.value_scales)]
                    m.next = "SCALES"
            # The largest scale of the values must be known before the first probability is
            # multiplied.
            with m.State("SCALES"):
                m.d.comb += self.fetching.eq(1)
                with m.If(self.fetched):
                    m.next = "START"
            # All readers that the operation needs start together.
            with m.State("START"):
                m.d.comb += self.starts.eq(1)
                m.next = "RUN"
            # The operation ends with its last store, or with a handshake of its own.
            with m.State("RUN"):
                m.d.comb += self.running.eq(1)
                with m.If(self.finished):
                    m.next = "IDLE"
        return m

    def _is_any(self, operations: tuple[NpuOperation, ...]) -> Value:
        """Return whether the operation is one of some."""
        return Cat(self.instruction.operation == one for one in operations).any()
