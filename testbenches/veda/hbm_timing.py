"""When a stack of HBM2 can give the lines of a burst: banks, rows, refresh."""

from dataclasses import dataclass, field

LINES_OF_A_ROW = 8
"""A pseudo-channel's page of 1 KB, in lines of 64 FP16 numbers."""

BANKS = 16

ROW_TO_COLUMN = 14
PRECHARGE = 14
ROW_CYCLE = 47
ROW_TO_ROW = 4
REFRESH = 260
REFRESH_INTERVAL = 3900
"""tRCD, tRP, tRC, tRRD, tRFC and tREFI of an 8 Gb stack, in cycles of 1 GHz."""

LATENCY = 24
"""Cycles from a column to its line, in which the controller decides too."""


@dataclass(eq=False)
class HbmTiming:
    """Channels in lock-step, each a pseudo-channel of its own; one line of each a cycle.

    Rows that follow each other stand in different banks, and are opened as soon as the burst is
    known, unless their bank still has another row, or all banks are refreshed.

    Members
    -------
    free : list[int]
        Cycle from which each bank can open another row.
    opened : int
        Cycle of the last opening.
    given : int
        Cycle of the last line.
    """

    free: list[int] = field(default_factory=lambda: [0] * BANKS)
    opened: int = 0
    given: int = 0

    def burst(self, first: int, lines: int, cycle: int) -> list[int]:
        """Return when each line of a burst that is ordered now can leave."""
        times = []
        ready = 0
        for line in range(first, first + lines):
            if line == first or line % LINES_OF_A_ROW == 0:
                ready = self._open(line // LINES_OF_A_ROW, cycle)
            time = max(self.given + 1, ready + LATENCY)
            behind = time % REFRESH_INTERVAL
            if behind < PRECHARGE + REFRESH:
                # All rows are closed: this one is opened once more behind the refresh.
                time += PRECHARGE + REFRESH - behind + ROW_TO_COLUMN
            self.given = time
            times.append(time)
        return times

    def _open(self, row: int, cycle: int) -> int:
        """Open a row; return when it can be read."""
        bank = row % BANKS
        self.opened = max(cycle, self.opened + ROW_TO_ROW, self.free[bank])
        self.free[bank] = max(self.opened + ROW_CYCLE, self.given + PRECHARGE)
        return self.opened + ROW_TO_COLUMN
