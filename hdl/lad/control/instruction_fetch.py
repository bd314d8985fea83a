"""Fetch of the instructions of a token, with the loops over periods, layers and pieces."""

from amaranth.hdl import Array, Const, Module, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.lad.control.program import LayerProgram
from hdl.lad.instructions import instruction_layout
from hdl.lad.parameters import LadParameters
from hdl.unit import Unit


class InstructionFetch(Unit):
    """Issue the instructions of a `LayerProgram` one after another, token after token.

    All layers use the same part of the program; they differ in the data from outside only. The
    periods of a layer and the pieces of the LM head are repeated in the same way.

    **Latency** 2 cycles from the end of an instruction to `begin` of the next one. **Throughput**
    one instruction at a time.

    Parameters
    ----------
    parameters : LadParameters
        Dimensions of the model.

    Members
    -------
    instruction : Out(instruction_layout)
        The current instruction, constant from `begin` to its end.
    begin : Out(1)
        The instruction begins.
    busy : In(1)
        It reads or writes; from the cycle after `begin` until it is complete.
    attended : In(1)
        All attention outputs of the layer are written.
    next_layer : Out(1)
        The next attention outputs are the first ones of a layer.
    predicts : In(1)
        The token continues with the LM head after the last layer; without a vocabulary ignored.
    first, ended : Out(1)
        The instruction is the first one of a token; the token's last instruction ends.
    """

    def __init__(self, *, parameters: LadParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "instruction": Out(instruction_layout(parameters)),
                "begin": Out(1),
                "busy": In(1),
                "attended": In(1),
                "next_layer": Out(1),
                "predicts": In(1),
                "first": Out(1),
                "ended": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read the program, a table of constants, once per instruction."""
        m = Module()
        program = LayerProgram(self.parameters)
        size = instruction_layout(self.parameters).size
        table = Array(Const(bits, size) for bits in program.table)
        line = Signal(range(len(program.table)))
        instruction = Signal(size, reset_less=True)
        m.d.comb += [
            Value.cast(self.instruction).eq(instruction),
            self.first.eq(line == 0),
        ]
        with m.FSM(name="instructions"):
            # The multiplexer of the table has a cycle of its own.
            with m.State("FETCH"):
                m.d.sync += instruction.eq(table[line])
                m.next = "BEGIN"
            # An instruction that `joins` uses the attention outputs of the whole layer, after which
            # those of the next layer begin.
            with m.State("BEGIN"), m.If(~self.instruction.joins | self.attended):
                m.d.comb += [
                    self.begin.eq(1),
                    self.next_layer.eq(self.first | self.instruction.joins),
                ]
                m.next = "EXECUTE"
            with m.State("EXECUTE"), m.If(~self.busy):
                self._advance(m, program, line)
                m.next = "FETCH"
        return m

    def _advance(self, m: Module, program: LayerProgram, line: Signal) -> None:
        """Move to the next instruction; at the end of a loop that has rounds left, to its start."""
        p, last = self.parameters, len(program.table) - 1
        period, layer, piece = (
            Signal(range(rounds), name=name)
            for name, rounds in (
                ("period", p.periods),
                ("layer", p.layers),
                ("piece", max(p.pieces, 1)),
            )
        )
        m.d.sync += line.eq(line + 1)
        for body, rounds, done in (
            (program.period, p.periods, period),
            (program.layer, p.layers, layer),
            (range(last, last + 1), p.pieces, piece),
        ):
            with m.If(line == body.stop - 1):
                m.d.sync += done.eq(0)
                with m.If(done < rounds - 1):
                    m.d.sync += [done.eq(done + 1), line.eq(body.start)]
        ends = (line == last) & (piece == max(p.pieces, 1) - 1)
        if p.vocabulary_size:
            layers_end = (line == program.layer.stop - 1) & (layer == p.layers - 1)
            ends |= layers_end & ~self.predicts
        with m.If(ends):
            m.d.sync += line.eq(0)
            m.d.comb += self.ended.eq(1)
