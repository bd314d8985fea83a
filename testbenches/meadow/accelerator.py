"""Bench of MEADOW: instructions, memories, and a comparison of their final contents."""

from itertools import cycle
from typing import Any

import numpy as np

from testbenches.bench import Bench, catalog_parameters
from testbenches.burst_memory import BurstMemory
from testbenches.meadow.checked_program import LayerProgram
from testbenches.meadow.memory_images import states_of
from testbenches.packing import from_integers, unpack
from testbenches.streams import StreamSource, read


class Clock:
    """Monitor that records the cycles in which a source's payloads are accepted."""

    def __init__(self, bench: Bench, source: StreamSource) -> None:
        self.bench, self.source = bench, source
        self.cycles: list[int] = []
        self.clear()

    def clear(self) -> None:
        """Clear the recorded cycles, as after a reset."""
        self.cycles = []

    def drive(self) -> None:
        """Drive nothing."""

    def sample(self) -> None:
        """Record the cycle if the source, which samples earlier, had a transfer."""
        if self.source.accepted:
            self.cycles.append(self.bench.cycle)


class Accelerator:
    """A bench with the accelerator's streams and memories attached.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    program : LayerProgram
        Instructions, memory images and expected values.
    pauses : tuple[str, str]
        Stall patterns of inputs and of outputs.
    late : int
        Cycles between accepted requests to write keys and values, if not 0: the last request of an
        instruction is then always accepted after its words.

    Members
    -------
    spent : numpy.ndarray
        Cycles from each instruction to the next.
    errors : numpy.ndarray
        Error flags in each of the cycles after the last instruction.
    """

    def __init__(
        self,
        dut: Any,
        salt: str,
        program: LayerProgram,
        *,
        pauses: tuple[str, str] = ("none", "none"),
        late: int = 0,
    ) -> None:
        self.dut, self.program = dut, program
        self.p = p = catalog_parameters()
        # The bench counts only transfers of instructions and matrices as progress, so that the
        # timeout must cover a whole instruction.
        longest = sum(program.traffic.moved.values()) // p.head_size
        self.bench = bench = Bench(dut, salt, timeout=20_000 + 12 * longest)
        self.inputs = {name: bench.source(name, pauses[0]) for name in ("instructions", "matrices")}
        self.predictions = bench.sink("predictions", pauses[1])
        self.clock = bench.add(Clock(bench, self.inputs["instructions"]))
        source, sink = pauses
        state, cached, chunk = p.state_layout, p.element.word_layout, p.unpacker.rows_layout
        packet = p.unpacker.unpacker.packet_bits
        images = ["vectors", "cache", "tables", "packets"]
        images += ["biases"] * p.biases + ["scales"] * p.tile_scales
        self.memories = {
            name: BurstMemory(dut, image.words, image.index)
            for name in images
            for image in [getattr(program.images, name)]
        }
        self.ports: dict[str, list[Any]] = {}

        def both(first: str, second: str) -> tuple[Any, Any]:
            return bench.pauses(first), bench.pauses(second)

        for name, memory, shape in (
            ("vector_reads", "vectors", state),
            ("key_reads", "cache", cached),
            ("value_reads", "cache", cached),
            ("table_reads", "tables", chunk),
            *((name, "packets", packet) for name in p.packet_ports),
            *([("bias_reads", "biases", p.bias_layout)] if p.biases else []),
            *([("scale_reads", "scales", p.factor_layout)] if p.tile_scales else []),
        ):
            reads = self.memories[memory].add_reads(
                p.reads(shape),
                f"{name}_requests",
                f"{name}_words",
                both(sink, source),
            )
            self.ports.setdefault(memory, []).append(reads)
        for name, memory, shape, kind in (
            ("state", "vectors", state, "states"),
            ("cache", "cache", cached, "written"),
        ):
            requests, words = both(sink, sink)
            if late and name == "cache":
                requests = cycle([True] * late + [False])
            writes = self.memories[memory].add_writes(
                p.writes(shape),
                f"{name}_writes_requests",
                f"{name}_writes_words",
                (requests, words),
            )
            self.ports[kind] = [writes]
        for memory in self.memories.values():
            for part in memory.parts:
                bench.add(part)
        dut.clear_flags.value = 0
        # Cycles of each instruction of the last run, and the error flags in the cycles after it.
        self.spent, self.errors = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def start(self) -> None:
        """Fill the memories, and send all instructions and matrices."""
        for name, memory in self.memories.items():
            memory.words[:] = getattr(self.program.images, name).words
        self.predictions.received.clear()
        self.inputs["instructions"].send(self.program.code.instructions)
        self.inputs["matrices"].send(self.program.code.matrices)

    async def run(self) -> int:
        """Reset and run the program; return the cycles."""
        await self.bench.reset()
        self.start()
        wanted = len(self.program.code.instructions)
        instructions = self.inputs["instructions"]
        cycles = await self.bench.run(
            until=lambda: instructions.taken == wanted and bool(read(self.dut.idle))
        )
        self.spent = np.diff([*self.clock.cycles, self.bench.cycle])
        self.errors = np.zeros(20, np.int64)
        for number in range(len(self.errors)):
            await self.bench.step()
            self.errors[number] = read(self.dut.errors)
        return cycles

    @property
    def moved(self) -> dict[str, int]:
        """Bytes at the ports, by kind."""
        images = {"states": "vectors", "written": "cache"}
        return {
            name: sum(port.beats for port in ports)
            * getattr(self.program.images, images.get(name, name)).word_bytes
            for name, ports in self.ports.items()
        }

    def check(self) -> None:
        """Compare hidden states, predictions, the cache, the bytes at the ports, and errors."""
        p, program, compare = self.p, self.program, self.bench.compare
        words = self.memories["vectors"].words
        for number, (address, states) in enumerate(program.expected):
            first = program.images.vectors.index(address)
            got = states_of(words[first : first + states.size // p.head_size])
            compare(f"hidden states of block {number}", states, got.reshape(states.shape))
        packed = [payload for _cycle, payload in self.predictions.received]
        layout = p.prediction_layout
        found = unpack(layout, from_integers(packed, layout.size))
        for place, name in enumerate(("token", "sum")):
            predicted = [prediction[place] for prediction in program.predictions]
            compare(f"{name} of predictions", np.array(predicted, np.int64), found[name])
        cache = self.memories["cache"].words.view(np.int8)
        heads = p.kv_heads * p.slots
        for layer, caches in enumerate(program.caches):
            for part, kept in enumerate(caches):
                first = (2 * layer + part) * heads
                got = cache[first : first + heads].reshape(p.kv_heads, p.slots, p.head_size)
                name = ("keys", "values")[part]
                compare(f"{name} of layer {layer}", kept, got[:, : kept.shape[1]].astype(np.int64))
        compare(
            "bytes at the ports",
            np.array(list(program.traffic.moved.values())),
            np.array([self.moved[name] for name in program.traffic.moved]),
        )
        # Errors hold until they are cleared.
        compare("errors", np.full(len(self.errors), program.errors), self.errors)
