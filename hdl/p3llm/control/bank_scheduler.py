"""The scheduler of row commands: opens, closes and refreshes banks for column commands."""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.p3llm.parameters import POSITION_BITS
from hdl.p3llm.pim.bank_timing import POSTPONED, BankTiming, RowOperation
from hdl.p3llm.pim.pim_channel import COLUMN_BITS, PimChannelParameters
from hdl.unit import Unit


@dataclass(frozen=True)
class OpenRows:
    """The rows that are open, by parity of the bank: the lowest bit of a row's index.

    Members
    -------
    opened : Array
        The banks of a parity are open.
    rows : Array
        The upper bits of the index of their row.
    """

    opened: Array
    rows: Array

    def has(self, row: Value) -> Value:
        """Return whether a row is open."""
        return self.opened[row[0]] & (self.rows[row[0]] == row[1:])


class BankScheduler(Unit):
    """Grant column requests by position; open their rows, and refresh the banks.

    A position consists of 32 columns per row, the parity of the bank, and the row, from low to high
    bits: after a row of the even banks follows the same row of the odd banks. Banks of a parity
    open and close together; while one row is in use, the next one is opened.

    At the end of each refresh interval a refresh is owed. It is postponed until `quiet`, when it
    delays no column, or until as many are owed as HBM2 allows to be postponed; then it has
    priority over columns.

    **Latency** 0 cycles from a column to `taken` if its row is open; commands are output one cycle
    later. **Throughput** one column per cycle, if the banks' times allow it.

    Parameters
    ----------
    parameters : PimChannelParameters
        Compute units and banks of the channel; the scheduler has its own `BankTiming`.
    position_bits : int
        Bits of a position; rows beyond are never opened.

    Members
    -------
    column : In(struct)
        `valid`; `multiply` (all units, only in cycles in which the channel accepts it); `all_units`
        ; `write`; `unit`; `position`; `ahead`: the next row will be used after this one.
    coming : In(struct)
        `position` of the next column, if it is `valid`: its row is opened in cycles without a
        request.
    quiet : In(1)
        No column will be requested soon: refreshes that are owed may be issued. Ignored in cycles
        with a request.
    taken : Out(1)
        The column command of this cycle is legal.
    slot : Out(1)
        Only if tCCD_S takes several cycles: the cycle may have a command, of banks or of units.
        Each command moves a column, which occupies the pins of the memory for tCCD_S.
    row_command : Out(struct)
        Row command for the channel, in the same cycle as the column command, one cycle after
        `taken`.

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
                "coming": In(self.coming_layout(position_bits)),
                "quiet": In(1),
                "taken": Out(1),
                **({"slot": Out(1)} if p.timing.ccd_s > 1 else {}),
                "row_command": Out(p.row_command_layout),
            }
        )

    @staticmethod
    def column_layout(p: PimChannelParameters, position_bits: int) -> data.StructLayout:
        """Return the layout of a column request."""
        return data.StructLayout(
            {
                "valid": 1,
                "multiply": 1,
                "all_units": 1,
                "write": 1,
                "ahead": 1,
                "unit": range(p.units),
                "position": position_bits,
            }
        )

    @staticmethod
    def coming_layout(position_bits: int) -> data.StructLayout:
        """Return the layout of `coming`."""
        return data.StructLayout({"valid": 1, "position": position_bits})

    def elaborate(self, platform: object) -> Module:
        """Check the next row and column commands; those that are legal are issued."""
        m = Module()
        p, column = self.parameters, self.column
        timing = p.timing
        m.submodules.timing_check = timing_check = BankTiming(parameters=timing)
        # The lowest bit of a row index is the parity of its banks.
        number = column.position[COLUMN_BITS:]
        open_rows = OpenRows(
            opened=Array(Signal(name=f"opened_{i}") for i in range(2)),
            rows=Array(Signal(len(number) - 1, name=f"row_{i}") for i in range(2)),
        )

        # The channel accepts a product in the cycle after this counter's last value.
        phase = Signal(range(p.unit.pumps))
        since, owed = Signal(range(timing.refi)), Signal(range(POSTPONED))
        m.d.sync += [phase.eq(phase + 1), since.eq(Mux(since == timing.refi - 1, 0, since + 1))]

        # A refresh that cannot be postponed blocks columns, or their banks would never close.
        forced = owed == POSTPONED - 1
        requested = (
            column.valid
            & open_rows.has(number)
            & ~forced
            & (~column.multiply | (phase == p.unit.pumps - 1))
        )
        if timing.ccd_s > 1:
            beat = Signal(range(timing.ccd_s))
            m.d.sync += beat.eq(Mux(self.slot, 0, beat + 1))
            m.d.comb += self.slot.eq(beat == timing.ccd_s - 1)
            requested &= self.slot
        m.d.comb += [
            timing_check.column.valid.eq(requested),
            timing_check.column.write.eq(column.write),
            timing_check.column.banks.eq(
                Mux(
                    column.all_units,
                    self._banks(number[0]),
                    Const(1) << Cat(number[0], column.unit),
                )
            ),
            self.taken.eq(timing_check.column_legal),
        ]
        # Intervals are fixed, independent of the delay of the last refresh.
        owes = since == timing.refi - 1
        refreshed = timing_check.row_legal & (timing_check.row.operation == RowOperation.REFRESH)
        m.d.sync += owed.eq(owed + owes - refreshed)
        refreshes = Signal()
        m.d.comb += refreshes.eq(forced | ((owed != 0) & self.quiet & ~column.valid))
        self._rows(m, timing_check, open_rows, refreshes)
        return m

    def _banks(self, parity: Value) -> Value:
        """Return the mask of the banks of a parity."""
        banks = self.parameters.timing.banks
        masks = (sum(1 << bank for bank in range(side, banks, 2)) for side in (0, 1))
        return Array(Const(mask, banks) for mask in masks)[parity]

    def _rows(
        self, m: Module, timing_check: BankTiming, open_rows: OpenRows, refreshes: Signal
    ) -> None:
        """Close all banks for a refresh; otherwise open the current row, then the next one."""
        column, row = self.column, timing_check.row
        opened, rows = open_rows.opened, open_rows.rows
        # Without a request, the row of the next one is opened.
        number = Signal.like(self.coming.position[COLUMN_BITS:])
        position = Mux(column.valid, column.position, self.coming.position)
        m.d.comb += number.eq(position[COLUMN_BITS:])
        # The index wraps after the last row; no access follows there.
        following, target = Signal.like(number), Signal.like(number)
        is_open = open_rows.has(number)
        m.d.comb += [following.eq(number + 1), target.eq(Mux(is_open, following, number))]
        with m.If(refreshes):
            # Both parities close, one after the other, then all banks are refreshed.
            closes = opened[0] | opened[1]
            m.d.comb += [
                target.eq(~opened[0]),
                row.valid.eq(1),
                row.operation.eq(Mux(closes, RowOperation.PRECHARGE, RowOperation.REFRESH)),
            ]
        # The current row has priority; while it is in use, the other parity opens the next one.
        with m.Elif(
            Mux(
                column.valid,
                ~is_open | (column.ahead & ~open_rows.has(following)),
                self.coming.valid & ~is_open,
            )
        ):
            m.d.comb += [
                row.valid.eq(1),
                row.operation.eq(
                    Mux(opened[target[0]], RowOperation.PRECHARGE, RowOperation.ACTIVATE)
                ),
            ]
        m.d.comb += row.banks.eq(self._banks(target[0]))
        # The state of the rows follows the legal commands.
        legal = timing_check.row_legal
        with m.Switch(row.operation):
            with m.Case(RowOperation.ACTIVATE):
                with m.If(legal):
                    m.d.sync += [opened[target[0]].eq(1), rows[target[0]].eq(target[1:])]
            with m.Case(RowOperation.PRECHARGE):
                with m.If(legal):
                    m.d.sync += opened[target[0]].eq(0)
        # A register, as for column commands: both are output one cycle after the check.
        command = self.row_command
        m.d.sync += [
            command.valid.eq(legal),
            command.operation.eq(row.operation),
            command.bank.eq(target[0]),
            command["all"].eq(1),
            command.row.eq(target[1:]),
        ]
