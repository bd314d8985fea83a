"""The paper's refresh intervals, limited to the range of a unit's parameters."""

from hdl.kelle.edram.refresh_walker import RefreshParameters, RefreshSettings

PAPER = (4, 15, 20)
"""Ticks of 0.36 ms: MSB of low scores, LSB of high scores, LSB of low scores."""


def paper_intervals(
    p: RefreshParameters, tick: int, timeout: int, intervals: tuple[int, int, int] = PAPER
) -> RefreshSettings:
    """Return the intervals, each limited to its bits, in ticks of a given number of cycles."""
    longest = (1 << p.interval_bits) - 1
    msb_lst, lsb_hst, lsb_lst = (min(interval, longest) for interval in intervals)
    return RefreshSettings(
        parameters=p,
        tick_cycles=tick,
        timeout=timeout,
        msb_lst=msb_lst,
        lsb_hst=lsb_hst,
        lsb_lst=lsb_lst,
    )
