"""Parameters of the external memory of text generation, and its connection to a run.

`harness_external.h` models the memory: channels with banks, rows and refresh, and a queue for each.
The named memories are in `memories/`, one file each, with the source of every number.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from hdl.errors import UserError, unknown
from hdl.parameters import require

MEMORIES = Path(__file__).with_name("memories")

NONE = "none"
"""Name that selects ideal ports, without a model of a memory."""

FEMTOSECONDS = 10**6
"""Femtoseconds in a nanosecond, the unit of the program."""

READ_AHEAD = 16384
"""Bytes of a stream without addresses that are requested ahead of their use."""

TIMES = (
    *("rl", "wl", "controller", "rcd", "rp", "ras", "ccd_s", "ccd_l", "rrd_s", "rrd_l", "faw"),
    *("rtp", "wr", "wtr", "rtw", "rfc", "refi", "rfcsb", "rrefd"),
)
"""The fields that are times in ns, in the order in which the program reads them."""

CAUSES = ("latency", "bandwidth", "row", "refresh", "queue")
"""Causes for which a port waits."""

LEAST_CLOCK, MOST_CLOCK = 1, 10_000


@dataclass(frozen=True, kw_only=True)
class ExternalMemory:
    """A memory of equal DRAM channels; times in ns.

    Parameters
    ----------
    name : str
        Name of the file in `memories/`.
    channels : int
        Number of channels; adjacent bursts are in different channels.
    data_width : int
        Data bits of a channel.
    data_rate : float
        Transfers per data bit, in MT/s; the clock has half of this frequency.
    burst_length : int
        Transfers of a burst.
    bank_groups, banks : int
        Bank groups of a channel, and banks of a group.
    page_bytes : int
        Bytes of a row in one channel.
    queue_depth : int
        Accesses that a channel can reorder, reads and writes each.
    limit : float
        Bandwidth of a link between memory and design in Gb/s; 0 for none.
    controller : float
        Latency of controller and interface, for a request and its data together.
    rl, wl : float
        Read and write latency: column command to data.
    rcd, rp, ras : float
        tRCD: activate to column command; tRP: precharge to activate; tRAS: activate to precharge.
    ccd_s, ccd_l : float
        tCCD: column to column command, of two bank groups and of one.
    rrd_s, rrd_l, faw : float
        tRRD: activate to activate, of two bank groups and of one; tFAW: time of four activations.
    rtp, wr, wtr, rtw : float
        tRTP: read to precharge; tWR and tWTR: write data to precharge and to read command; time
        between read data and write data.
    rfc, refi : float
        tRFC: length of a refresh; tREFI: interval between refreshes.
    rfcsb, rrefd : float
        tRFCSB: length of a refresh of one bank; tRREFD: from it to an activate, or a refresh of one
        bank, of another bank. 0 if the memory has no refreshes of one bank. The model of the memory
        issues none; P3-LLM does.
    """

    name: str
    channels: int
    data_width: int
    data_rate: float
    burst_length: int
    bank_groups: int
    banks: int
    page_bytes: int
    queue_depth: int
    limit: float = 0.0
    controller: float
    rl: float
    wl: float
    rcd: float
    rp: float
    ras: float
    ccd_s: float
    ccd_l: float
    rrd_s: float
    rrd_l: float
    faw: float
    rtp: float
    wr: float
    wtr: float
    rtw: float
    rfc: float
    refi: float
    rfcsb: float = 0.0
    rrefd: float = 0.0

    def __post_init__(self) -> None:
        """Check every rule."""
        for name, most in (("channels", 128), ("queue_depth", 1024), ("burst_length", 64)):
            value = getattr(self, name)
            require(1 <= value <= most, f"{name} must be from 1 to {most}", value)
        require(self.burst_length % 2 == 0, "burst_length must be even", self.burst_length)
        for name in ("bank_groups", "banks"):
            value = getattr(self, name)
            legal = 1 <= value <= 32 and value & (value - 1) == 0
            require(legal, f"{name} must be a power of two from 1 to 32", value)
        most = self.bank_groups * self.banks
        require(most <= 64, "bank_groups x banks must be at most 64", most)
        require(
            8 <= self.data_width <= 1024 and self.data_width % 8 == 0,
            "data_width must be a multiple of 8 from 8 to 1024",
            self.data_width,
        )
        require(
            1 <= self.data_rate <= 100_000,
            "data_rate must be from 1 to 100000 MT/s",
            self.data_rate,
        )
        require(
            self.page_bytes >= self.burst_bytes and self.page_bytes % self.burst_bytes == 0,
            f"page_bytes must be a multiple of the {self.burst_bytes} bytes of a burst",
            self.page_bytes,
        )
        require(
            self.limit == 0 or 0.001 <= self.limit <= 1e6,
            "limit must be 0, or from 0.001 to 1000000 Gb/s",
            self.limit,
        )
        for name in TIMES:
            value = getattr(self, name)
            require(0 <= value <= 1e6, f"{name} must be from 0 to 1000000 ns", value)
        require(
            self.refi > self.rfc + self.rp + self.ras,
            "refi must exceed rfc + rp + ras",
            self.refi,
        )

    @property
    def burst_bytes(self) -> int:
        """Bytes of a burst, the smallest access."""
        return self.data_width * self.burst_length // 8

    @property
    def clock(self) -> float:
        """Period of the clock in ns, tCK."""
        return 2000 / self.data_rate

    @property
    def burst(self) -> float:
        """Time of a burst on the data bus, in ns."""
        return self.burst_length * self.clock / 2

    @property
    def gb_s(self) -> float:
        """Peak bandwidth in GB/s: that of all data bits, or that of the link if it is lower."""
        peak = self.channels * self.data_width * self.data_rate / 8000
        return min(peak, self.limit / 8) if self.limit else peak

    def settings(self, period: float, read_ahead: int, reserved: int) -> list[str]:
        """Return the numbers that the program reads; `period` of the design's clock in ns."""
        link = self.burst_bytes * 8 / self.limit if self.limit else 0
        columns = self.page_bytes // self.burst_bytes
        sizes = [self.channels, self.bank_groups, self.banks, self.burst_bytes, columns]
        # A rounded clock must not make a burst longer than its clock cycles.
        clock = _femtoseconds(self.clock)
        times = [link, *(getattr(self, name) for name in TIMES)]
        numbers = [_femtoseconds(period), read_ahead, reserved, *sizes, self.queue_depth]
        numbers += [clock, clock * self.burst_length // 2, *map(_femtoseconds, times)]
        return [str(number) for number in numbers]


def _femtoseconds(nanoseconds: float) -> int:
    return round(nanoseconds * FEMTOSECONDS)


@cache
def named_memories() -> dict[str, ExternalMemory]:
    """Return the memories of `memories/` by name."""
    files = sorted(MEMORIES.glob("*.toml"))
    return {
        file.stem: ExternalMemory(name=file.stem, **tomllib.loads(file.read_text())["values"])
        for file in files
    }


def memory_of(text: str) -> ExternalMemory | None:
    """Return the memory that the option MEMORY names, or None for ideal ports.

    Parameters
    ----------
    text : str
        A name, and changes to its numbers: ``lpddr4 channels=4 queue_depth=8``.

    Raises
    ------
    UserError
        If the name or a number's name is unknown, or a value is not a number.
    ValueError
        If a value is not legal.
    """
    name, *changes = text.split() or [""]
    known = named_memories()
    if name == NONE and not changes:
        return None
    if name not in known:
        raise UserError(unknown("MEMORY", name, [*known, NONE]))
    kinds = {one.name: one.type for one in fields(ExternalMemory) if one.name != "name"}
    given: dict[str, Any] = {}
    for change in changes:
        what, _equals, value = change.partition("=")
        if what not in kinds:
            raise UserError(unknown("a number of MEMORY", what, kinds))
        try:
            given[what] = int(value) if kinds[what] is int else float(value)
        except ValueError:
            kind = "an integer" if kinds[what] is int else "a number"
            raise UserError(f"{what} of MEMORY must be {kind}, not {value!r}") from None
    return replace(known[name], **given)


def require_clock(clock: int | None) -> None:
    """Refuse an option CLOCK that is out of range.

    Raises
    ------
    ValueError
        If the clock is out of range.
    """
    require(
        clock is None or LEAST_CLOCK <= clock <= MOST_CLOCK,
        f"CLOCK must be from {LEAST_CLOCK} to {MOST_CLOCK} MHz",
        clock,
    )


class External:
    """An external memory that is connected to the ports of a run.

    Parameters
    ----------
    memory : ExternalMemory
        Its parameters.
    clock_mhz : int
        Clock of the design in MHz.
    trace : Path, optional
        File that the program fills with the commands of all channels.

    Members
    -------
    counts : dict[str, int]
        Counts since the start of the run: bytes at the DRAM, commands, and cycles of waiting.
    gb_s : float
        Peak bandwidth in GB/s, of which `use` computes the share in use.
    """

    streams: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()

    def __init__(self, memory: ExternalMemory, clock_mhz: int, trace: Path | None = None) -> None:
        require_clock(clock_mhz)
        self.memory, self.clock_mhz, self.trace = memory, clock_mhz, trace
        self.gb_s = memory.gb_s
        self.counts: dict[str, int] = {}
        self._reserved = 0
        self._routes: dict[str, tuple[int, ...]] = {}

    def reserve(self, size: int) -> int:
        """Return the address of a new region of streams, before the run starts."""
        m, first = self.memory, self._reserved
        # A region begins with a row of every channel and bank group.
        stripe = m.page_bytes * m.bank_groups * m.channels
        self._reserved += -(-size // stripe) * stripe
        return first

    def route(self, stream: str, address: int, *, item_bytes: int, stride: int = 0) -> None:
        """Place the items of a stream from an address on, in the rounds that follow.

        Parameters
        ----------
        stream : str
            An input or output without addresses, or the given stream of a store.
        address : int
            Address of the first item.
        item_bytes : int
            Distance of two items.
        stride : int
            Distance of the first items of two keys of a store.
        """
        self._routes[stream] = address, item_bytes, stride

    def through(self, stream: str) -> list[str]:
        """Return the program's setting of a stream's place, if it has one."""
        route = self._routes.get(stream)
        return [" ".join(map(str, ["through", *route]))] if route else []

    def settings(self, streams: Mapping[str, str]) -> list[str]:
        """Return the program's settings of this memory."""
        numbers = self.memory.settings(1e3 / self.clock_mhz, READ_AHEAD, self._reserved)
        return [" ".join(["external", *numbers, *([str(self.trace)] if self.trace else [])])]

    def receive(self, counts: Mapping[str, int]) -> None:
        """Take the counts that the program reports."""
        prefix = "external."
        self.counts = {
            name.removeprefix(prefix): count
            for name, count in counts.items()
            if name.startswith(prefix)
        }

    def use(self, before: Mapping[str, int], cycles: int) -> dict[str, Any]:
        """Return what the cycles since earlier counts used of the memory, for a record.

        Parameters
        ----------
        before : Mapping[str, int]
            The counts at the start of these cycles.
        cycles : int
            The cycles.
        """
        new = {name: count - before.get(name, 0) for name, count in self.counts.items()}
        moved = new["bytes_read"] + new["bytes_written"]
        seconds = cycles / (self.clock_mhz * 1e6)
        return {
            **{name: count for name, count in new.items() if name not in CAUSES},
            "port_cycles": {cause: new[cause] for cause in CAUSES},
            "utilization": moved / (seconds * self.gb_s * 1e9),
        }
