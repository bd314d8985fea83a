"""Timing of the lines of a burst from a stack of HBM2: banks, rows, refresh."""

from dataclasses import dataclass, field

LINES_OF_A_ROW = 8
"""Lines of 64 FP16 numbers in a pseudo-channel's page of 1 KB."""

BANKS = 16

ROW_TO_COLUMN = 14
PRECHARGE = 14
ROW_CYCLE = 47
ROW_TO_ROW = 4
REFRESH = 260
REFRESH_INTERVAL = 3900
"""tRCD, tRP, tRC, tRRD, tRFC and tREFI of an 8 Gb stack, in cycles of 1 GHz."""

LATENCY = 24
"""Cycles from a column command to its line, including the controller."""


@dataclass(eq=False)
class HbmTiming:
    """Channels in lock-step, each a separate pseudo-channel; one line per channel and cycle.

    Consecutive rows are in different banks. A row is opened as soon as the burst is known, unless
    its bank still has another row open, or all banks are refreshed.

    Members
    -------
    free : list[int]
        Cycle from which each bank can open another row.
    opened : int
        Cycle of the last row activation.
    given : int
        Cycle of the last line.
    """

    free: list[int] = field(default_factory=lambda: [0] * BANKS)
    opened: int = 0
    given: int = 0

    def burst(self, first: int, lines: int, cycle: int) -> list[int]:
        """Return the cycles in which the lines of a burst that is issued now are available."""
        times = []
        ready = 0
        for line in range(first, first + lines):
            if line == first or line % LINES_OF_A_ROW == 0:
                ready = self._open(line // LINES_OF_A_ROW, cycle)
            time = max(self.given + 1, ready + LATENCY)
            behind = time % REFRESH_INTERVAL
            if behind < PRECHARGE + REFRESH:
                # A refresh closes all rows: the row is opened again after it.
                time += PRECHARGE + REFRESH - behind + ROW_TO_COLUMN
            self.given = time
            times.append(time)
        return times

    def _open(self, row: int, cycle: int) -> int:
        """Open a row; return the cycle from which it can be read."""
        bank = row % BANKS
        self.opened = max(cycle, self.opened + ROW_TO_ROW, self.free[bank])
        self.free[bank] = max(self.opened + ROW_CYCLE, self.given + PRECHARGE)
        return self.opened + ROW_TO_COLUMN
