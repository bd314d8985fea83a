"""Expected bytes at each port, and ideal cycles, of a program of MEADOW."""

from dataclasses import dataclass

import numpy as np

from hdl.meadow.control.program import Instruction, Program
from hdl.meadow.instructions import Kind, Matrix
from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.tile_parameters import HALVES
from testbenches.meadow.memory_images import BIAS_BYTES, FACTOR_BYTES, STATE_BYTES


@dataclass(frozen=True)
class Traffic:
    """Traffic and lower bound of a program.

    Members
    -------
    moved : dict[str, int]
        Expected bytes at each port.
    weights : int
        Size of the unpacked weights in bytes.
    weight_cycles : int
        Cycles in which the unpackers output these weights; a lower bound of the program's cycles
        also where prefetched weights overlap other work.
    ideal : list[int]
        Ideal cycles of each instruction: the larger one of a lane's work and the transfer of its
        weights.
    instructions : list[tuple[int, int]]
        Bytes at all ports of each instruction: those of its packed weights, with unique matrices,
        and all others.
    """

    moved: dict[str, int]
    weights: int
    weight_cycles: int
    ideal: list[int]
    instructions: list[tuple[int, int]]

    @property
    def fetched(self) -> int:
        """Size of packets and unique matrices in bytes."""
        return self.moved["packets"] + self.moved["tables"]


def traffic_of(program: Program) -> Traffic:
    """Return the traffic of a program, from its instructions and its matrices' descriptions."""
    p = program.p
    # Bytes of an element at each port of words.
    sizes = {"vectors": STATE_BYTES, "states": STATE_BYTES, "cache": 1, "written": 1}
    moved: dict[str, int] = dict.fromkeys((*sizes, "tables", "packets"), 0)
    if p.biases:
        moved["biases"] = 0
    if p.tile_scales:
        moved["scales"] = 0
    cycles, instructions, described = 0, [], iter(program.described)
    for instruction in program.issued:
        own = {
            port: words * p.head_size * sizes[port]
            for port, words in _words(instruction, p).items()
        }
        fetched = 0
        if has_weights(instruction):
            description = next(described)
            cycles += description["words"]
            tables = description["table_words"] * p.unpacker.rows * p.unpacker.chunk
            packets = sum(description["packet_count"]) * p.unpacker.unpacker.packet_bits // 8
            fetched = tables + packets
            own |= {"tables": tables, "packets": packets}
            if p.biases:
                own["biases"] = description.get("tiles", 0) * p.head_size * BIAS_BYTES
            if p.tile_scales:
                own["scales"] = description.get("tiles", 0) * FACTOR_BYTES
        for port, count in own.items():
            moved[port] += count
        instructions.append((fetched, sum(own.values()) - fetched))
    ideal = [_ideal(one, p) for one in program.issued]
    return Traffic(moved, cycles * p.unpackers * p.head_size, cycles, ideal, instructions)


def has_weights(instruction: Instruction) -> bool:
    """Return whether an instruction takes the next matrix of the weight path."""
    gemm = instruction.kind is Kind.GEMM and instruction.matrix is Matrix.WEIGHTS
    return gemm or instruction.kind is Kind.TPHS


def _words(instruction: Instruction, p: MeadowParameters) -> dict[str, int]:
    """Return the words at each port, except those of weights and biases."""
    block, fields = instruction.block, instruction.fields
    match instruction.kind:
        case Kind.LOAD:
            return {"vectors": block["tokens"] * p.state_words}
        case Kind.STORE:
            return {"states": block["tokens"] * p.state_words}
        case Kind.NORM:
            return {"vectors": p.norm_words}
        case Kind.PREDICT:
            return {}
    # Keys and values are read once per key/value head, for all query heads that share it.
    cached, rows = p.kv_heads * block["context"], block["heads"] * block["tokens"]
    match instruction.kind, instruction.matrix:
        case Kind.TPHS, _:
            return {"vectors": p.table_words, "cache": 2 * cached}
        case Kind.SOFTMAX, _:
            read, written = rows * fields["words"], rows * fields["stride"]
            return {"vectors": p.table_words, "cache": read, "written": written}
        case _, Matrix.KEYS:
            return {"cache": cached, "written": rows * fields["stride"]}
        case _, Matrix.VALUES:
            return {"cache": cached + rows * fields["words"]}
        case _:
            return {"written": rows * fields.get("cached", 0)}


def _ideal(instruction: Instruction, p: MeadowParameters) -> int:
    """Return the ideal cycles of an instruction."""
    block, kind = instruction.block, instruction.kind
    tokens = block["tokens"]
    groups = -(-tokens // p.lanes)
    steps = p.head_size // HALVES * block.get("slice_words", 0)
    match kind, instruction.matrix:
        case Kind.GEMM, Matrix.VALUES:
            # An element outputs one element of an output per cycle.
            return block["heads"] * groups * max(block["context"], p.head_size)
        case (Kind.GEMM, Matrix.KEYS) | (Kind.SOFTMAX, _):
            return block["heads"] * groups * block["context"]
        case Kind.GEMM, _:
            # The passes of all groups, or the words of a tile at one per cycle and unpacker.
            return block["heads"] * steps * max(groups, HALVES * p.slices // p.unpackers)
        case Kind.TPHS, _:
            slots = p.lanes * np.arange(1, groups + 1) + block["context"] - tokens
            slots = np.minimum(
                slots if block["skip"] and block["causal"] else block["context"], block["context"]
            )
            slots = np.maximum(slots + np.zeros(groups, int), steps)
            head = max(int(slots.sum()), HALVES * p.slices // p.unpackers * steps)
            return block["heads"] * head + 3 * int(slots[-1])
        case _:
            return tokens * instruction.fields["words"]
