"""Timing rules of a pseudo-channel's DRAM banks.

The paper refers to HBM2 for the times. The parameters hold the times of a data sheet and the clock;
the counters count the cycles that follow from both.
"""

from typing import Annotated

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require
from hdl.unit import Unit

POSTPONED = 9
"""Maximum number of refresh intervals without a refresh; HBM2 allows eight to be postponed."""

LEAST_REFRESH_CYCLES = 16
"""Minimum cycles of a refresh interval."""

PS_TIMES_MHZ = 1_000_000
"""Picoseconds of a cycle, times its clock in MHz."""


class RowOperation(enum.Enum, shape=2):
    """Operation of a row command.

    Members
    -------
    ACTIVATE, PRECHARGE
        Open or close banks.
    REFRESH
        Refresh all banks, HBM2's REF.
    REFRESH_BANK
        Refresh one bank, HBM2's REFSB. A set refreshes each bank once, in any order, and counts as
        one `REFRESH`; a `REFRESH` ends an incomplete set.
    """

    ACTIVATE = 0
    PRECHARGE = 1
    REFRESH = 2
    REFRESH_BANK = 3


@parameter_object
class BankTimingParameters(Parameters):
    """Number of banks, their times as a data sheet gives them, and the clock.

    `rcd`, `rp` and the other times in cycles follow from the picoseconds and the clock: minimum
    times are rounded up to cycles, the refresh interval is rounded down.

    Parameters
    ----------
    banks : int
        Banks of the pseudo-channel, in four bank groups.
    clock_mhz : int
        Clock of the unit.
    rcd_ps, rp_ps, ras_ps : int
        tRCD: activate to column command; tRP: precharge to activate; tRAS: activate to precharge.
    ccd_s_ps, ccd_l_ps : int
        tCCD_S: column to column command; tCCD_L: the same within one bank group.
    rtp_ps, wr_ps, wtr_ps : int
        tRTP: read to precharge; tWR: write to precharge; tWTR: write to read.
    rrd_ps : int
        tRRD: activate to activate of another bank.
    rfc_ps, refi_ps : int
        tRFC: length of a refresh; tREFI: interval between refreshes.
    rfcsb_ps, rrefd_ps : int
        tRFCSB: length of a refresh of one bank; tRREFD: from it to an activate, or to a refresh of
        one bank, of another bank.

    Raises
    ------
    ValueError
        If a time is out of its range, tCCD_L is shorter than tCCD_S, or the refresh interval has
        too few cycles of the clock.
    """

    banks: Annotated[int, PowerOfTwo(4, 16, "banks")] = 16
    clock_mhz: Annotated[int, Range(100, 2000, "MHz")] = 500
    rcd_ps: Annotated[int, Range(1, 62_000, "ps")] = 14_000
    rp_ps: Annotated[int, Range(1, 62_000, "ps")] = 14_000
    ras_ps: Annotated[int, Range(1, 126_000, "ps")] = 33_000
    ccd_s_ps: Annotated[int, Range(1, 8_000, "ps")] = 2_000
    ccd_l_ps: Annotated[int, Range(1, 8_000, "ps")] = 4_000
    rtp_ps: Annotated[int, Range(1, 30_000, "ps")] = 5_000
    wr_ps: Annotated[int, Range(1, 62_000, "ps")] = 16_000
    wtr_ps: Annotated[int, Range(1, 30_000, "ps")] = 7_500
    rrd_ps: Annotated[int, Range(1, 30_000, "ps")] = 4_000
    rfc_ps: Annotated[int, Range(1, 1_022_000, "ps")] = 260_000
    refi_ps: Annotated[int, Range(1, 16_382_000, "ps")] = 3_900_000
    rfcsb_ps: Annotated[int, Range(1, 1_022_000, "ps")] = 160_000
    rrefd_ps: Annotated[int, Range(1, 30_000, "ps")] = 8_000

    def __post_init__(self) -> None:
        """Check the rules between times and the clock."""
        super().__post_init__()
        rule = f"ccd_l_ps must be at least ccd_s_ps, {self.ccd_s_ps}"
        require(self.ccd_l_ps >= self.ccd_s_ps, rule, self.ccd_l_ps)
        least = -(-LEAST_REFRESH_CYCLES * PS_TIMES_MHZ // self.clock_mhz)
        rule = f"refi_ps must be at least {least} at clock_mhz={self.clock_mhz}"
        require(self.refi_ps >= least, rule, self.refi_ps)

    def cycles(self, picoseconds: int) -> int:
        """Return the cycles of a minimum time."""
        return -(-picoseconds * self.clock_mhz // PS_TIMES_MHZ)

    @property
    def rcd(self) -> int:
        """Return tRCD in cycles."""
        return self.cycles(self.rcd_ps)

    @property
    def rp(self) -> int:
        """Return tRP in cycles."""
        return self.cycles(self.rp_ps)

    @property
    def ras(self) -> int:
        """Return tRAS in cycles."""
        return self.cycles(self.ras_ps)

    @property
    def ccd_s(self) -> int:
        """Return tCCD_S in cycles."""
        return self.cycles(self.ccd_s_ps)

    @property
    def ccd_l(self) -> int:
        """Return tCCD_L in cycles."""
        return self.cycles(self.ccd_l_ps)

    @property
    def rtp(self) -> int:
        """Return tRTP in cycles."""
        return self.cycles(self.rtp_ps)

    @property
    def wr(self) -> int:
        """Return tWR in cycles."""
        return self.cycles(self.wr_ps)

    @property
    def wtr(self) -> int:
        """Return tWTR in cycles."""
        return self.cycles(self.wtr_ps)

    @property
    def rrd(self) -> int:
        """Return tRRD in cycles."""
        return self.cycles(self.rrd_ps)

    @property
    def rfc(self) -> int:
        """Return tRFC in cycles."""
        return self.cycles(self.rfc_ps)

    @property
    def rfcsb(self) -> int:
        """Return tRFCSB in cycles."""
        return self.cycles(self.rfcsb_ps)

    @property
    def rrefd(self) -> int:
        """Return tRREFD in cycles."""
        return self.cycles(self.rrefd_ps)

    @property
    def refi(self) -> int:
        """Return tREFI in cycles."""
        return self.refi_ps * self.clock_mhz // PS_TIMES_MHZ

    @property
    def longest_gap(self) -> int:
        """Return the maximum cycles without a refresh, nine intervals of tREFI."""
        return POSTPONED * self.refi_ps * self.clock_mhz // PS_TIMES_MHZ

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
a refresh of an open bank; the others are times by name. ``rp`` includes tRFC and tRFCSB, ``ras``
includes tRTP and tWR, ``ccd`` includes tCCD_S and tCCD_L, ``rrd`` includes tRREFD; ``refi`` is an
overdue refresh, or a refresh of a bank that its set has refreshed."""


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
        Commands of this cycle. `REFRESH` applies to all banks and ignores its mask; `REFRESH_BANK`
        has one bank.
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
            Signal(range(max(p.rp, p.rfc, p.rfcsb)), name=f"open_{i}") for i in range(p.banks)
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
        activates, precharges, refreshes, of_bank = (
            row.valid & (row.operation == one) for one in RowOperation
        )
        # A command for several banks is legal if it is legal for each of them.
        closed = column.valid & (column.banks & ~self.open).any()
        opened = ((activates | of_bank) & (row.banks & self.open).any()) | (
            refreshes & self.open.any()
        )
        # A set refreshes each bank once.
        refreshed = Signal(p.banks)
        repeated = of_bank & (row.banks & refreshed).any()

        def waits(counters: list[Signal], banks: Value) -> Value:
            return (Cat(counter != 0 for counter in counters) & banks).any()

        # An activate and a refresh of one bank delay both, of any bank.
        between, write_to_read = Signal(range(max(p.rrd, p.rrefd))), Signal(range(p.wtr))
        groups = [Signal(range(p.ccd_l), name=f"group_{i}") for i in range(p.groups)]
        size = p.banks // p.groups
        group_banks = Cat((group != 0).replicate(size) for group in groups)
        all_banks = refreshes.replicate(p.banks)
        early_column = (group_banks & column.banks).any()
        # A clock of one cycle per tCCD_S needs no counter for columns of different groups.
        if p.ccd_s > 1:
            after_column = Signal(range(p.ccd_s))
            early_column |= after_column != 0
            self._down(m, after_column, self.column_legal, p.ccd_s)
        since = Signal(range(p.longest_gap + 1))
        late = since == p.longest_gap
        v = self.violations
        m.d.comb += [
            v.closed.eq(closed),
            v.opened.eq(opened),
            v.rcd.eq(column.valid & ~closed & waits(self.until_column, column.banks)),
            v.ccd.eq(column.valid & early_column),
            v.wtr.eq(column.valid & ~column.write & (write_to_read != 0)),
            v.rp.eq(
                (activates | refreshes | of_bank)
                & ~opened
                & waits(self.until_activate, row.banks | all_banks)
            ),
            v.rrd.eq((activates | of_bank) & (between != 0)),
            self.column_legal.eq(column.valid & ~(v.closed | v.rcd | v.ccd | v.wtr)),
            # A bank that is accessed in this cycle cannot close yet.
            v.ras.eq(
                precharges
                & (
                    waits(self.until_precharge, row.banks & self.open)
                    | (self.column_legal & (row.banks & column.banks).any())
                )
            ),
            v.refi.eq(late | repeated),
            self.row_legal.eq(row.valid & ~(v.opened | v.rp | v.rrd | v.ras | repeated)),
        ]
        legal_activate = self.row_legal & activates
        legal_refresh = self.row_legal & refreshes
        legal_of_bank = self.row_legal & of_bank
        completed = legal_of_bank & (refreshed | row.banks).all()
        with m.If(legal_refresh | completed):
            m.d.sync += refreshed.eq(0)
        with m.Elif(legal_of_bank):
            m.d.sync += refreshed.eq(refreshed | row.banks)
        with m.If(legal_refresh | completed):
            m.d.sync += since.eq(0)
        with m.Elif(~late):
            m.d.sync += since.eq(since + 1)

        distance = Mux(of_bank, p.rrefd, p.rrd)
        self._down(m, between, legal_activate | legal_of_bank, distance)
        self._down(m, write_to_read, self.column_legal & column.write, p.wtr)
        for number, group in enumerate(groups):
            banks = column.banks[number * size : (number + 1) * size]
            self._down(m, group, self.column_legal & banks.any(), p.ccd_l)
        for bank in range(p.banks):
            self._bank(
                m,
                bank,
                {
                    RowOperation.ACTIVATE: legal_activate,
                    RowOperation.PRECHARGE: self.row_legal & precharges,
                    RowOperation.REFRESH: legal_refresh,
                    RowOperation.REFRESH_BANK: legal_of_bank,
                },
            )
        return m

    @staticmethod
    def _down(m: Module, counter: Signal, starts: Value, cycles: Value | int) -> None:
        """Count down to 0, so that the counter is 0 again `cycles` cycles after a start."""
        with m.If(starts):
            m.d.sync += counter.eq(cycles - 1)
        with m.Elif(counter != 0):
            m.d.sync += counter.eq(counter - 1)

    def _bank(self, m: Module, bank: int, legal: dict[RowOperation, Value]) -> None:
        """Update the state and the counters of one bank by the legal row command."""
        p = self.parameters
        mine = self.row.banks[bank]
        used = self.column_legal & self.column.banks[bank]
        opens = legal[RowOperation.ACTIVATE] & mine
        closes = legal[RowOperation.PRECHARGE] & mine & self.open[bank]
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

        # A refresh blocks its banks as a precharge does.
        wait = self.until_activate[bank]
        with m.If(closes):
            m.d.sync += wait.eq(p.rp - 1)
        with m.Elif(legal[RowOperation.REFRESH]):
            m.d.sync += wait.eq(p.rfc - 1)
        with m.Elif(legal[RowOperation.REFRESH_BANK] & mine):
            m.d.sync += wait.eq(p.rfcsb - 1)
        with m.Elif(wait != 0):
            m.d.sync += wait.eq(wait - 1)


def bank_bits(p: BankTimingParameters) -> int:
    """Return the bits of a bank index."""
    return ceil_log2(p.banks)
