"""Host driver of MEADOW with a whole model: instructions for each block, and external memory."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.meadow.tile.requantisation import Integers
from hdl.meadow.control.program import Program
from hdl.meadow.instructions import instruction_layout, matrix_layout
from hdl.meadow.parameters import MeadowParameters
from testbenches.external_memory import External
from testbenches.harness import Harness
from testbenches.harness_memory import Bank
from testbenches.long_run import LongRun, Moved
from testbenches.meadow.memory_images import STATE_BYTES, bytes_of
from testbenches.meadow.packed_model import IMAGES, PackedModel
from testbenches.meadow.traffic import Traffic, traffic_of
from testbenches.packing import from_integers, unpack

TIMEOUT = 50_000
"""Cycles without any transfer after which the accelerator is stuck."""

PORTS = {
    "vector_reads": "vectors",
    "state_writes": "states",
    "key_reads": "cache",
    "value_reads": "cache",
    "cache_writes": "written",
    "table_reads": "tables",
    "scale_reads": "scales",
}
"""The counter of `Traffic.moved` for each port but those of packets."""


class Host:
    """Host of an accelerator, which contains the external memory and the state of the cache.

    Parameters
    ----------
    p : MeadowParameters
        Dimensions of model and accelerator.
    packed : PackedModel
        The model.
    folder : Path
        Folder for the files of the memories.
    harness : Harness
        The compiled accelerator.
    seed : int
        Seed of the stalls of every stream; 0 for none.
    external : External, optional
        The memory of all images; without it, all ports are ideal.

    Members
    -------
    length : int
        Number of cached tokens.
    prediction : tuple[int, int] | None
        The token that the last block predicts, and its sum.
    traffic : Traffic
        Expected traffic and ideal cycles of the last block.
    moved : dict[str, int]
        Bytes at the ports in the last block, as the memories counted them.
    packets_of_layers : list[int]
        Packets of each layer of the block, then those of the LM head.
    packets_before, cycle_before : int
        Packets and cycles before the last block.
    """

    def __init__(
        self,
        p: MeadowParameters,
        packed: PackedModel,
        folder: Path,
        harness: Harness,
        seed: int = 0,
        external: External | None = None,
    ) -> None:
        self.p, self.packed = p, packed
        files = {name: folder / f"{name}.memory" for name in IMAGES}
        for name, file in files.items():
            file.write_bytes(packed.images[name].data)
        word_bytes = {name: packed.images[name].shape[1] for name in IMAGES}
        cached = p.element.word_layout

        def bank(name: str, **ports: Any) -> Bank:
            return Bank(file=files[name], word_bytes=word_bytes[name], **ports)

        banks = [
            bank(
                "vectors",
                reads={"vector_reads": p.reads(p.state_layout)},
                writes={"state_writes": p.writes(p.state_layout)},
            ),
            bank(
                "cache",
                reads=dict.fromkeys(("key_reads", "value_reads"), p.reads(cached)),
                writes={"cache_writes": p.writes(cached)},
                traced="cache_writes",
            ),
            bank("tables", reads={"table_reads": p.reads(p.unpacker.rows_layout)}),
            bank(
                "packets",
                reads=dict.fromkeys(p.packet_ports, p.reads(p.unpacker.unpacker.packet_bits)),
            ),
        ]
        if p.tile_scales:
            banks.append(bank("scales", reads={"scale_reads": p.reads(p.factor_layout)}))
        self._word_bytes = {
            port: bank.word_bytes for bank in banks for port in (*bank.reads, *bank.writes)
        }
        self._vectors, self._cache = (
            np.memmap(files[name], np.uint8, "r+").reshape(-1, word_bytes[name])
            for name in ("vectors", "cache")
        )
        self._open = contextlib.ExitStack()
        self._session = self._open.enter_context(
            harness.session([*([external] if external else []), *banks], seed)
        )
        self._counts = dict.fromkeys(self._word_bytes, 0)
        self.length = 0
        self.prediction: tuple[int, int] | None = None
        self.traffic: Traffic = traffic_of(Program(p))
        self.moved: dict[str, int] = {}
        self.packets_of_layers: list[int] = []
        self.packets_before = self.cycle_before = 0

    def close(self) -> None:
        """End the program."""
        self._open.close()

    def run(
        self,
        states: Integers,
        *,
        predict: bool,
        watch: Callable[[Moved], None] | None = None,
    ) -> LongRun:
        """Run all layers for a block's hidden states, and the LM head with `predict`."""
        p, packed, tokens = self.p, self.packed, len(states)
        rows = bytes_of(states.reshape(-1, p.head_size), STATE_BYTES)
        self._vectors[packed.states : packed.states + len(rows)] = rows
        program, passed = Program(p, skip=True), []
        program.load(tokens, packed.states)
        for layer, place in zip(packed.integers.layers, packed.layers, strict=True):
            program.layer(layer, place, past=self.length, tokens=tokens)
            passed.append(program.packets)
        if predict:
            epsilon = packed.integers.vocabulary.epsilon
            program.predict(packed.vocabulary, tokens=tokens, epsilon=epsilon)
        else:
            program.end()
        passed.append(program.packets)
        self.traffic = traffic_of(program)
        self.packets_of_layers = np.diff([0, *passed]).tolist()
        self.cycle_before = self._session.cycle
        self.packets_before = self.fetched_packets(self._counts)
        run = self._session.run(
            {
                "instructions": from_integers(program.instructions, instruction_layout(p).size),
                "matrices": from_integers(program.matrices, matrix_layout(p).size),
            },
            {"predictions": 1},
            driven={"clear_flags": from_integers([0], 1)},
            timeout=TIMEOUT,
            progress=0.25,
            watch=watch,
        )
        self.moved = dict.fromkeys(self.traffic.moved, 0)
        for port, word_bytes in self._word_bytes.items():
            words = run.counts[port] - self._counts[port]
            self.moved[PORTS.get(port, "packets")] += words * word_bytes
            self._counts[port] = run.counts[port]
        found = unpack(p.prediction_layout, run.outputs["predictions"])
        self.prediction = (int(found["token"][0]), int(found["sum"][0])) if predict else None
        self.length += tokens
        return run

    def fetched_packets(self, counts: Mapping[str, int]) -> int:
        """Return the packets of all unpackers among the words of each port."""
        return sum(counts[port] for port in self.p.packet_ports)

    def heads(self, layer: int, name: str) -> NDArray[np.int8]:
        """Return a layer's cached keys or values, shape (kv_heads, cached, head_size)."""
        first = self.packed.layers[layer].addresses[name]
        rows = self._cache[first : first + self.p.kv_heads * self.p.slots].view(np.int8)
        return rows.reshape(self.p.kv_heads, self.p.slots, -1)[:, : self.length]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the caches."""
        layers = range(len(self.packed.layers))
        return {
            name: np.stack([self.heads(layer, name) for layer in layers])
            for name in ("keys", "values")
        }

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore the caches."""
        self.length = state["keys"].shape[2]
        for layer in range(len(self.packed.layers)):
            for name in ("keys", "values"):
                self.heads(layer, name)[:] = state[name][layer]

    def written_at(self, run: LongRun, layer: int, name: str, place: tuple[int, ...]) -> str:
        """Describe when a run wrote a word of the cache."""
        kv_head, position, _element = place
        first = self.packed.layers[layer].addresses[name]
        here = first + kv_head * self.p.slots + position
        cycles = run.writes[run.writes[:, 0] == here, 1]
        return f", written in cycle {cycles[-1]}" if len(cycles) else ", written before"
