"""What stands behind a unit's ports in a long run: memory in files, and stores of sequences."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.lib import data
from numpy.typing import NDArray

from hdl.parameters import require


@dataclass(frozen=True, kw_only=True)
class BurstMemory:
    """A memory of lines behind a unit's ports, in a file that outlives the run.

    Parameters
    ----------
    file : Path
        Line after line, each of `line_width` / 8 octets; `create` makes one of zeros.
    fixed : Sequence[tuple[Path, int]]
        Files that are only read, and the address of each one's first line: there, they hide `file`.
    reads, words, writes : str
        Streams of bursts, of their beats, and of writes; without `writes` nothing is written.
    channels, line_width, address_width : int
        A beat is a line of each channel, each from an address of its own.
    read_layout, write_layout : data.StructLayout
        Payloads with the fields `addresses` (one a channel) and `beats`, and with `addresses`,
        `enables` (a bit a channel) and `words`.
    latency : int
        Cycles from a burst to its first beat.
    bursts : int
        Bursts that wait at most.
    """

    file: Path
    fixed: Sequence[tuple[Path, int]] = ()
    reads: str
    words: str
    read_layout: data.StructLayout
    writes: str = ""
    write_layout: data.StructLayout | None = None
    channels: int
    line_width: int
    address_width: int
    latency: int = 24
    bursts: int = 8

    def __post_init__(self) -> None:
        """Check every rule."""
        require(self.line_width % 8 == 0, "line_width must be whole octets", self.line_width)
        require(
            bool(self.writes) == (self.write_layout is not None),
            "a stream of writes must have its layout",
            (self.writes, self.write_layout),
        )

    @property
    def streams(self) -> list[str]:
        """What stands before it."""
        return [name for name in (self.reads, self.words, self.writes) if name]

    @property
    def traces(self) -> list[str]:
        """Files that say which lines a round wrote."""
        return [f"{self.words}.writes"]

    @property
    def size(self) -> int:
        """Octets of the file."""
        return (self.line_width // 8) << self.address_width

    def create(self, lines: Mapping[int, int]) -> None:
        """Write a file with lines by address; what was never written takes no space."""
        octets = self.line_width // 8
        with self.file.open("wb") as file:
            file.truncate(self.size)
            for address, line in lines.items():
                file.seek(address * octets)
                file.write(line.to_bytes(octets, "little"))

    def lines(self) -> np.ndarray:
        """Map the file: uint8 [address, octet]."""
        return np.memmap(
            self.file,
            np.uint8,
            "r+",
            shape=(self.size * 8 // self.line_width, self.line_width // 8),
        )

    def settings(self, streams: Mapping[str, str]) -> list[str]:
        """Write what the program reads of it."""
        bursts = dict(self.read_layout)
        numbers = [bursts["addresses"].offset, bursts["beats"].offset, bursts["beats"].width]
        roles = [("reads", self.reads), ("words", self.words)]
        if self.write_layout is not None:
            stores = dict(self.write_layout)
            numbers += [stores[name].offset for name in ("addresses", "enables", "words")]
            roles.append(("writes", self.writes))
        else:
            numbers += [0, 0, 0]
        files = [(self.file, 0, 1), *((file, first, 0) for file, first in self.fixed)]
        layout = [self.channels, self.line_width, self.address_width, *numbers]
        return [
            f"memory {self.latency} {self.bursts} {self.words}.writes",
            *(f"file {json.dumps(str(file))} {first} {mode}" for file, first, mode in files),
            *(f"{role} {streams[name]}" for role, name in roles),
            "layout " + " ".join(map(str, layout)),
        ]


@dataclass(frozen=True, kw_only=True)
class Bank:
    """A memory of words behind ports of `hdl.memory.burst_port`, in a file that outlives the run.

    Parameters
    ----------
    file : Path
        Word after word.
    octets : int
        Of a word.
    reads, writes : Mapping[str, Any]
        The unit's ports by their names; without `writes` nothing is written.
    traced : str
        The one of `writes` whose words `LongRun.writes` lists.
    latency, bursts : int
        As of `BurstMemory`.
    """

    file: Path
    octets: int
    reads: Mapping[str, Any] = field(default_factory=dict)
    writes: Mapping[str, Any] = field(default_factory=dict)
    traced: str = ""
    latency: int = 24
    bursts: int = 8

    @property
    def streams(self) -> list[str]:
        """What stands before it."""
        ports = [*self.reads, *self.writes]
        return [f"{port}_{part}" for port in ports for part in ("requests", "words")]

    @property
    def traces(self) -> list[str]:
        """Files that say which words a round wrote."""
        return [f"{self.traced}.writes"] if self.traced else []

    def settings(self, streams: Mapping[str, str]) -> list[str]:
        """Write what the program reads of it; a burst sees what is written in the same cycle."""
        where = f"{self.octets} {json.dumps(str(self.file))} {int(bool(self.writes))}"
        lines = [f"bank {self.latency} {self.bursts} {where}"]
        for role, ports in (("write_port", self.writes), ("read_port", self.reads)):
            for name, port in ports.items():
                fields = dict(port.request_layout)
                widths = [fields["address"].width, fields["length"].width]
                widths.append(dict(port.word_layout)["word"].width)
                ways = [streams[f"{name}_{part}"] for part in ("requests", "words")]
                trace = f"{name}.writes" if name == self.traced else ""
                lines.append(" ".join(map(str, [role, *ways, name, *widths, trace])))
        return lines


@dataclass(frozen=True, kw_only=True)
class Dram:
    """Banks behind the commands of P3-LLM's pseudo-channel, in a file that outlives the run.

    `Moved.counts` has columns: those that were read of all units `together`, those read `alone`,
    and those `written`.

    Parameters
    ----------
    file : Path
        Position after position, as `golden.p3llm.dram_image` makes them.
    units, octets : int
        Compute units, and octets of a column.
    layout : data.StructLayout
        Of the port `command`.
    command, data : str
        Ports of what the banks are told, and of what was read in the cycle before.
    """

    file: Path
    units: int
    octets: int
    layout: data.StructLayout
    command: str = "bank_command"
    data: str = "bank_data"

    @property
    def streams(self) -> list[str]:
        """None: commands cannot wait."""
        return []

    @property
    def traces(self) -> list[str]:
        """None."""
        return []

    def settings(self, streams: Mapping[str, str]) -> list[str]:
        """Write what the program reads of it."""
        fields = dict(self.layout)
        names = ("activate", "row", "read", "write", "column", "mask", "data")
        places = (f"{fields[name].offset} {fields[name].width}" for name in names)
        where = f"{self.units} {self.octets} {json.dumps(str(self.file))}"
        return [f"dram {self.command} {self.data} {where} {' '.join(places)}"]


@dataclass(frozen=True, kw_only=True)
class Store:
    """Sequences of items by key, between an output stream and an input stream of a unit.

    Each step gives its key's sequence to `given`, zeros behind its end, and keeps what comes from
    `taken` in its place. A step waits for those before it of the same key.

    Parameters
    ----------
    given, taken : str
        The streams.
    steps : Sequence[tuple[int, int, int]]
        Of each step its key, how many items are given, and how many are taken.
    kept : dict[int, numpy.ndarray]
        uint64 items by key, of at most 64 bits; a run changes them.
    """

    given: str
    taken: str
    steps: Sequence[tuple[int, int, int]]
    kept: dict[int, NDArray[np.uint64]]

    def write(self, file: Path, octets: int) -> None:
        """Write what the program reads: of each key itself, the number of its items, and these."""
        with file.open("wb") as out:
            for key, items in self.kept.items():
                out.write(np.array([key, len(items)], np.uint64).tobytes())
                rows = np.asarray(items, "<u8").reshape(-1, 1).view(np.uint8)
                out.write(np.ascontiguousarray(rows[:, :octets]).tobytes())

    def read(self, file: Path, octets: int) -> None:
        """Keep what the program wrote."""
        content = file.read_bytes()
        place = 0
        while place < len(content):
            key, count = (int(n) for n in np.frombuffer(content, np.uint64, 2, place))
            place += 16
            rows = np.frombuffer(content, np.uint8, count * octets, place).reshape(count, octets)
            self.kept[key] = np.pad(rows, ((0, 0), (0, 8 - octets))).view("<u8")[:, 0]
            place += count * octets
