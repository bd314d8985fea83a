"""The scheduler of row commands: opens, closes and refreshes banks for column commands."""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.p3llm.control.parity_refresh import ParityRefresh
from hdl.p3llm.parameters import POSITION_BITS
from hdl.p3llm.pim.bank_timing import POSTPONED, BankTiming, RowOperation
from hdl.p3llm.pim.pim_channel import COLUMN_BITS, PimChannelParameters
from hdl.unit import Unit

ALTERNATING_BITS = 4
"""Rows alternate between the parities of banks in runs of ``2**ALTERNATING_BITS``."""

EARLY_BITS = 3
"""A refresh of the other parity begins in the first ``2**EARLY_BITS`` columns of a row."""


def parity_of(number: Value) -> Value:
    """Return the parity of the banks that hold the row with an index.

    Rows alternate between the parities. The last row of a run and the first one of the next run
    have the same parity, so that the banks of the other parity are idle for two rows, in which they
    are refreshed.
    """
    run = number[ALTERNATING_BITS] if len(number) > ALTERNATING_BITS else Const(0, 1)
    return number[0] ^ run


@dataclass(frozen=True)
class OpenRows:
    """The rows that are open, by parity of the bank.

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
        parity = parity_of(row)
        return self.opened[parity] & (self.rows[parity] == row[1:])


class BankScheduler(Unit):
    """Grant column requests by position; open their rows, and refresh the banks.

    A position consists of 32 columns per row and the row's index, from low to high bits. The banks
    that hold a row follow from its index, see `parity_of`; the bits above the lowest one are its
    number in these banks. Banks of a parity open and close together; while one row is in use, the
    next one is opened in the other banks.

    At the end of each refresh interval a refresh is owed. There are three occasions for it:

    - Two consecutive rows are in the same banks: when the first one begins, the banks of the other
      parity are refreshed one after the other (`ParityRefresh`). They are needed after both rows.
    - `quiet`: all banks are refreshed together, or the parity that is left of a set.
    - As many are owed as HBM2 allows to be postponed: the same, with priority over columns.

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

        m.submodules.parities = parities = ParityRefresh(units=p.units)
        parity = parity_of(number)
        # A refresh that cannot be postponed blocks columns, or their banks would never close. So
        # does a refresh of their parity.
        forced = owed == POSTPONED - 1
        whole = ~parities.half
        requested = (
            column.valid
            & open_rows.has(number)
            & ~(forced & whole)
            & ~(parities.active & (parities.parity == parity))
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
                Mux(column.all_units, self._banks(parity), Const(1) << Cat(parity, column.unit))
            ),
            self.taken.eq(timing_check.column_legal),
        ]
        # Intervals are fixed, independent of the delay of the last refresh.
        owes = since == timing.refi - 1
        refreshed = timing_check.row_legal & (timing_check.row.operation == RowOperation.REFRESH)
        m.d.sync += owed.eq(owed + owes - (refreshed | parities.complete))
        now = forced | ((owed != 0) & self.quiet & ~column.valid)
        # The next row is in the same banks: the others are idle for both rows.
        early = column.position[EARLY_BITS:COLUMN_BITS] == 0
        idle = column.valid & column.ahead & early & open_rows.has(number) & (owed != 0)
        idle &= parity_of((number + 1)[: len(number)]) == parity
        refreshes = Signal()
        m.d.comb += [
            refreshes.eq(now & whole),
            # Of a set that is half complete, the other parity is left.
            parities.first.eq(Mux(now & parities.half, ~parities.parity, ~parity)),
            parities.begin.eq(Mux(now, parities.half, idle)),
        ]
        self._rows(m, timing_check, open_rows, refreshes, parities)
        return m

    def _banks(self, parity: Value) -> Value:
        """Return the mask of the banks of a parity."""
        banks = self.parameters.timing.banks
        masks = (sum(1 << bank for bank in range(side, banks, 2)) for side in (0, 1))
        return Array(Const(mask, banks) for mask in masks)[parity]

    def _rows(
        self,
        m: Module,
        timing_check: BankTiming,
        open_rows: OpenRows,
        refreshes: Signal,
        parities: ParityRefresh,
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
        parity, all_banks = Signal(), Signal(init=1)
        is_open, current = open_rows.has(number), parity_of(number)
        m.d.comb += [
            following.eq(number + 1),
            target.eq(Mux(is_open, following, number)),
            parity.eq(parity_of(target)),
            row.banks.eq(
                Mux(all_banks, self._banks(parity), Const(1) << Cat(parity, parities.unit))
            ),
        ]
        opens = Signal()
        with m.If(refreshes):
            # Both parities close, one after the other, then all banks are refreshed.
            closes = opened[0] | opened[1]
            m.d.comb += [
                parity.eq(~opened[0]),
                row.valid.eq(1),
                row.operation.eq(Mux(closes, RowOperation.PRECHARGE, RowOperation.REFRESH)),
            ]
        # The current row has priority; its banks may be those that are refreshed.
        with m.Elif(
            (column.valid | self.coming.valid)
            & ~is_open
            & ~(parities.active & (parities.parity == current))
        ):
            m.d.comb += opens.eq(1)
        with m.Elif(parities.active):
            closes = opened[parities.parity]
            m.d.comb += [
                parity.eq(parities.parity),
                row.valid.eq(1),
                all_banks.eq(closes),
                row.operation.eq(Mux(closes, RowOperation.PRECHARGE, RowOperation.REFRESH_BANK)),
            ]
        # While the current row is in use, the other parity opens the next one.
        with m.Elif(
            column.valid
            & column.ahead
            & (parity_of(following) != current)
            & ~open_rows.has(following)
        ):
            m.d.comb += opens.eq(1)
        with m.If(opens):
            m.d.comb += [
                row.valid.eq(1),
                row.operation.eq(
                    Mux(opened[parity], RowOperation.PRECHARGE, RowOperation.ACTIVATE)
                ),
            ]
        # The state of the rows follows the legal commands.
        legal = timing_check.row_legal
        with m.Switch(row.operation):
            with m.Case(RowOperation.ACTIVATE):
                with m.If(legal):
                    m.d.sync += [opened[parity].eq(1), rows[parity].eq(target[1:])]
            with m.Case(RowOperation.PRECHARGE):
                with m.If(legal):
                    m.d.sync += opened[parity].eq(0)
            with m.Case(RowOperation.REFRESH_BANK):
                m.d.comb += parities.taken.eq(legal)
        # A register, as for column commands: both are output one cycle after the check.
        command = self.row_command
        m.d.sync += [
            command.valid.eq(legal),
            command.operation.eq(row.operation),
            command.bank.eq(Cat(parity, parities.unit)),
            command["all"].eq(all_banks),
            command.row.eq(target[1:]),
        ]
