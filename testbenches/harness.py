"""Long runs without an interpreter: stream numpy arrays into a unit and results out of it.

A C++ program drives the model that Verilator compiled for cocotb. The unit's ports determine which
of them form streams. A cycle is defined as in `testbenches.bench`: the same stimuli give the same
results in the same cycles. The program is stored next to the model.
"""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hdl.emit import Port
from hdl.emitted import emit_unit
from hdl.entry import Entry
from hdl.errors import UserError
from hdl.parameters import require
from hdl.paths import BUILD, locked
from hdl.target import Target
from testbenches import simulators
from testbenches.external_memory import External
from testbenches.harness_memory import Bank, BurstMemory, Channel, Dram, FileItems, Rows, Store
from testbenches.long_run import LongRun, Moved
from testbenches.packing import Bits
from testbenches.waves import Samples

PROGRAM = Path(__file__).with_suffix(".cpp")
RESET_CYCLES = 2
SIGNALS = ("valid", "ready", "payload")

Memory = BurstMemory | Bank | Channel | Rows | Dram | External
"""Models that can be connected to a unit's ports."""


@dataclass(frozen=True)
class Harness:
    """A unit's compiled model and its driver program.

    Parameters
    ----------
    ports : Sequence[Port]
        Ports of the unit.
    program : Path
        Executable built by `compiled`.
    waves : Samples or None
        Waveform samples of each session.
    """

    ports: Sequence[Port]
    program: Path
    waves: Samples | None = None

    @classmethod
    def compiled(
        cls,
        entry: Entry,
        parameters: Any,
        target: Target = Target.FPGA,
        waves: Samples | None = None,
        source: Path = PROGRAM,
    ) -> "Harness":
        """Emit and compile a unit, unless an identical one is cached.

        Parameters
        ----------
        entry : Entry
            The unit.
        parameters : Any
            Its parameter object.
        target : Target
            Form of sums and products: `+` and `*`, which simulate fastest, or gates.
        waves : Samples, optional
            Waveform samples; a model compiled with them is larger and slower.
        source : Path
            Source of the driver program; a `Session` needs the default.
        """
        name, _parameters = entry.named(parameters)
        with locked(BUILD / entry.top / f".{name}.lock"):
            emitted = emit_unit(entry, parameters, target)
            return cls.built(entry.top, emitted.ports, emitted.verilog, waves, source)

    @classmethod
    def built(
        cls,
        top: str,
        ports: Sequence[Port],
        verilog: Sequence[Path],
        waves: Samples | None = None,
        source: Path = PROGRAM,
    ) -> "Harness":
        """Compile existing Verilog, for example of a part that is not a unit of the catalog."""
        dump = waves is not None
        _runner, model = simulators.build(
            simulator="verilator",
            top=top,
            ports=ports,
            verilog=verilog,
            waves=dump,
            coverage=False,
            # A waveform has the design's own hierarchy.
            shared=not dump,
        )
        header = "#define PORT_LIST(X) " + " ".join(f"X({p.name})" for p in ports)
        return cls(ports, simulators.link(model, source, header, waves=dump), waves)

    @property
    def name(self) -> str:
        """The program's name, derived from a digest of its sources."""
        return f"{self.program.parent.name}/{self.program.name}"

    @property
    def streams(self) -> dict[str, tuple[str, Port]]:
        """Direction and payload port of every stream, by name."""
        by_name = {port.name: port for port in self.ports}
        names = [port.name.removesuffix("_valid") for port in self.ports]
        return {
            name: (by_name[f"{name}_valid"].direction, by_name[f"{name}_payload"])
            for name in names
            if all(f"{name}_{signal}" in by_name for signal in SIGNALS)
        }

    def signals(self, stream: str) -> str:
        """Return the names of a stream's ports in the order in which the program reads them."""
        by_name = {port.name: port for port in self.ports}
        return " ".join(by_name[f"{stream}_{signal}"].name for signal in SIGNALS)

    def bare(self, cycles: int) -> float:
        """Return the speed of the model alone in cycles/s, with a clock and idle inputs."""
        with self.session() as session:
            settings = session.settings([], limit=cycles)
            done = session.call(settings, None)
        return done.cycle / done.seconds

    @contextlib.contextmanager
    def session(self, memories: Sequence[Memory] = (), seed: int = 0) -> "Iterator[Session]":
        """Start the program; rounds that run in it share the state of the unit.

        Parameters
        ----------
        memories : Sequence[Memory]
            Models connected to streams of the unit.
        seed : int
            Seed of the initial state and of the pauses in half of all cycles; 0: no pauses.
        """
        with tempfile.TemporaryDirectory() as scratch:
            session = Session(self, Path(scratch), memories, seed)
            try:
                yield session
            finally:
                session.close()

    def run(
        self,
        inputs: Mapping[str, Bits],
        expected: Mapping[str, int],
        *,
        memories: Sequence[Memory] = (),
        seed: int = 0,
        **options: Any,
    ) -> LongRun:
        """Reset the unit, send every input, and wait for all expected outputs.

        The run is the only round of its session.
        """
        with self.session(memories, seed) as session:
            return session.run(inputs, expected, **options)


class Session:
    """A running program, started with the first round."""

    def __init__(
        self, harness: Harness, directory: Path, memories: Sequence[Memory], seed: int
    ) -> None:
        self.harness, self.directory = harness, directory
        self.memories, self.seed = memories, seed
        self.cycle = 0
        self.driven = {memory.data for memory in memories if isinstance(memory, Dram)}
        self.program: subprocess.Popen[str] | None = None

    def run(
        self,
        inputs: Mapping[str, Bits | FileItems],
        expected: Mapping[str, int],
        *,
        driven: Mapping[str, Bits] | None = None,
        record: Sequence[str] = (),
        store: Store | None = None,
        timeout: int = 2000,
        trail: int = 20,
        progress: float = 0,
        watch: Callable[[Moved], None] | None = None,
    ) -> LongRun:
        """Send every input, and wait for all expected outputs.

        Parameters
        ----------
        inputs : Mapping[str, numpy.ndarray]
            Payloads of every input stream with items, as returned by `pack`, or the file that
            contains them.
        expected : Mapping[str, int]
            Number of items of each output stream to wait for; zero for streams that are not named.
        driven : Mapping[str, numpy.ndarray], optional
            Bits of plain inputs, one item per cycle; the last item is held. The first round of a
            session must drive every plain input that no memory drives.
        record : Sequence[str]
            Outputs to record in every cycle.
        store : Store, optional
            Model of sequences between two streams.
        timeout : int
            Cycles without a transfer after which the unit is stuck.
        trail : int
            Cycles after the last expected item, in which surplus items are detected.
        progress : float
            Seconds between two progress reports.
        watch : Callable[[Moved], None], optional
            Receive the reports; without it, they are printed to standard error.

        Raises
        ------
        UserError
            If the unit is stuck or violates a stream's rules; the message is the program's.
        ValueError
            If a name is not a port of the unit, bits do not have the width of their port, or an
            input is not driven: it would hold the random value of the initial state.
        """
        driven = driven or {}
        self.driven |= driven.keys()
        streams = self.harness.streams
        modelled = {name for memory in self.memories for name in memory.streams}
        if store is not None:
            modelled |= {store.given, store.taken}
        by_name = {port.name: port for port in self.harness.ports}
        free = {n: stream for n, stream in streams.items() if n not in modelled}
        sinks = [n for n, (direction, _) in free.items() if direction == "output"]
        sources = [n for n, (direction, _) in free.items() if direction == "input"]
        for name in inputs:
            require(name in sources, f"inputs must be of {sources}", name)
        for name in expected:
            require(name in sinks, f"outputs must be of {sinks}", name)
        for name in self._plain_inputs():
            if name not in self.driven:
                raise ValueError(f"driven must contain each plain input, and lacks {name}")
        lines: list[str] = []
        for name in sources:
            payload = streams[name][1]
            items = inputs.get(name, np.zeros((0, payload.width), np.uint8))
            if isinstance(items, FileItems):
                where = items.where
            else:
                _store(self.directory / f"{name}.in", items, payload)
                where = f"{name}.in"
            lines.append(f"source {self.harness.signals(name)} {name} {where}")
            lines += self._through(name)
        for name in sinks:
            count = expected.get(name, 0)
            lines.append(f"sink {self.harness.signals(name)} {name} {name}.out {count}")
            lines += self._through(name)
        for name, bits in driven.items():
            require(name in by_name, f"driven ports must be of {sorted(by_name)}", name)
            _store(self.directory / f"{name}.in", bits, by_name[name])
            lines.append(f"drive {name} {name}.in")
        lines += [f"record {name} {name}.out" for name in record]
        kept, item_bytes = self.directory / "store", 0
        if store is not None:
            item_bytes = _port_bytes(streams[store.given][1])
            store.write(kept, item_bytes)
            ports = " ".join(self.harness.signals(name) for name in (store.given, store.taken))
            lines.append(f"store {ports} {store.given} store")
            lines += self._through(store.given)
            lines += [f"step {key} {gives} {takes}" for key, gives, takes in store.steps]
        settings = self.settings(lines, timeout=timeout, trail=trail, progress=progress)
        done = self.call(settings, watch)
        if store is not None:
            store.read(kept, item_bytes)
        widths = {name: streams[name][1].width for name in sinks}
        widths |= {name: by_name[name].width for name in record}
        return LongRun(
            outputs={
                name: _load(self.directory / f"{name}.out", width) for name, width in widths.items()
            },
            cycles={name: _integers(self.directory / f"{name}.out.cycles") for name in sinks},
            cycle=done.cycle,
            seconds=done.seconds,
            cycles_per_second=done.cycles_per_second,
            counts=done.counts,
            writes=np.concatenate(
                [
                    np.zeros(0, np.int64),
                    *(_integers(self.directory / f) for m in self.memories for f in m.traces),
                ]
            ).reshape(-1, 2),
        )

    def _plain_inputs(self) -> list[str]:
        """Return the inputs that belong to no stream, without clock and reset."""
        streams = (self.harness.signals(name).split() for name in self.harness.streams)
        others = {"clk", "rst"}.union(*streams)
        ports = self.harness.ports
        return [p.name for p in ports if p.direction == "input" and p.name not in others]

    @property
    def _external(self) -> list[External]:
        """The external memory, if there is one."""
        return [memory for memory in self.memories if isinstance(memory, External)]

    def _through(self, stream: str) -> list[str]:
        """Return the program's setting of a stream's place in the external memory."""
        return [line for own in self._external for line in own.through(stream)]

    def settings(
        self,
        lines: Sequence[str],
        *,
        timeout: int = 0,
        trail: int = 0,
        progress: float = 0,
        limit: int = 0,
    ) -> str:
        """Return the program's settings of a round; the first round's include the memories."""
        first = f"settings {RESET_CYCLES} {timeout} {trail} {self.seed} {progress} {limit}"
        external: list[str] = []
        memories: list[str] = []
        if self.program is None:
            signals = {name: self.harness.signals(name) for name in self.harness.streams}
            # The streams and memories that follow it pass through the external memory.
            external = [line for own in self._external for line in own.settings(signals)]
            others = [own for own in self.memories if not isinstance(own, External)]
            memories = [line for memory in others for line in memory.settings(signals)]
            if waves := self.harness.waves:
                memories.append(f'waves "{waves.file.resolve()}" {waves.cycles} {waves.every}')
        return "\n".join([first, *external, *lines, *memories, ""])

    def call(self, settings: str, watch: Callable[[Moved], None] | None) -> LongRun:
        """Run one round in the program."""
        (self.directory / "settings").write_text(settings)
        begin = self.cycle
        if self.program is None:
            self.program = subprocess.Popen(
                [self.harness.program, "settings", *simulators.random_state(self.seed)],
                cwd=self.directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        else:
            with contextlib.suppress(BrokenPipeError):
                print("settings", file=self.program.stdin, flush=True)
        assert self.program.stdout is not None
        for line in self.program.stdout:
            what, *numbers = line.split()
            counts = {
                name: int(n) for name, n in (word.split("=") for word in numbers if "=" in word)
            }
            plain = [float(number) for number in numbers if "=" not in number]
            if what == "done":
                ended, self.cycle = int(plain[0]), int(plain[1])
                for external in self._external:
                    external.receive(counts)
                return LongRun(
                    outputs={},
                    cycle=ended,
                    seconds=plain[2],
                    cycles_per_second=(self.cycle - begin) / plain[2],
                    counts=counts,
                )
            moved = Moved(cycle=int(plain[0]), seconds=plain[1], counts=counts)
            if watch is not None:
                watch(moved)
            else:
                rate = (moved.cycle - begin) / moved.seconds
                print(f"{moved.cycle} cycles, {rate:.0f} cycles/s", file=sys.stderr)
        assert self.program.stderr is not None
        raise UserError(self.program.stderr.read().strip() or f"{self.harness.program} stopped")

    def close(self) -> None:
        """Terminate the program."""
        if self.program is not None:
            self.program.kill()
            self.program.communicate()


def _port_bytes(port: Port) -> int:
    """Return the size in bytes of the type that Verilator uses for a port."""
    if port.width > 64:
        return 4 * -(-port.width // 32)
    return next(size for size in (1, 2, 4, 8) if port.width <= 8 * size)


def _store(file: Path, bits: Bits, port: Port) -> None:
    """Write items in the program's format."""
    require(
        bits.ndim == 2 and bits.shape[1] == port.width,
        f"bits of {port.name} must have shape (items, {port.width})",
        bits.shape,
    )
    packed = np.packbits(bits, axis=-1, bitorder="little")
    np.pad(packed, ((0, 0), (0, _port_bytes(port) - packed.shape[1]))).tofile(file)


def _load(file: Path, width: int) -> Bits:
    """Read items that the program wrote."""
    item_bytes = _port_bytes(Port((), "output", width))
    items = np.fromfile(file, np.uint8).reshape(-1, item_bytes)
    return np.unpackbits(items, axis=-1, count=width, bitorder="little")


def _integers(file: Path) -> np.ndarray:
    return np.fromfile(file, np.uint64).astype(np.int64)
