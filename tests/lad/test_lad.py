"""LAD: the model's layers against exact attention in float64; its program; its parameters."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golden.arith.float_values import values
from golden.lad.lad import Lad, LayerWeights, exact_layer
from golden.lad.lad_tile import LadTile
from golden.lad.lad_tiles import lad_tiles, place
from hdl.catalog import entry_named
from hdl.lad.control.program import LayerProgram
from hdl.lad.instructions import Destination, Loops, instruction_layout
from hdl.lad.parameters import LadParameters
from hdl.lad.sfm.sfm_parameters import Function
from testbenches.lad.layer_driver import real_states, real_weights
from testbenches.lad.sfm.tb_special_function_module import angles
from testbenches.lad.vectors import LAYERS

Codes = Any


def preset(name: str) -> LadParameters:
    return entry_named("lad").parameters(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_heads": 3}, "kv_heads must be an integer from 1 to 2, not 3"),
        ({"heads": 3, "kv_heads": 2}, "kv_heads must divide heads = 3, not 2"),
        ({"intermediate_size": 10}, "intermediate_size must be a multiple of head_size, not 10"),
        ({"batch": 4}, "batch must be an integer from 1 to 3, not 4"),
        (
            {"layers": 3},
            "tile.stored_heads must be at least layers * heads * batch / tiles, 12, not 8",
        ),
        ({"tiles": 17}, "tiles must be an integer from 1 to 16, not 17"),
        ({"heads": 6, "kv_heads": 3, "periods": 2}, "periods must be a divisor of kv_heads, not 2"),
        ({"intermediate_size": 20}, "tile.linear.slices must be at least 5, not 4"),
        ({"intermediate_size": 16}, "tile.linear.groups must be at least 5, not 4"),
    ],
)
def test_illegal_parameters_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(preset("tiny"), **change)


def visited(loops: Loops) -> list[int]:
    """Return the addresses of nested loops, in order."""
    rounds_of = [range(rounds) for rounds, _stride in (loops.outer, loops.middle, loops.inner)]
    return [
        loops.base + a * loops.outer[1] + b * loops.middle[1] + c * loops.inner[1]
        for a in rounds_of[0]
        for b in rounds_of[1]
        for c in rounds_of[2]
    ]


@pytest.mark.parametrize("name", ["tiny", "tiny_turns", "tiny_pairs", "smollm2", "paper"])
def test_the_program_reads_what_was_written(name: str) -> None:
    """Every slice that an instruction reads was written before; it writes none twice."""
    p = preset(name)
    program = LayerProgram(p)
    written: set[int] = set()
    # The layer's part twice, because it also reads results of the previous layer.
    part = list(program.layer)
    for line in [*range(part[-1] + 1), *part, *range(part[-1] + 1, len(program.instructions))]:
        instruction = program.instructions[line]
        for destination, loops in instruction.moves:
            assert destination is Destination.TASK or written.issuperset(visited(loops)), (
                instruction
            )
        for _source, loops in instruction.writes:
            assert len(set(visited(loops))) == len(visited(loops))
            assert max(visited(loops)) < p.areas.end
            written.update(visited(loops))
        # The attention's outputs are written before the instruction that waits for them.
        if instruction.joins:
            written.difference_update(visited(program.outputs))
        elif any(destination is Destination.QUERY for destination, _loops in instruction.moves):
            written.update(visited(program.outputs))


def test_every_query_head_uses_its_key_and_value() -> None:
    """The queries of a group use the key and the value that were projected for their sample."""
    tiny = preset("tiny")
    linear = replace(tiny.tile.linear, slices=6, groups=6)
    p = replace(
        tiny, tile=replace(tiny.tile, stored_heads=24, shared=3, linear=linear), heads=6, kv_heads=2
    )
    program = LayerProgram(p)
    (steps,) = (
        one
        for one in program.instructions
        if any(destination is Destination.QUERY for destination, _loops in one.moves)
    )
    keys, vectors, queries = (visited(loops) for _destination, loops in steps.moves)
    outputs = visited(program.outputs)
    number = 0
    for group in range(p.kv_heads):
        for sample in range(p.batch):
            pair = group * p.batch + sample
            assert keys[pair] == p.areas.sums + (p.heads + group) * p.batch + sample
            assert vectors[pair] == keys[pair] + p.kv_heads * p.batch
            for member in range(p.group_size):
                head = group * p.group_size + member
                assert queries[number] == p.areas.sums + head * p.batch + sample
                assert outputs[number] == p.areas.attended + head * p.batch + sample
                numbers = Lad(p, lad_tiles(p.shared_tiles)).numbers(0, sample)
                where = place(p.shared_tiles, numbers[head])
                # Tiles have groups round-robin; without sharing, each head is a group.
                turn, one = divmod(number, p.tile.shared)
                assert where.tile == turn % p.tiles
                assert where.head == turn // p.tiles * p.tile.shared + one
                number += 1


def test_lm_head_multiplies_the_last_norm() -> None:
    """The states that are output are the layer's second sum, whose norm is the LM head's input."""
    p = preset("tiny")
    program = LayerProgram(p)
    writer: dict[int, int] = {}
    read: list[set[int]] = []
    for line, instruction in enumerate(program.instructions):
        # For each instruction: the writer of its first operand, or of its task's inputs.
        reads = [
            loops for destination, loops in instruction.moves if destination is not Destination.TASK
        ]
        read.append({writer[place] for place in visited(reads[0])} if reads else set())
        for _source, loops in instruction.writes:
            writer.update(dict.fromkeys(visited(loops), line))
        if any(destination is Destination.QUERY for destination, _loops in instruction.moves):
            writer.update(dict.fromkeys(visited(program.outputs), line))
    sums = [
        line
        for line in program.layer
        if any(
            destination is Destination.ADDENDS
            for destination, _loops in program.instructions[line].moves
        )
    ]
    norm, piece = len(program.instructions) - 2, len(program.instructions) - 1
    assert program.instructions[norm].function is Function.RMS_NORM
    assert len(sums) == 2
    assert read[program.layer.stop - 1] == read[norm] == {sums[1]}
    assert read[piece] == {norm}
    assert program.instructions[piece].row_groups == p.piece_row_groups


def test_tiles_share_the_groups_of_a_matrix() -> None:
    """The groups of all tiles and rounds together are the groups of the matrix."""
    for tiles in range(1, 6):
        tiny = preset("tiny_turns")
        linear = replace(tiny.tile.linear, groups=8)
        p = replace(tiny, tile=replace(tiny.tile, stored_heads=12, linear=linear), tiles=tiles)
        program = LayerProgram(p)
        for instruction, bits in zip(program.instructions, program.table, strict=True):
            fields = instruction_layout(p).from_bits(bits)
            if instruction.outputs or instruction.row_groups:
                parts = [fields.tile_groups - (fields.more < tile) for tile in range(tiles)]
                assert sum(parts) == fields.row_groups
                wanted = -(-instruction.outputs * p.head_size // p.tile.linear.units)
                assert fields.row_groups == (instruction.row_groups or wanted)


def error_of_layers(p: LadParameters, layers: list[LayerWeights], states: Codes) -> float:
    """Return the model's largest error, relative to the largest element of exact attention."""
    model = Lad(p, LadTile(parameters=p.tile))
    turns = [angles(p.tile.sfm, token) for token in range(len(states))]
    cosines, sines = (np.stack([turn[part] for turn in turns]) for part in range(2))
    got = []
    for token, state in enumerate(states):
        rows = (np.tile(row, (p.batch, 1)) for row in (state, cosines[token], sines[token]))
        behind, steps = model.token(layers, *rows)
        assert not any(step.not_positive for step in steps)
        assert np.array_equal(behind, np.tile(behind[:, :1], (1, p.batch, 1)))
        got.append(behind[-1, 0])
    exact = values(states)
    for weights in layers:
        exact = exact_layer(weights, exact, values(cosines), values(sines), head_size=p.head_size)
    return float(np.abs(values(np.stack(got)) - exact).max() / np.abs(exact).max())


@pytest.mark.parametrize("name", ["tiny", "smollm2"])
def test_a_layer_of_smollm2_is_float64_s(name: str) -> None:
    """Parts of the matrices of a layer, and all of them: nine query heads on three."""
    p = replace(preset(name), layers=1)
    layer = LAYERS[1]
    states = real_states(p, layer, range(1, 21 if name == "tiny" else 4))
    assert error_of_layers(p, [real_weights(p, layer)], states) < 0.03


def test_a_group_in_the_tile_is_a_key_value_head_s() -> None:
    p = preset("tiny")
    tile = replace(p.tile, stored_heads=12, shared=3, kept=4)
    with pytest.raises(
        ValueError, match=re.escape("tile.shared must be 1 or heads / kv_heads, 2,")
    ):
        replace(p, tile=tile)
