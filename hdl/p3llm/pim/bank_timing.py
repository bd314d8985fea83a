"""Timing rules of a pseudo-channel's DRAM banks.

The paper refers to HBM2 for the times. They are in cycles of tCCD_S, rounded up.
"""

from typing import Annotated

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object
from hdl.unit import Unit

POSTPONED = 9
"""Maximum number of refresh intervals without a refresh; HBM2 allows eight to be postponed."""


class RowOperation(enum.Enum, shape=2):
    """Operation of a row command."""

    ACTIVATE = 0
    PRECHARGE = 1
    REFRESH = 2


@parameter_object
class BankTimingParameters(Parameters):
    """Number of banks and their times; a cycle is tCCD_S, two cycles of HBM2's clock.

    Parameters
    ----------
    banks : int
        Banks of the pseudo-channel, in four bank groups.
    rcd, rp, ras : int
        tRCD: activate to column command; tRP: precharge to activate; tRAS: activate to precharge.
    ccd : int
        tCCD_L: column to column command of one bank group; one cycle between groups (tCCD_S).
    rtp, wr, wtr : int
        tRTP: read to precharge; tWR: write to precharge; tWTR: write to read.
    rrd : int
        tRRD: activate to activate of another bank.
    rfc, refi : int
        tRFC: length of a refresh; tREFI: interval between refreshes.
    """

    banks: Annotated[int, PowerOfTwo(4, 16, "banks")] = 16
    rcd: Annotated[int, Range(1, 31, "cycles")] = 7
    rp: Annotated[int, Range(1, 31, "cycles")] = 7
    ras: Annotated[int, Range(1, 63, "cycles")] = 17
    ccd: Annotated[int, Range(1, 4, "cycles")] = 2
    rtp: Annotated[int, Range(1, 15, "cycles")] = 3
    wr: Annotated[int, Range(1, 31, "cycles")] = 8
    wtr: Annotated[int, Range(1, 15, "cycles")] = 4
    rrd: Annotated[int, Range(1, 15, "cycles")] = 2
    rfc: Annotated[int, Range(1, 511, "cycles")] = 130
    refi: Annotated[int, Range(16, 8191, "cycles")] = 1950

    @property
    def groups(self) -> int:
        """Number of bank groups."""
        return 4

    @property
    def row_layout(self) -> data.StructLayout:
        """A row command: `operation`, and a mask of `banks`."""
        return data.StructLayout({"valid": 1, "operation": RowOperation, "banks": self.banks})

    @property
    def column_layout(self) -> data.StructLayout:
        """A column command: `write` or read, and a mask of `banks`."""
        return data.StructLayout({"valid": 1, "write": 1, "banks": self.banks})


VIOLATIONS = data.StructLayout(
    {
        "closed": 1,
        "opened": 1,
        "rcd": 1,
        "rp": 1,
        "ras": 1,
        "ccd": 1,
        "wtr": 1,
        "rrd": 1,
        "refi": 1,
    }
)
"""Violations of a cycle: ``closed``, a column command to a closed bank; ``opened``, an activate or
a refresh of an open bank; the others are times by name. ``rp`` includes tRFC, ``ras`` includes tRTP
and tWR; ``refi`` is an overdue refresh."""


class BankTiming(Unit):
    """Check whether a row and a column command are legal in this cycle.

    An illegal command has no effect on the state of the banks.

    **Latency** 0 cycles. **Throughput** one row and one column command per cycle.

    Parameters
    ----------
    parameters : BankTimingParameters
        Banks and times.

    Members
    -------
    row, column : In(struct)
        Commands of this cycle. A refresh applies to all banks and ignores its mask. A row command
        with an undefined operation is legal and has no effect.
    row_legal, column_legal : Out(1)
        The command is valid and legal.
    violations : Out(struct)
        Rules that the commands of this cycle violate.

    Raises
    ------
    ValueError
        If `BankTimingParameters` rejects a value.
    """

    def __init__(self, *, parameters: BankTimingParameters) -> None:
        self.parameters = parameters
        p = parameters
        self.open = Signal(p.banks)
        self.until_column = [Signal(range(p.rcd), name=f"column_{i}") for i in range(p.banks)]
        longest = max(p.ras, p.rtp, p.wr)
        self.until_precharge = [Signal(range(longest), name=f"close_{i}") for i in range(p.banks)]
        self.until_activate = [
            Signal(range(max(p.rp, p.rfc)), name=f"open_{i}") for i in range(p.banks)
        ]
        super().__init__(
            {
                "row": In(p.row_layout),
                "column": In(p.column_layout),
                "row_legal": Out(1),
                "column_legal": Out(1),
                "violations": Out(VIOLATIONS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count down the times of each bank, each bank group and all banks."""
        m = Module()
        p, row, column = self.parameters, self.row, self.column
        activates, precharges, refreshes = (
            row.valid & (row.operation == one) for one in RowOperation
        )
        # A command for several banks is legal if it is legal for each of them.
        closed = column.valid & (column.banks & ~self.open).any()
        opened = (activates & (row.banks & self.open).any()) | (refreshes & self.open.any())

        def waits(counters: list[Signal], banks: Value) -> Value:
            return (Cat(counter != 0 for counter in counters) & banks).any()

        between, write_to_read = Signal(range(p.rrd)), Signal(range(p.wtr))
        groups = [Signal(range(p.ccd), name=f"group_{i}") for i in range(p.groups)]
        size = p.banks // p.groups
        group_banks = Cat((group != 0).replicate(size) for group in groups)
        all_banks = refreshes.replicate(p.banks)
        since = Signal(range(POSTPONED * p.refi + 1))
        late = since == POSTPONED * p.refi
        v = self.violations
        m.d.comb += [
            v.closed.eq(closed),
            v.opened.eq(opened),
            v.rcd.eq(column.valid & ~closed & waits(self.until_column, column.banks)),
            v.ccd.eq(column.valid & (group_banks & column.banks).any()),
            v.wtr.eq(column.valid & ~column.write & (write_to_read != 0)),
            v.rp.eq(
                (activates | refreshes)
                & ~opened
                & waits(self.until_activate, row.banks | all_banks)
            ),
            v.rrd.eq(activates & (between != 0)),
            self.column_legal.eq(column.valid & ~(v.closed | v.rcd | v.ccd | v.wtr)),
            # A bank that is accessed in this cycle cannot close yet.
            v.ras.eq(
                precharges
                & (
                    waits(self.until_precharge, row.banks & self.open)
                    | (self.column_legal & (row.banks & column.banks).any())
                )
            ),
            v.refi.eq(late),
            self.row_legal.eq(row.valid & ~(v.opened | v.rp | v.rrd | v.ras)),
        ]
        legal_activate = self.row_legal & activates
        legal_refresh = self.row_legal & refreshes
        with m.If(legal_refresh):
            m.d.sync += since.eq(0)
        with m.Elif(~late):
            m.d.sync += since.eq(since + 1)

        self._down(m, between, legal_activate, p.rrd)
        self._down(m, write_to_read, self.column_legal & column.write, p.wtr)
        for number, group in enumerate(groups):
            banks = column.banks[number * size : (number + 1) * size]
            self._down(m, group, self.column_legal & banks.any(), p.ccd)
        for bank in range(p.banks):
            self._bank(m, bank, legal_activate, self.row_legal & precharges, legal_refresh)
        return m

    @staticmethod
    def _down(m: Module, counter: Signal, starts: Value, cycles: int) -> None:
        """Count down to 0, so that the counter is 0 again `cycles` cycles after a start."""
        with m.If(starts):
            m.d.sync += counter.eq(cycles - 1)
        with m.Elif(counter != 0):
            m.d.sync += counter.eq(counter - 1)

    def _bank(
        self, m: Module, bank: int, activates: Value, precharges: Value, refreshes: Value
    ) -> None:
        """Update the state and the counters of one bank."""
        p = self.parameters
        mine = self.row.banks[bank]
        used = self.column_legal & self.column.banks[bank]
        opens, closes = activates & mine, precharges & mine & self.open[bank]
        # Row and column commands may arrive in the same cycle; they use different counters.
        with m.If(opens):
            m.d.sync += self.open[bank].eq(1)
        with m.Elif(closes):
            m.d.sync += self.open[bank].eq(0)
        self._down(m, self.until_column[bank], opens, p.rcd)

        close = self.until_precharge[bank]
        least = Mux(self.column.write, p.wr, p.rtp) - 1
        with m.If(opens):
            m.d.sync += close.eq(p.ras - 1)
        # A column command may delay the precharge, but never allows an earlier one.
        with m.Elif(used & (close <= least)):
            m.d.sync += close.eq(least)
        with m.Elif(close != 0):
            m.d.sync += close.eq(close - 1)

        # A refresh blocks all banks as a precharge blocks one.
        wait = self.until_activate[bank]
        with m.If(closes):
            m.d.sync += wait.eq(p.rp - 1)
        with m.Elif(refreshes):
            m.d.sync += wait.eq(p.rfc - 1)
        with m.Elif(wait != 0):
            m.d.sync += wait.eq(wait - 1)


def bank_bits(p: BankTimingParameters) -> int:
    """Return the bits of a bank index."""
    return ceil_log2(p.banks)
