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
class Channel:
    """What all banks behind it in a list of memories share: a bandwidth.

    Parameters
    ----------
    bits : int
        Bits a cycle of all ports together, in the mean: a wider word takes several cycles' worth.
    """

    bits: int

    def __post_init__(self) -> None:
        """Check the rule."""
        require(self.bits > 0, "bits of a channel must be more than 0", self.bits)

    @property
    def streams(self) -> list[str]:
        """None: it stands behind banks."""
        return []

    @property
    def traces(self) -> list[str]:
        """None."""
        return []

    def settings(self, streams: Mapping[str, str]) -> list[str]:
        """Write what the program reads of it."""
        return [f"channel {self.bits}"]


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


@dataclass(frozen=True, kw_only=True)
class FileItems:
    """Items of an input stream that stand in a file as the program reads them.

    Parameters
    ----------
    file : Path
        Item after item, each in the type that Verilator gives the port.
    first, octets : int
        Where they begin, and how long they are.
    """

    file: Path
    first: int
    octets: int

    @property
    def where(self) -> str:
        """What the program reads of it."""
        return f"{json.dumps(str(self.file))} {self.first} {self.octets}"


@dataclass(frozen=True)
class Plane:
    """Elements of each key, one of each place, in whole octets.

    Parameters
    ----------
    first : int
        Octet of the file where the first key's begin.
    octets : int
        Of an element; its bits are the lowest.
    each : int
        Elements of a key.
    """

    first: int
    octets: int
    each: int


@dataclass(frozen=True, kw_only=True)
class RowPort:
    """A stream of requests with its answers, or of writes; its payload names a key by `head`.

    Parameters
    ----------
    stream, layout
        The stream, and its payload.
    fields : Mapping[str, Plane]
        Which planes the fields of the answers, or of the writes, are elements of.
    answers, answer_layout
        The stream of answers, and its payload; without it the stream is one of writes.
    place : str
        The field that says which element; without one all of a key's come in turn.
    length : str
        The field that says how many elements are asked for, from the first one on.
    count : int
        Elements of a turn without `place` and `length`.
    lanes : int
        Elements side by side in a payload, which a place stands for.
    """

    stream: str
    layout: data.StructLayout
    fields: Mapping[str, Plane]
    answers: str = ""
    answer_layout: data.StructLayout | None = None
    place: str = ""
    length: str = ""
    count: int = 1
    lanes: int = 1


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A memory of elements by key, in a file that outlives the run.

    Parameters
    ----------
    file : Path
        The planes.
    ports : Sequence[RowPort]
        What stands before it.
    tiles : int
        Keys are `head` times so many, and `tile`.
    latency, waiting : int
        Cycles from a request to its first answer, and answers from which on no request is taken.
    """

    file: Path
    ports: Sequence[RowPort]
    tiles: int = 1
    latency: int = 24
    waiting: int = 1024

    @property
    def streams(self) -> list[str]:
        """What stands before it."""
        return [name for port in self.ports for name in (port.stream, port.answers) if name]

    @property
    def traces(self) -> list[str]:
        """No file says what a round wrote."""
        return []

    def settings(self, streams: Mapping[str, str]) -> list[str]:
        """Write what the program reads of it: readers first, who see nothing of their cycle's."""
        ports = sorted(self.ports, key=lambda port: not port.answers)
        return [self._line(port, streams) for port in ports]

    def _line(self, port: RowPort, streams: Mapping[str, str]) -> str:
        """Write what the program reads of a port."""

        def bits(name: str) -> str:
            fields = dict(port.layout)
            return f"{fields[name].offset} {fields[name].width}" if name in fields else "0 0"

        carried = dict(port.answer_layout or port.layout)
        planes = [
            f"{plane.first} {plane.each} {plane.octets} {carried[name].width // port.lanes} "
            f"{carried[name].offset}"
            for name, plane in port.fields.items()
        ]
        rows = [port.answers or port.stream, json.dumps(str(self.file)), self.tiles, port.lanes]
        rows += [port.count, bits("head"), bits("tile"), bits(port.place), len(planes), *planes]
        if not port.answers:
            return " ".join(map(str, ["row_writer", streams[port.stream], *rows]))
        ways = [streams[port.answers], streams[port.stream]]
        ends = [bits(port.length), self.latency, self.waiting]
        return " ".join(map(str, ["row_reader", *ways, *rows, *ends]))
