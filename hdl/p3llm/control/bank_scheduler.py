"""Rows for columns: opens, closes and refreshes banks so that a column command is legal."""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.p3llm.parameters import POSITION_BITS
from hdl.p3llm.pim.bank_timing import BankTiming, RowOperation
from hdl.p3llm.pim.pim_channel import COLUMN_BITS, PimChannelParameters
from hdl.unit import Unit


class BankScheduler(Unit):
    """Say when a column of a position may be used, and bring its row about.

    A position counts columns: 32 of a row, then the row of the other parity, then the next row.
    Banks of a parity open and close together; while one row is used the next one opens. A due
    refresh goes before everything.

    **Latency** 0 cycles from a column to `taken` where its row is open; commands leave a cycle
    later. **Throughput** a column a cycle, as far as the banks' times let it.

    Parameters
    ----------
    parameters : PimChannelParameters
        Of the channel; `BankTiming` is its own judge.
    position_bits : int
        Of a position; rows above are never opened.

    Members
    -------
    column : In(struct)
        `valid`, `multiply` (all units, in the cycles that the channel has for it), `together` (all
        units), `write`, `unit`, `position`, and `ahead`: the row behind this one comes next.
    taken : Out(1)
        The column command of this cycle is legal.
    row_command : Out(struct)
        For the channel, beside a column command that leaves a cycle after it was taken.

    Raises
    ------
    ValueError
        If `PimChannelParameters` rejects a value.
    """

    def __init__(
        self, *, parameters: PimChannelParameters, position_bits: int = POSITION_BITS
    ) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "column": In(self.column_layout(p, position_bits)),
                "taken": Out(1),
                "row_command": Out(p.row_command_layout),
            }
        )

    @staticmethod
    def column_layout(p: PimChannelParameters, position_bits: int) -> data.StructLayout:
        """Return what is asked for."""
        return data.StructLayout(
            {
                "valid": 1,
                "multiply": 1,
                "together": 1,
                "write": 1,
                "ahead": 1,
                "unit": range(p.units),
                "position": position_bits,
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Offer the judge what is next; what it accepts is done."""
        m = Module()
        p, column = self.parameters, self.column
        timing = p.timing
        m.submodules.judge = judge = BankTiming(parameters=timing)
        # The lowest bit of a row's number is the parity of its banks.
        number = column.position[COLUMN_BITS:]
        # Behind the last row comes the first: whoever is at the end does not want either.
        following = Signal.like(number)
        m.d.comb += following.eq(number + 1)
        opened = Array(Signal(name=f"opened_{i}") for i in range(2))
        rows = Array(Signal(len(number) - 1, name=f"row_{i}") for i in range(2))

        def is_open(row: Any) -> Any:
            return opened[row[0]] & (rows[row[0]] == row[1:])

        # The channel's cycles for products are those after this counter's last.
        phase = Signal(range(p.unit.pumps))
        since, due = Signal(range(timing.refi)), Signal()
        m.d.sync += [phase.eq(phase + 1), since.eq(Mux(since == timing.refi - 1, 0, since + 1))]

        banks = timing.banks
        parities = [
            Const(sum(1 << bank for bank in range(side, banks, 2)), banks) for side in (0, 1)
        ]
        of_parity = Array(parities)
        m.d.comb += [
            # A refresh that is due stops columns, or their banks would never close.
            judge.column.valid.eq(
                column.valid
                & is_open(number)
                & ~due
                & (~column.multiply | (phase == p.unit.pumps - 1))
            ),
            judge.column.write.eq(column.write),
            judge.column.banks.eq(
                Mux(
                    column.together,
                    of_parity[number[0]],
                    Const(1) << Cat(number[0], column.unit),
                )
            ),
            self.taken.eq(judge.column_legal),
        ]
        # Due at fixed intervals, however long the last one was put off.
        with m.If(since == timing.refi - 1):
            m.d.sync += due.eq(1)
        self._rows(m, judge, number, following, opened, rows, of_parity, due)
        return m

    def _rows(
        self,
        m: Module,
        judge: BankTiming,
        number: Signal,
        following: Signal,
        opened: Array,
        rows: Array,
        of_parity: Array,
        due: Signal,
    ) -> None:
        """Close all for a refresh that is due, or open the row of now, then that of next."""
        column = self.column

        def is_open(row: Signal) -> Any:
            return opened[row[0]] & (rows[row[0]] == row[1:])

        target = Signal.like(number)
        row = judge.row
        m.d.comb += target.eq(Mux(is_open(number), following, number))
        with m.If(due):
            # Both parities close, the one behind the other, then all banks refresh.
            closes = opened[0] | opened[1]
            m.d.comb += [
                target.eq(~opened[0]),
                row.valid.eq(1),
                row.operation.eq(Mux(closes, RowOperation.PRECHARGE, RowOperation.REFRESH)),
            ]
        # The row of now goes first; while it is used, the other parity opens the next.
        with m.Elif(column.valid & (~is_open(number) | (column.ahead & ~is_open(following)))):
            m.d.comb += [
                row.valid.eq(1),
                row.operation.eq(
                    Mux(opened[target[0]], RowOperation.PRECHARGE, RowOperation.ACTIVATE)
                ),
            ]
        m.d.comb += row.banks.eq(of_parity[target[0]])
        # What is kept of the rows follows what the judge let pass.
        legal = judge.row_legal
        with m.Switch(row.operation):
            with m.Case(RowOperation.ACTIVATE):
                with m.If(legal):
                    m.d.sync += [opened[target[0]].eq(1), rows[target[0]].eq(target[1:])]
            with m.Case(RowOperation.PRECHARGE):
                with m.If(legal):
                    m.d.sync += opened[target[0]].eq(0)
            with m.Case(RowOperation.REFRESH):
                with m.If(legal):
                    m.d.sync += due.eq(0)
        # A register, as for column commands: both leave a cycle after they were judged.
        command = self.row_command
        m.d.sync += [
            command.valid.eq(legal),
            command.operation.eq(row.operation),
            command.bank.eq(target[0]),
            command["all"].eq(1),
            command.row.eq(target[1:]),
        ]
