"""Refresh intervals in microseconds, and their settings at a clock (Sections 7.1 and 7.2)."""

from math import gcd
from typing import Annotated

from hdl.kelle.edram.refresh_walker import RefreshParameters, RefreshSettings
from hdl.parameters import Parameters, Range, parameter_object, require, require_range


@parameter_object
class RefreshIntervals(Parameters):
    """Refresh intervals of the four groups; the defaults are the paper's.

    Parameters
    ----------
    hst_msb, lst_msb, hst_lsb, lst_lsb : int
        Intervals in us, of high-score and low-score tokens, bits 15 to 8 and 7 to 0.

    Raises
    ------
    ValueError
        If an interval is out of range.
    """

    hst_msb: Annotated[int, Range(1, 1_000_000, "us")] = 360
    lst_msb: Annotated[int, Range(1, 1_000_000, "us")] = 1440
    hst_lsb: Annotated[int, Range(1, 1_000_000, "us")] = 5400
    lst_lsb: Annotated[int, Range(1, 1_000_000, "us")] = 7200

    @property
    def all(self) -> tuple[int, int, int, int]:
        """The four intervals in us."""
        return self.hst_msb, self.lst_msb, self.hst_lsb, self.lst_lsb

    @property
    def mean_us(self) -> float:
        """The one interval that refreshes as many words: the harmonic mean of equal groups."""
        return len(self.all) / sum(1 / interval for interval in self.all)

    def uniform(self) -> "RefreshIntervals":
        """Return one interval for all groups, with as many refreshes, in whole us."""
        one = round(self.mean_us)
        return RefreshIntervals(hst_msb=one, lst_msb=one, hst_lsb=one, lst_lsb=one)

    def settings(
        self, parameters: RefreshParameters, *, clock_mhz: int, timeout: int = 0
    ) -> RefreshSettings:
        """Return the settings of refresh controllers at a clock.

        The longest tick that divides all four intervals is divided further until the prescaler can
        count it. The tick is rounded down to whole cycles, so that no interval is exceeded.

        Parameters
        ----------
        parameters : RefreshParameters
            Dimensions of the controllers.
        clock_mhz : int
            Clock of the controllers.
        timeout : int
            As in `RefreshSettings`.

        Raises
        ------
        ValueError
            If the bits of ticks and intervals cannot express the intervals, or a tick is shorter
            than a sweep.
        """
        require_range("clock_mhz", clock_mhz, 1, 10_000)
        longest = gcd(*self.all)
        limit = (1 << parameters.tick_bits) - 1
        parts = -(-longest * clock_mhz // limit)
        ticks = [interval // longest * parts for interval in self.all]
        require(
            max(ticks) < 1 << parameters.interval_bits,
            f"intervals of {max(self.all)} us at {clock_mhz} MHz must have less than "
            f"{1 << parameters.interval_bits} ticks of at most {limit} cycles",
            max(ticks),
        )
        return RefreshSettings(
            parameters=parameters,
            tick_cycles=longest * clock_mhz // parts,
            timeout=timeout,
            msb_hst=ticks[0],
            msb_lst=ticks[1],
            lsb_hst=ticks[2],
            lsb_lst=ticks[3],
        )


TABLE_4 = {
    540: RefreshIntervals(hst_msb=180, lst_msb=720, hst_lsb=3600, lst_lsb=5400),
    1050: RefreshIntervals(),
    2062: RefreshIntervals(hst_msb=720, lst_msb=2880, hst_lsb=9000, lst_lsb=10800),
}
"""The intervals of Table 4, by the paper's uniform interval in us."""
