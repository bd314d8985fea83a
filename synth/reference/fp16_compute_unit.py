"""A compute unit like HBM-PIM's, from this project's FP16 operators, as reference for P3-LLM's.

It has the sixteen lanes and the registers of HBM-PIM, without the program memory. It is measured
for comparison with `hdl.p3llm.pim.pim_compute_unit`; no system uses it.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_fma import FloatFma
from hdl.memory.memory import Memory
from hdl.parameters import require_range
from hdl.unit import Unit

WORDS = 8
"""Number of input words, and of words of sums."""

SCALARS = 16


class Operation(enum.Enum, shape=2):
    """The commands; a multiplication uses the column that arrives one cycle later."""

    MULTIPLY = 0
    WRITE_INPUTS = 1
    WRITE_SCALARS = 2
    READ_SUMS = 3


def command_layout(lanes: int) -> data.StructLayout:
    """Return a command's fields.

    A multiplication selects its input `word` and its `sum`. With `broadcast`, `word` is the number
    of a scalar for all lanes. With `first`, a new sum begins.
    """
    return data.StructLayout(
        {
            "operation": Operation,
            "word": 4,
            "sum": 3,
            "broadcast": 1,
            "first": 1,
            "data": data.ArrayLayout(16, SCALARS),
        }
    )


class Fp16ComputeUnit(Unit):
    """Multiply columns of 16 FP16 weights by inputs or a scalar, and add to one of eight sums.

    **Latency** 2 cycles from a read command to the sums. **Throughput** one command per cycle, 16
    multiply-adds per column, so the clock period is tCCD_L. **Numerics** a fused FP16 multiply-add,
    rounded once.

    Parameters
    ----------
    lanes : int
        Lanes, 1 to 16.

    Members
    -------
    valid, command : In
        A command, which the unit always accepts.
    column : In
        The weights, one cycle after the multiplication.
    results : Out
        The sums, two cycles after `READ_SUMS`.

    Raises
    ------
    ValueError
        If a parameter is illegal.
    """

    def __init__(self, *, lanes: int = 16) -> None:
        require_range("lanes", lanes, 1, SCALARS)
        self.lanes = lanes
        column = data.ArrayLayout(16, lanes)
        super().__init__(
            {
                "valid": In(1),
                "command": In(command_layout(lanes)),
                "column": In(column),
                "results": Out(column),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read inputs and the column, then the sums, multiply and add, write back."""
        m = Module()
        command = self.command
        column = data.ArrayLayout(16, self.lanes)
        multiplies, writes, writes_scalars = (
            self.valid & (command.operation == operation)
            for operation in (
                Operation.MULTIPLY,
                Operation.WRITE_INPUTS,
                Operation.WRITE_SCALARS,
            )
        )

        m.submodules.inputs = inputs = Memory(depth=WORDS, width=16 * self.lanes)
        scalars = Signal(data.ArrayLayout(16, SCALARS), reset_less=True)
        scalar = Signal(16, reset_less=True)
        m.d.comb += [
            inputs.write_enable.eq(writes),
            inputs.write_address.eq(command.word),
            inputs.write_data.eq(command.data.as_value()),
            inputs.read_enable.eq(1),
            inputs.read_address.eq(command.word),
        ]
        with m.If(writes_scalars):
            m.d.sync += scalars.eq(command.data)
        m.d.sync += scalar.eq(scalars[command.word])
        flags = Cat(multiplies, command.broadcast, command.first, command.sum)
        stages = delay_line(m, flags, 2, name="flags", reset=True)

        # The column and its factors are latched while the sums are read.
        weights, factors = Signal(column, reset_less=True), Signal(column, reset_less=True)
        broadcast = stages[1][1]
        m.d.sync += [
            weights.eq(self.column),
            factors.eq(Mux(broadcast, scalar.replicate(self.lanes), inputs.read_data)),
        ]
        m.submodules.sums = sums = Memory(depth=WORDS, width=16 * self.lanes)
        begun, number = stages[2][0], stages[2][3:]
        written, newest = Signal(column, reset_less=True), Signal()
        m.d.comb += [
            sums.read_enable.eq(1),
            sums.read_address.eq(stages[1][3:]),
            sums.write_enable.eq(begun),
            sums.write_address.eq(number),
            sums.write_data.eq(written),
        ]
        # This register forwards a sum that is written while it is read.
        before = Signal(column, reset_less=True)
        m.d.sync += [before.eq(written), newest.eq(begun & (stages[1][3:] == number))]
        m.d.comb += self.results.eq(Mux(newest, before, sums.read_data))
        for lane in range(self.lanes):
            m.submodules[f"lane_{lane}"] = fma = FloatFma()
            m.d.comb += [
                fma.a.eq(weights[lane]),
                fma.b.eq(factors[lane]),
                fma.c.eq(Mux(stages[2][2], 0, self.results[lane])),
                written[lane].eq(fma.result),
            ]
        return m
