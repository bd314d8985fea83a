"""Long runs without an interpreter: numpy arrays into a unit's streams, and out of them.

A C++ program drives the model that Verilator made for cocotb; which ports are streams, the unit's
ports say. Its cycle is that of `testbenches.bench`: the same stimuli give the same results in the
same cycles. The program is kept beside the model.
"""

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.lib import data

from hdl.emit import Port
from hdl.emitted import emit_unit
from hdl.entry import Entry
from hdl.errors import UserError
from hdl.parameters import require
from hdl.paths import BUILD, locked
from hdl.target import Target
from testbenches import simulators
from testbenches.packing import Bits

PROGRAM = Path(__file__).with_suffix(".cpp")
RESET_CYCLES = 2
SIGNALS = ("valid", "ready", "payload")


@dataclass(frozen=True, kw_only=True)
class BurstMemory:
    """A memory of lines behind a unit's ports, in a file that outlives the run.

    Parameters
    ----------
    file : Path
        Line after line, each of `line_width` / 8 octets; `create` makes one of zeros.
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
        head = f"memory {json.dumps(str(self.file))} {self.size} {self.latency} {self.bursts}"
        layout = [self.channels, self.line_width, self.address_width, *numbers]
        return [
            head,
            *(f"{role} {streams[name]}" for role, name in roles),
            "layout " + " ".join(map(str, layout)),
        ]


@dataclass(frozen=True, kw_only=True)
class LongRun:
    """What a run gave.

    Parameters
    ----------
    outputs : dict[str, numpy.ndarray]
        Bits [items, width] of every output stream, and of every recorded port one item a cycle.
    cycles : dict[str, numpy.ndarray]
        For every output stream the cycle of each item, counted from the run's begin.
    cycle : int
        Cycles from the end of reset until everything expected had come.
    seconds : float
        Time on the wall of all cycles.
    cycles_per_second : float
        Those of the whole run.
    """

    outputs: dict[str, Bits]
    cycles: dict[str, np.ndarray] = field(default_factory=dict)
    cycle: int
    seconds: float
    cycles_per_second: float


@dataclass(frozen=True)
class Harness:
    """A unit's compiled model with its program.

    Parameters
    ----------
    ports : Sequence[Port]
        The unit's ports.
    program : Path
        What `compiled` built.
    """

    ports: Sequence[Port]
    program: Path

    @classmethod
    def compiled(cls, entry: Entry, parameters: Any, target: Target = Target.FPGA) -> "Harness":
        """Emit and compile a unit, unless an equal one is in the cache.

        Parameters
        ----------
        entry : Entry
            The unit.
        parameters : Any
            Its parameter object.
        target : Target
            Sums and products as `+` and `*`, which simulate fastest, or as gates.
        """
        name, _parameters = entry.named(parameters)
        with locked(BUILD / entry.top / f".{name}.lock"):
            emitted = emit_unit(entry, parameters, target)
            ports = emitted.ports
            _runner, model = simulators.build(
                simulator="verilator",
                top=entry.top,
                ports=ports,
                verilog=emitted.verilog,
                waves=False,
                coverage=False,
            )
            header = "#define PORT_LIST(X) " + " ".join(f"X({p.name})" for p in ports)
            return cls(ports, simulators.link(model, PROGRAM, header))

    @property
    def streams(self) -> dict[str, tuple[str, Port]]:
        """Direction and payload of every stream, by name."""
        by_name = {port.name: port for port in self.ports}
        names = [port.name.removesuffix("_valid") for port in self.ports]
        return {
            name: (by_name[f"{name}_valid"].direction, by_name[f"{name}_payload"])
            for name in names
            if all(f"{name}_{signal}" in by_name for signal in SIGNALS)
        }

    def bare(self, cycles: int) -> float:
        """Return the cycles a second of the model by itself: a clock, and inputs at rest."""
        with tempfile.TemporaryDirectory() as scratch:
            return self._call(Path(scratch), [], limit=cycles)[2]

    def run(
        self,
        inputs: Mapping[str, Bits],
        expected: Mapping[str, int],
        *,
        driven: Mapping[str, Bits] | None = None,
        record: Sequence[str] = (),
        memories: Sequence[BurstMemory] = (),
        seed: int = 0,
        patience: int = 2000,
        trail: int = 20,
        progress: float = 0,
    ) -> LongRun:
        """Reset the unit, offer every input, and wait for everything expected.

        Parameters
        ----------
        inputs : Mapping[str, numpy.ndarray]
            For every input stream that is to carry something its payloads, as `pack` gives them.
        expected : Mapping[str, int]
            Items of each output stream for which the run waits; none for those it does not name.
        driven : Mapping[str, numpy.ndarray], optional
            Bits of plain inputs, one item a cycle, of which the last stays; others are zero.
        record : Sequence[str]
            Outputs that are kept in every cycle.
        memories : Sequence[BurstMemory]
            What stands behind which streams.
        seed : int
            Of the pauses of every stream, in half of all cycles; 0 for none.
        patience : int
            Cycles without any transfer after which the unit is stuck.
        trail : int
            Cycles behind the last item expected, in which too many would come.
        progress : float
            Seconds from one line on the standard error, of cycles and cycles a second, to the next.

        Raises
        ------
        UserError
            If the unit is stuck or breaks a stream's rules, in the words of the program.
        ValueError
            If a name is none of the unit's, or bits are not as wide as their port.
        """
        driven = driven or {}
        streams = self.streams
        behind = {name for m in memories for name in (m.reads, m.words, m.writes) if name}
        widths = {port.name: port.width for port in self.ports}
        sinks = [n for n, (way, _) in streams.items() if way == "output" and n not in behind]
        sources = [n for n, (way, _) in streams.items() if way == "input" and n not in behind]
        for name in inputs:
            require(name in sources, f"inputs must be of {sources}", name)
        for name in expected:
            require(name in sinks, f"outputs must be of {sinks}", name)
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(scratch)
            lines: list[str] = []
            for name in sources:
                payload = streams[name][1]
                bits = inputs.get(name, np.zeros((0, payload.width), np.uint8))
                _store(directory / f"{name}.in", bits, payload)
                lines.append(f"source {self._signals(name)} {name} {name}.in")
            for name in sinks:
                count = expected.get(name, 0)
                lines.append(f"sink {self._signals(name)} {name} {name}.out {count}")
            for name, bits in driven.items():
                require(name in widths, f"driven ports must be of {sorted(widths)}", name)
                port = next(port for port in self.ports if port.name == name)
                _store(directory / f"{name}.in", bits, port)
                lines.append(f"drive {port.name} {name}.in")
            for name in record:
                port = next(port for port in self.ports if port.name == name)
                lines.append(f"record {port.name} {name}.out")
            signals = {name: self._signals(name) for name in streams}
            for memory in memories:
                lines += memory.settings(signals)
            ended, seconds, rate = self._call(
                directory,
                lines,
                patience=patience,
                trail=trail,
                seed=seed,
                progress=progress,
            )
            outputs = {
                name: _load(directory / f"{name}.out", width)
                for name, width in [
                    *((name, streams[name][1].width) for name in sinks),
                    *((name, widths[name]) for name in record),
                ]
            }
            cycles = {
                name: np.fromfile(directory / f"{name}.out.cycles", np.uint64).astype(np.int64)
                for name in sinks
            }
        return LongRun(
            outputs=outputs, cycles=cycles, cycle=ended, seconds=seconds, cycles_per_second=rate
        )

    def _signals(self, stream: str) -> str:
        by_name = {port.name: port for port in self.ports}
        return " ".join(by_name[f"{stream}_{signal}"].name for signal in SIGNALS)

    def _call(
        self,
        directory: Path,
        lines: Sequence[str],
        *,
        patience: int = 0,
        trail: int = 0,
        seed: int = 0,
        progress: float = 0,
        limit: int = 0,
    ) -> tuple[int, float, float]:
        """Run the program; return the cycles until the end, the seconds, and cycles a second."""
        first = f"settings {RESET_CYCLES} {patience} {trail} {seed} {progress} {limit}"
        (directory / "settings").write_text("\n".join([first, *lines, ""]))
        shown = None if progress else subprocess.PIPE
        done = subprocess.run(
            [self.program, "settings"],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=shown,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise UserError((done.stderr or f"{self.program} stopped").strip())
        ended, total, seconds = done.stdout.split()
        return int(ended), float(seconds), int(total) / float(seconds)


def _octets(port: Port) -> int:
    """Return the octets of the type that Verilator gives a port."""
    if port.width > 64:
        return 4 * -(-port.width // 32)
    return next(octets for octets in (1, 2, 4, 8) if port.width <= 8 * octets)


def _store(file: Path, bits: Bits, port: Port) -> None:
    """Write items as the program reads them."""
    require(
        bits.ndim == 2 and bits.shape[1] == port.width,
        f"bits of {port.name} must have shape (items, {port.width})",
        bits.shape,
    )
    packed = np.packbits(bits, axis=-1, bitorder="little")
    np.pad(packed, ((0, 0), (0, _octets(port) - packed.shape[1]))).tofile(file)


def _load(file: Path, width: int) -> Bits:
    """Read items that the program wrote."""
    octets = _octets(Port((), "output", width))
    items = np.fromfile(file, np.uint8).reshape(-1, octets)
    return np.unpackbits(items, axis=-1, count=width, bitorder="little")
