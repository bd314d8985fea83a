"""Long programs on MEADOW's compiled model, with or without a limited memory bandwidth."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hdl.meadow.instructions import instruction_layout, matrix_layout
from testbenches.harness import Harness
from testbenches.harness_memory import Bank, Channel
from testbenches.meadow.checked_program import LayerProgram
from testbenches.meadow.memory_images import states_of
from testbenches.packing import Bits, from_integers

PORTS = {
    "vector_reads": "vectors",
    "state_writes": "states",
    "key_reads": "cache",
    "value_reads": "cache",
    "cache_writes": "written",
    "table_reads": "tables",
    "bias_reads": "biases",
    "scale_reads": "scales",
}
"""Name of the traffic of each port but those of packets in `Traffic.moved`."""

TIMEOUT = 50_000
"""Cycles without any transfer after which the run fails."""


@dataclass(frozen=True)
class InstructionRun:
    """The time from the end of the previous instruction to the end of an instruction.

    Members
    -------
    cycles : int
        Cycles of this time.
    moved_bytes : int
        Bytes at all ports in this time, which include the weights of later instructions.
    """

    cycles: int
    moved_bytes: int


@dataclass(frozen=True)
class ProgramRun:
    """Results of a program.

    Members
    -------
    cycles : list[int]
        Cycles of each part of the program; a part ends with a prediction.
    moved_bytes : int
        Bytes at all ports.
    compared : int
        Number of values that were compared with the golden model and are equal.
    instructions : list[InstructionRun]
        The time of each instruction.
    """

    cycles: list[int]
    moved_bytes: int
    compared: int
    instructions: list[InstructionRun]


def run_program(
    program: LayerProgram,
    harness: Harness,
    folder: Path,
    *,
    bits: int = 0,
    progress: float = 0,
) -> ProgramRun:
    """Run a program that ends with a prediction, and compare all results with the golden model.

    Parameters
    ----------
    program : LayerProgram
        The program.
    harness : Harness
        The compiled accelerator.
    folder : Path
        Directory for the files of the memories.
    bits : int
        Maximum bits per cycle of all ports together; 0 for no limit.
    progress : float
        Seconds between progress reports.

    Raises
    ------
    AssertionError
        If a value, or the number of bytes at a port, differs from the expected one.
    """
    p, code, traffic = program.p, program.code, program.traffic
    banks = _banks(program, folder)
    memories = [*([Channel(bits=bits)] if bits else []), *banks.values()]
    word_bytes = {
        port: bank.word_bytes for bank in banks.values() for port in (*bank.reads, *bank.writes)
    }
    run = harness.run(
        {
            "instructions": from_integers(code.instructions, instruction_layout(p).size),
            "matrices": from_integers(code.matrices, matrix_layout(p).size),
        },
        {"predictions": program.ends},
        driven={"clear_flags": from_integers([0], 1)},
        record=["idle", *(signal for port in word_bytes for signal in _transfers(port))],
        memories=memories,
        timeout=TIMEOUT,
        progress=progress,
    )
    moved = dict.fromkeys(traffic.moved, 0)
    for port, each in word_bytes.items():
        moved[PORTS.get(port, "packets")] += run.counts[port] * each
    assert moved == traffic.moved, (moved, traffic.moved)
    compared = len(moved)
    rows = {
        name: np.fromfile(banks[name].file, np.uint8).reshape(-1, banks[name].word_bytes)
        for name in ("vectors", "cache")
    }
    for first, states in program.expected:
        got = states_of(rows["vectors"][first : first + states.size // p.head_size])
        assert np.array_equal(got.reshape(states.shape), states), "hidden states"
        compared += states.size
    heads = p.kv_heads * p.slots
    cache = rows["cache"].view(np.int8)
    for layer, caches in enumerate(program.caches):
        for part, kept in enumerate(caches):
            first = (2 * layer + part) * heads
            got = cache[first : first + heads].reshape(p.kv_heads, p.slots, p.head_size)
            assert np.array_equal(got[:, : kept.shape[1]], kept), ("keys", "values")[part]
            compared += kept.size
    return ProgramRun(
        np.diff([0, *run.cycles["predictions"]]).tolist(),
        sum(moved.values()),
        compared,
        _instruction_runs(run.outputs, word_bytes),
    )


def _transfers(port: str) -> tuple[str, str]:
    """Return the signals that are both 1 in the cycle of a word."""
    return f"{port}_words_valid", f"{port}_words_ready"


def _instruction_runs(
    recorded: Mapping[str, Bits], word_bytes: Mapping[str, int]
) -> list[InstructionRun]:
    """Return the time of each instruction; after each, the accelerator is idle for a cycle."""
    idle = recorded["idle"][:, 0].astype(np.int64)
    ends = np.concatenate([[0], np.flatnonzero(np.diff(idle) == 1) + 1])
    moved = np.zeros(len(idle), np.int64)
    for port, each in word_bytes.items():
        valid, ready = (recorded[signal][:, 0] for signal in _transfers(port))
        moved += each * (valid & ready).astype(np.int64)
    # The last sum is that of the cycles after the last instruction.
    sums = np.add.reduceat(moved, ends)[:-1]
    cycles = np.diff(ends)
    return [InstructionRun(int(one), int(own)) for one, own in zip(cycles, sums, strict=True)]


def _banks(program: LayerProgram, folder: Path) -> dict[str, Bank]:
    """Write the files of the memories, and return the memories with their ports."""
    p, images = program.p, program.images
    cached, packet = p.element.word_layout, p.unpacker.unpacker.packet_bits
    ports: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "vectors": (
            {"vector_reads": p.reads(p.state_layout)},
            {"state_writes": p.writes(p.state_layout)},
        ),
        "cache": (
            dict.fromkeys(("key_reads", "value_reads"), p.reads(cached)),
            {"cache_writes": p.writes(cached)},
        ),
    }
    if p.biases:
        ports["biases"] = {"bias_reads": p.reads(p.bias_layout)}, {}
    if p.tile_scales:
        ports["scales"] = {"scale_reads": p.reads(p.factor_layout)}, {}
    # The order is the priority of the ports that share a limited bandwidth. Weights are last: they
    # are fetched ahead, while instructions wait for all else.
    ports["tables"] = {"table_reads": p.reads(p.unpacker.rows_layout)}, {}
    ports["packets"] = dict.fromkeys(p.packet_ports, p.reads(packet)), {}
    banks = {}
    for name, (reads, writes) in ports.items():
        words = getattr(images, name).words
        file = folder / f"{name}.memory"
        words.tofile(file)
        banks[name] = Bank(file=file, word_bytes=words.shape[1], reads=reads, writes=writes)
    return banks
