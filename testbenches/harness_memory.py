"""Models connected to a unit's ports in a long run: memories in files, and stores of sequences."""

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
    """A memory of lines in a persistent file.

    Parameters
    ----------
    file : Path
        File of consecutive lines of `line_width` / 8 bytes; `create` writes one of zeros.
    fixed : Sequence[tuple[Path, int]]
        Read-only files, and the address of the first line of each; they take precedence over
        `file`.
    reads, words, writes : str
        Streams of bursts, of their beats, and of writes; without `writes` the memory is read-only.
    channels, line_width, address_width : int
        A beat consists of one line per channel, each with its own address.
    read_layout, write_layout : data.StructLayout
        Payload layouts: reads have the fields `addresses` (one per channel) and `beats`; writes
        have `addresses`, `enables` (one bit per channel) and `words`.
    latency : int
        Cycles from a burst to its first beat.
    bursts : int
        Maximum number of waiting bursts.
    spread : Mapping[int, tuple[int, int]]
        By the highest bits of an address, the field that is lowest in an external memory, as
        offset and width in bits.
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
    spread: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check every rule."""
        require(self.line_width % 8 == 0, "line_width must be a multiple of 8", self.line_width)
        require(
            bool(self.writes) == (self.write_layout is not None),
            "a stream of writes must have its layout",
            (self.writes, self.write_layout),
        )

    @property
    def streams(self) -> list[str]:
        """The unit's streams that it serves."""
        return [name for name in (self.reads, self.words, self.writes) if name]

    @property
    def traces(self) -> list[str]:
        """Files that list the lines written in a round."""
        return [f"{self.words}.writes"]

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return (self.line_width // 8) << self.address_width

    def create(self, lines: Mapping[int, int]) -> None:
        """Write a sparse file with lines by address."""
        line_bytes = self.line_width // 8
        with self.file.open("wb") as file:
            file.truncate(self.size)
            for address, line in lines.items():
                file.seek(address * line_bytes)
                file.write(line.to_bytes(line_bytes, "little"))

    def lines(self) -> np.ndarray:
        """Map the file as uint8 [address, byte]."""
        return np.memmap(
            self.file,
            np.uint8,
            "r+",
            shape=(self.size * 8 // self.line_width, self.line_width // 8),
        )

    def settings(self, streams: Mapping[str, str]) -> list[str]:
        """Return the program's settings of this memory."""
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
        space_bits = max(map(int.bit_length, self.spread), default=0)
        shift = self.address_width - space_bits
        layout = [self.channels, self.line_width, self.address_width, *numbers]
        return [
            f"memory {self.latency} {self.bursts} {self.words}.writes",
            *(f"file {json.dumps(str(file))} {first} {mode}" for file, first, mode in files),
            *(f"{role} {streams[name]}" for role, name in roles),
            *(f"spread {shift} {space} {at} {bits}" for space, (at, bits) in self.spread.items()),
            "layout " + " ".join(map(str, layout)),
        ]


@dataclass(frozen=True, kw_only=True)
class Channel:
    """The shared bandwidth of all banks that follow it in a list of memories.

    Parameters
    ----------
    bits : int
        Average number of bits per cycle over all ports; a wider word takes several cycles.
    """

    bits: int

    def __post_init__(self) -> None:
        """Check the rule."""
        require(self.bits > 0, "bits of a channel must be more than 0", self.bits)

    @property
    def streams(self) -> list[str]:
        """No streams: it serves banks."""
        return []

    @property
    def traces(self) -> list[str]:
        """No files."""
        return []

    def settings(self, streams: Mapping[str, str]) -> list[str]:
        """Return the program's settings of this channel."""
        return [f"channel {self.bits}"]


@dataclass(frozen=True, kw_only=True)
class Bank:
    """A memory of words with ports of `hdl.memory.burst_port`, in a persistent file.

    Parameters
    ----------
    file : Path
        File of consecutive words.
    word_bytes : int
        Size of a word in bytes.
    reads, writes : Mapping[str, Any]
        Ports of the unit by name; without `writes` the memory is read-only.
    traced : str
        Port of `writes` whose words `LongRun.writes` lists.
    latency, bursts : int
        As in `BurstMemory`.
    """

    file: Path
    word_bytes: int
    reads: Mapping[str, Any] = field(default_factory=dict)
    writes: Mapping[str, Any] = field(default_factory=dict)
    traced: str = ""
    latency: int = 24
    bursts: int = 8

    @property
    def streams(self) -> list[str]:
        """The unit's streams that it serves."""
        ports = [*self.reads, *self.writes]
        return [f"{port}_{part}" for port in ports for part in ("requests", "words")]

    @property
    def traces(self) -> list[str]:
        """Files that list the words written in a round."""
        return [f"{self.traced}.writes"] if self.traced else []

    def settings(self, streams: Mapping[str, str]) -> list[str]:
        """Return the program's settings; a burst reads words written in the same cycle."""
        where = f"{self.word_bytes} {json.dumps(str(self.file))} {int(bool(self.writes))}"
        lines = [f"bank {self.latency} {self.bursts} {where}"]
        for role, ports in (("write_port", self.writes), ("read_port", self.reads)):
            for name, port in ports.items():
                fields = dict(port.request_layout)
                widths = [fields["address"].width, fields["length"].width]
                widths.append(dict(port.word_layout)["word"].width)
                ports_of_stream = [streams[f"{name}_{part}"] for part in ("requests", "words")]
                trace = f"{name}.writes" if name == self.traced else ""
                lines.append(" ".join(map(str, [role, *ports_of_stream, name, *widths, trace])))
        return lines


@dataclass(frozen=True, kw_only=True)
class Dram:
    """DRAM banks that execute the commands of P3-LLM's pseudo-channel, in a persistent file.

    `Moved.counts` contains columns: `together` counts those read from all units at once, `alone`
    those read from one unit, and `written` those written.

    Parameters
    ----------
    file : Path
        File of consecutive positions, as produced by `golden.p3llm.dram_image`.
    units, column_bytes : int
        Number of compute units, and size of a column in bytes.
    layout : data.StructLayout
        Layout of the port `command`.
    command, data : str
        Ports of the commands, and of the data read in the previous cycle.
    """

    file: Path
    units: int
    column_bytes: int
    layout: data.StructLayout
    command: str = "bank_command"
    data: str = "bank_data"

    @property
    def streams(self) -> list[str]:
        """No streams: commands cannot be stalled."""
        return []

    @property
    def traces(self) -> list[str]:
        """No files."""
        return []

    def settings(self, streams: Mapping[str, str]) -> list[str]:
        """Return the program's settings of these banks."""
        fields = dict(self.layout)
        names = ("activate", "precharge", "refresh", "row", "read", "write", "column", "mask")
        names += ("data",)
        fields_of_command = (f"{fields[name].offset} {fields[name].width}" for name in names)
        where = f"{self.units} {self.column_bytes} {json.dumps(str(self.file))}"
        return [f"dram {self.command} {self.data} {where} {' '.join(fields_of_command)}"]


@dataclass(frozen=True, kw_only=True)
class Store:
    """Sequences of items by key, between an output stream and an input stream of a unit.

    Each step sends its key's sequence to `given`, padded with zeros, and replaces the sequence by
    the items from `taken`. A step waits for earlier steps of the same key.

    Parameters
    ----------
    given, taken : str
        Names of the two streams.
    steps : Sequence[tuple[int, int, int]]
        Key of each step, number of items to send, and number of items to store.
    kept : dict[int, numpy.ndarray]
        uint64 items by key, of at most 64 bits; a run modifies them.
    """

    given: str
    taken: str
    steps: Sequence[tuple[int, int, int]]
    kept: dict[int, NDArray[np.uint64]]

    def write(self, file: Path, item_bytes: int) -> None:
        """Write the program's input: each key, the number of its items, and the items."""
        with file.open("wb") as out:
            for key, items in self.kept.items():
                out.write(np.array([key, len(items)], np.uint64).tobytes())
                rows = np.asarray(items, "<u8").reshape(-1, 1).view(np.uint8)
                out.write(np.ascontiguousarray(rows[:, :item_bytes]).tobytes())

    def read(self, file: Path, item_bytes: int) -> None:
        """Read the items that the program wrote."""
        content = file.read_bytes()
        place = 0
        while place < len(content):
            key, count = (int(n) for n in np.frombuffer(content, np.uint64, 2, place))
            place += 16
            rows = np.frombuffer(content, np.uint8, count * item_bytes, place).reshape(
                count, item_bytes
            )
            self.kept[key] = np.pad(rows, ((0, 0), (0, 8 - item_bytes))).view("<u8")[:, 0]
            place += count * item_bytes


@dataclass(frozen=True, kw_only=True)
class FileItems:
    """Items of an input stream in a file in the program's format.

    Parameters
    ----------
    file : Path
        File of consecutive items, each in the type that Verilator uses for the port.
    first, size : int
        Offset of the first item, and size of all items, in bytes.
    """

    file: Path
    first: int
    size: int

    @property
    def where(self) -> str:
        """The program's settings of these items."""
        return f"{json.dumps(str(self.file))} {self.first} {self.size}"


@dataclass(frozen=True)
class Plane:
    """Elements of each key, one per index, in whole bytes.

    Parameters
    ----------
    first : int
        Offset in the file of the first key's elements, in bytes.
    element_bytes : int
        Size of an element in bytes; its value is in the low bits.
    each : int
        Number of elements per key.
    """

    first: int
    element_bytes: int
    each: int


@dataclass(frozen=True, kw_only=True)
class RowPort:
    """A stream of requests with its answers, or of writes; the payload field `head` is the key.

    Parameters
    ----------
    stream, layout
        Name of the stream, and layout of its payload.
    fields : Mapping[str, Plane]
        Planes that the fields of the answers, or of the writes, access.
    answers, answer_layout
        Stream of answers, and layout of its payload; without it the stream is one of writes.
    place : str
        Field with the index of the element; without it, a key's elements are accessed in order.
    length : str
        Field with the number of elements requested, from the first one on.
    count : int
        Elements per access without `place` and `length`.
    lanes : int
        Adjacent elements in a payload, which share one index.
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
    """A memory of elements by key, in a persistent file.

    Parameters
    ----------
    file : Path
        File of the planes.
    ports : Sequence[RowPort]
        Ports of the memory.
    tiles : int
        Number of tiles; a key is `head` times `tiles` plus `tile`.
    latency, waiting : int
        Cycles from a request to its first answer, and number of waiting answers that stops
        requests.
    """

    file: Path
    ports: Sequence[RowPort]
    tiles: int = 1
    latency: int = 24
    waiting: int = 1024

    @property
    def streams(self) -> list[str]:
        """The unit's streams that it serves."""
        return [name for port in self.ports for name in (port.stream, port.answers) if name]

    @property
    def traces(self) -> list[str]:
        """No files: writes are not traced."""
        return []

    def settings(self, streams: Mapping[str, str]) -> list[str]:
        """Return the program's settings; readers precede writers, so reads return old data."""
        ports = sorted(self.ports, key=lambda port: not port.answers)
        return [self._line(port, streams) for port in ports]

    def _line(self, port: RowPort, streams: Mapping[str, str]) -> str:
        """Return the program's settings of a port."""

        def bits(name: str) -> str:
            fields = dict(port.layout)
            return f"{fields[name].offset} {fields[name].width}" if name in fields else "0 0"

        carried = dict(port.answer_layout or port.layout)
        planes = [
            f"{plane.first} {plane.each} {plane.element_bytes} {carried[name].width // port.lanes} "
            f"{carried[name].offset}"
            for name, plane in port.fields.items()
        ]
        rows = [port.answers or port.stream, json.dumps(str(self.file)), self.tiles, port.lanes]
        rows += [port.count, bits("head"), bits("tile"), bits(port.place), len(planes), *planes]
        if not port.answers:
            return " ".join(map(str, ["row_writer", streams[port.stream], *rows]))
        both = [streams[port.answers], streams[port.stream]]
        ends = [bits(port.length), self.latency, self.waiting]
        return " ".join(map(str, ["row_reader", *both, *rows, *ends]))
