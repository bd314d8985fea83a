"""P3-LLM's system: parameters, program, and the banks' bytes read independently."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golden.p3llm.dram_image import layer_image, vocabulary_image
from golden.p3llm.npu.block_fixed import block_fixed
from golden.p3llm.p3llm import Vocabulary
from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.model_shape import NORM_EPSILON
from hdl.p3llm.control.program import Program
from hdl.p3llm.control.schedule import Buffer
from hdl.p3llm.instructions import (
    READS_NUMBERS,
    MemoryBits,
    MemoryInstruction,
    MemoryOperation,
    NpuInstruction,
    NpuOperation,
    npu_instruction,
    reads_running_sums,
)
from hdl.p3llm.npu.epsilon_steps import step_table
from hdl.p3llm.parameters import POSITION_BITS, P3llmParameters
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.places import Places
from testbenches.p3llm.system_models import drawn_cache, drawn_weights
from testbenches.runner import Request, simulate

PRESETS = entry_named("p3llm").presets
LLAMA_3_1_8B: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "heads": 32,
    "kv_heads": 8,
    "head_size": 128,
    "rope_base": 500_000,
    "slots": 4096,
    "layers": 32,
    "vocabulary_size": 128_256,
    "vocabulary_bits": 8,
}

NAMES = ("reads", "writes")
"""Fields of a scheduled instruction that name buffers."""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 100}, "hidden_size must be a multiple of 32, not 100"),
        ({"intermediate_size": 1000}, "intermediate_size must be a multiple of 32, not 1000"),
        ({"kv_heads": 4}, "kv_heads must divide heads = 9, not 4"),
        ({"head_size": 8}, "head_size must be a multiple of 32, not 8"),
        ({"group_weights": 256}, "group_weights must be from 32 to 128, not 256"),
        ({"group_weights": 16}, "group_weights must be from 32 to 128, not 16"),
        ({"slots": 128}, "slots must be at least 256, not 128"),
        ({"lanes": 4}, "lanes must be 8 or 16, not 4"),
        (
            {"vocabulary_size": 262_145},
            "vocabulary_size must be an integer from 0 to 262144, not 262145",
        ),
        ({"slots": 1000}, "slots must be a power of two between 64 and 4096, not 1000"),
        (
            {"pseudo_channels": 3},
            "pseudo_channels must be a power of two between 1 and 16, not 3",
        ),
        (
            {"vocabulary_bits": 6},
            "vocabulary_bits must be a power of two between 4 and 8, not 6",
        ),
        ({"batch": 9}, "batch must be an integer from 1 to 8, not 9"),
        ({"batch": 8, "slots": 4096, "layers": 64}, "layers must fit in 2097152 columns"),
        (
            {**LLAMA_3_1_8B, "pseudo_channels": 4},
            "layers must fit in 2097152 columns of each unit, not 32",
        ),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        P3llmParameters(**change)


def test_the_published_configuration_fits_in_sixteen_pseudo_channels() -> None:
    """Llama-3.1 8B: 4-bit weights, keys and values of 4,096 tokens, 8-bit LM head, in 8 GB."""
    p = PRESETS["paper"]
    assert {name: getattr(p, name) for name in LLAMA_3_1_8B} == LLAMA_3_1_8B
    assert p == P3llmParameters(**LLAMA_3_1_8B, pseudo_channels=16)
    weights = p.hidden_size * (p.qkv + p.query_size + 3 * p.intermediate_size)
    cached = 2 * p.kv_size * p.slots
    head = 2 * p.hidden_size * p.vocabulary_size
    nibbles = p.layers * (weights + cached) + head
    positions = p.layers * p.layer_positions + p.vocabulary_positions
    # Scales, zero points, and the pseudo-channels that have no key/value head.
    assert nibbles < 2 * positions * 2 * p.elements * p.units * p.pseudo_channels < 1.11 * nibbles


def test_the_published_configuration_is_not_simulated() -> None:
    message = "PRESET=paper of p3llm is emitted and linted only"
    with pytest.raises(UserError, match=message):
        simulate(entry_named("p3llm"), "paper", Request(seed=1))


def test_a_vocabulary_has_few_pieces() -> None:
    """Each piece adds instructions to the program: 256 pieces of 160 tokens."""
    assert len(replace(PRESETS["tiny"], vocabulary_size=40_960).projection) == 256
    with pytest.raises(ValueError, match="vocabulary_size must be at most 40960, not 40961"):
        replace(PRESETS["tiny"], vocabulary_size=40_961)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("preset", list(PRESETS))
def test_the_program_reads_each_matrix_once_for_two_requests(preset: str, batch: int) -> None:
    """Each request's keys and values are read once per two heads of a group.

    Keys that the NPU rotates are read once for all heads of a group.
    """
    p = replace(PRESETS[preset], batch=batch)
    program = Program(p)
    of_products = MemoryOperation.PRODUCT
    scheduled = [one for one in program.memory if one.instruction.operation is of_products]
    products = [one.instruction for one in scheduled]
    linear = [one for one in products if one.mode is Mode.LINEAR and one.groups]
    # Two requests share each column of a matrix; an odd one is alone at the end.
    both = [1] * (batch // 2) + [0] * (batch % 2)
    found = [(one.base, one.both) for one in linear]
    layer, projection = (
        [(place.base + place.rounds, two) for two in both for place in places]
        for places in (p.matrices.values(), p.projection)
    )
    assert found == [*layer, *projection]
    # Heads of all pseudo-channels are read at once.
    heads = range(0, p.kv_heads, p.pseudo_channels)
    pairs = len(heads) * -(-p.group_size // 2)
    for mode, base in ((Mode.QK, p.key_base), (Mode.PV, p.value_base)):
        read = [
            (one.request, one.instruction.base) for one in scheduled if one.instruction.mode is mode
        ]
        once = p.pre_rope and mode is Mode.QK
        assert len(read) == batch * (len(heads) if once else pairs)
        assert set(read) == {
            (request, base(head, request)) for request in range(batch) for head in heads
        }
    queries = [
        (one.request, one.instruction.head)
        for one in program.npu
        if one.instruction.operation is NpuOperation.QUERY
    ]
    assert queries == [
        (request, head)
        for request in range(batch)
        for first in heads
        for member in range(0, p.group_size, 2)
        for head in range(first, min(first + p.pseudo_channels, p.kv_heads))
        for _ in range(min(2, p.group_size - member))
    ]
    appends = [one for one in program.memory if one not in scheduled]
    assert [(one.request, one.instruction.base, one.instruction.values) for one in appends] == [
        (request, p.key_base(head, request), p.value_base(head, request))
        for request in range(batch)
        for head in heads
    ]
    assert tuple(map(len, program.encoded)) == program.counts
    assert max(program.counts) < 1 << program.bits


LLAMA_2_7B = replace(
    PRESETS["paper_layer"], kv_heads=32, intermediate_size=11008, slots=4096, pre_rope=True
)


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("dimensions", [PRESETS["tiny_pre_rope"], LLAMA_2_7B], ids=["tiny", "7B"])
def test_queries_use_the_keys_of_their_head(
    dimensions: P3llmParameters, channels: int, batch: int
) -> None:
    """The keys last read to its place, by an instruction that completes before it starts."""
    p = replace(dimensions, pseudo_channels=channels, batch=batch)
    program, places = Program(p), Places(p)
    kept: tuple[int, int] | None = None
    queries, heads = [], range(0, p.kv_heads, channels)
    for scheduled in program.npu:
        given = scheduled.instruction
        if given.operation is NpuOperation.QUERY:
            kept = scheduled.request, given.head
            queries.append(kept)
            own = places.spread(places.smoothing(scheduled.request % 2))
            assert given.factors == own + places.slices(given.head * p.head_size)
        elif given.operation is NpuOperation.SCORES:
            assert kept is not None and given.head == kept[1] % channels
            first = heads[kept[1] // channels]
            done = [
                other
                for other in program.memory[: scheduled.after]
                if other.instruction.inputs == (given.source, given.sums)
                and other.instruction.mode is Mode.QK
            ]
            assert done[-1].instruction.base == p.key_base(first, scheduled.request)
            assert done[-1].request == scheduled.request
            # A query is released with its scores: the next ones need another query.
            kept = None
    assert len(queries) == batch * p.heads
    assert set(queries) == {(r, head) for r in range(batch) for head in range(p.kv_heads)}
    # Heads have distinct indices also in the hardware's numbering.
    assert p.kv_heads <= 1 << npu_instruction(p)["head"].width


@pytest.mark.parametrize("batch", [2, 3, 8])
def test_places_of_requests_do_not_overlap(batch: int) -> None:
    """Places of factors, keys and values in the banks, and of vectors in the NPU's memories."""
    p = replace(PRESETS["tiny"], batch=batch)
    banks = [(place.base, place.base + place.positions) for place in p.matrices.values()]
    for request in range(batch):
        banks.append((p.smoothing_base(request), p.smoothing_base(request) + p.smoothing_positions))
        for head in range(p.kv_heads):
            keys, values = p.key_base(head, request), p.value_base(head, request)
            banks += [(keys, keys + p.head_keys), (values, values + p.head_values)]
    banks.sort()
    assert banks[0][0] == 2 * p.positions(p.hidden_size)
    # Each region starts where the previous one ends, so there are no gaps.
    assert [end for _first, end in banks[:-1]] == [first for first, _end in banks[1:]]
    assert banks[-1][1] == p.layer_positions
    # For any number of requests, at most two are in flight.
    one, two, mine = (Places(replace(p, batch=count)) for count in (1, 2, batch))
    assert mine.numbers_depth == two.numbers_depth == 2 * one.numbers_depth
    assert mine.inputs_depth == two.inputs_depth
    assert mine.sums_depth == two.sums_depth == one.sums_depth + one.linear_end


def test_the_vocabulary_of_smollm2_has_pieces_that_need_no_memory() -> None:
    """Sixteen pieces after thirty layers take two fifths of a pseudo-channel."""
    p = replace(PRESETS["smollm2"], layers=30, vocabulary_size=49_152)
    assert [place.outputs for place in p.projection] == [2 * 1536] * 16
    for name in ("sums_depth", "factors_depth", "numbers_depth", "inputs_depth"):
        assert getattr(Places(p), name) == getattr(Places(PRESETS["smollm2"]), name)
    assert 30 * p.layer_positions + p.vocabulary_positions < 0.2 * (1 << POSITION_BITS)
    program = Program(p)
    memory_end, npu_end = program.layer_counts
    # The LM head waits only for instructions of its own, or for complete ones.
    assert all(one.after <= npu_end for one in program.memory[:memory_end])
    operations = [one.instruction.operation for one in program.npu[npu_end:]]
    assert operations.count(NpuOperation.LOGITS) == 16
    assert operations[-1] is NpuOperation.PREDICT


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("preset", list(PRESETS))
def test_waits_prevent_deadlocks_and_conflicts(preset: str, batch: int) -> None:
    """In any order that the waits allow, no two conflicting instructions are in flight."""
    program = Program(replace(PRESETS[preset], batch=batch))
    sides = (program.memory, program.npu)
    rng = np.random.default_rng(1)
    done, under_way = [0, 0], [False, False]
    while done != [len(side) for side in sides]:
        able = [
            side
            for side in range(2)
            if under_way[side]
            or (done[side] < len(sides[side]) and sides[side][done[side]].after <= done[1 - side])
        ]
        side = int(rng.choice(able))
        done[side] += under_way[side]
        under_way[side] = not under_way[side]
        if all(under_way):
            memory, npu = (side[count] for side, count in zip(sides, done, strict=True))
            assert not memory.writes & (npu.reads | npu.writes)
            assert not memory.reads & npu.writes


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("preset", list(PRESETS))
def test_operations_that_start_with_a_layer_overwrite_none_of_its_inputs(
    preset: str, batch: int
) -> None:
    """An operation on totals starts when the product before its wait begins, not when it ends."""
    p = replace(PRESETS[preset], batch=batch)
    program, early = Program(p), 0
    for one in program.npu:
        if one.instruction.operation not in reads_running_sums(p):
            continue
        layer = program.memory[one.after - 1]
        if layer.instruction.mode is Mode.LINEAR and layer.instruction.groups:
            early += 1
            assert Buffer.SUMS in one.reads and Buffer.SUMS in layer.writes
            assert not layer.reads & one.writes and not layer.writes & one.writes
            # Everything else that it reads is written by complete instructions.
            assert not (layer.writes - {Buffer.SUMS}) & one.reads
    # Four operations of a layer for each request, and those of the LM head. Keys, values and
    # queries are one vector of a second request, and two or three of a first one.
    pairs = p.head_rounds * -(-p.group_size // 2)
    first = -(-batch // 2)
    parts = (2 + (pairs > 2)) * first + batch - first
    assert early == parts + batch * (4 + len(p.projection))


def test_one_side_writes_what_the_other_reads() -> None:
    """A buffer without a writer, without a reader, or without instructions would order nothing."""
    used: set[Buffer] = set()
    for parameters in PRESETS.values():
        program = Program(parameters)
        of_memory, of_npu = (
            [frozenset[Buffer]().union(*(getattr(one, name) for one in side)) for name in NAMES]
            for side in (program.memory, program.npu)
        )
        assert of_memory == of_npu[::-1]
        used |= of_memory[0] | of_memory[1]
    assert used == set(Buffer)


@pytest.mark.parametrize("name", NAMES)
def test_rejects_a_dependency_that_is_no_buffer(name: str) -> None:
    """A misspelt name would remove a dependency, and the values would be wrong in some runs."""
    program = Program(PRESETS["tiny"])
    counts = program.counts
    misspelt: dict[str, Any] = {name: ["QUERRY_0"]}
    message = "an instruction reads and writes members of Buffer, not 'QUERRY_0'"
    with pytest.raises(TypeError, match=message):
        program.operate(NpuInstruction(operation=NpuOperation.LOAD), **misspelt)
    with pytest.raises(TypeError, match=message):
        program.access(MemoryInstruction(base=0), **misspelt)
    assert program.counts == counts


def test_the_banks_hold_keys_and_values() -> None:
    """Keys and values from single nibbles, at positions computed in this test."""
    p = PRESETS["tiny"]
    rng = np.random.default_rng(1)
    weights, cache = drawn_weights(p, rng), drawn_cache(p, 45, rng)
    image = layer_image(p, weights, cache)
    assert image.shape == (p.layer_positions, 4, 8)

    def nibble(position: int, unit: int, index: int) -> int:
        return int(image[position, unit, index // 2]) >> 4 * (index % 2) & 15

    # Keys: of token t, channel c; a set has 9 positions before 4 rounds of 4 columns.
    sets = p.key_base(1)
    for token in (0, 17, 44):
        round_, unit, element = token // 16, token // 4 % 4, token % 4
        for channel in (0, 6, 15):
            place = sets + 9 + 4 * round_ + channel // 4
            assert nibble(place, unit, 4 * element + channel % 4) == cache.keys[1, token, channel]
        assert nibble(sets, unit, 4 * round_ + element) == cache.key_zeros[1, token]
        for first, scales in ((1, cache.key_scales), (5, cache.value_scales)):
            column = image[sets + first + round_, unit].view("<u2")
            assert column[element] == scales[1, token]
    # Values: 16 tokens per set, after a column of zero points.
    for token in (0, 17, 44):
        place = p.value_base(1) + token // 16 * 5
        for channel in (0, 6, 15):
            unit, element = channel // 4, channel % 4
            column = place + 1 + token // 4 % 4
            assert nibble(column, unit, 4 * element + token % 4) == cache.values[1, token, channel]
            assert nibble(place, unit, token % 16) == cache.value_zeros[1, token]


def test_the_banks_hold_the_groups_of_each_round() -> None:
    """Weights, special values and scales of `down_proj`, at positions computed in this test."""
    p = PRESETS["tiny"]
    rng = np.random.default_rng(2)
    weights, cache = drawn_weights(p, rng), drawn_cache(p, 20, rng)
    image = layer_image(p, weights, cache)
    assert image.shape == (p.layer_positions, 4, 8)
    # Five groups of 16: a round has special values, three columns of scales, and 5 * 4 columns.
    place, matrix = p.matrices["down"], weights.down
    for output, group in ((0, 0), (37, 2), (50, 3), (63, 4)):
        round_, unit, element = output // 16, output // 4 % 4, output % 4
        start = place.base + 4 + round_ * 24
        select = image[start, unit, group].astype(int) >> 2 * element & 3
        assert select == matrix.selects[output, group]
        # Scales are stored before the columns of their two groups.
        pair = start + 1 + group // 2 * 9
        assert image[pair, unit, 4 * (group % 2) + element] == matrix.steps[output, group]
        data_bytes = matrix.columns[output // 4, group * 4 + 3]
        assert image[pair + 1 + 4 * (group % 2) + 3, unit].tolist() == data_bytes.tolist()
        row = image[place.base + round_, unit].view("<u2")[element]
        assert row == matrix.scales[output]


def test_two_units_hold_the_groups_of_a_shared_tile() -> None:
    """The last 8 of 72 outputs of `down_proj`: three groups in units 0, 1, two in units 2, 3."""
    p = replace(PRESETS["tiny"], hidden_size=72)
    rng = np.random.default_rng(4)
    weights, cache = drawn_weights(p, rng), drawn_cache(p, 20, rng)
    image, matrix = layer_image(p, weights, cache), weights.down
    # Four rounds of five groups: special values, three columns of scales, and 5 * 4 columns.
    place = p.matrices["down"]
    last = place.base + 5 + 4 * 24
    assert place.positions == 5 + 4 * 24 + 1 + 2 + 3 * 4
    for output in range(64, 72):
        tile, element = divmod(output - 64, 4)
        for group in range(6):
            unit, own = tile + group // 3 * 2, group % 3
            pair = last + 1 + own // 2 * 9
            step = image[pair, unit, 4 * (own % 2) + element]
            select = image[last, unit, own].astype(int) >> 2 * element & 3
            columns = image[pair + 1 + 4 * (own % 2) :, unit][:4]
            if group == 5:
                assert step == 0 and not columns.any()
                continue
            assert (step, select) == (matrix.steps[output, group], matrix.selects[output, group])
            assert (columns == matrix.columns[16 + tile, 4 * group : 4 * group + 4]).all()
        row = image[place.base + 4, tile].view("<u2")[element]
        assert row == matrix.scales[output]


def test_the_banks_hold_both_weights_of_a_sum() -> None:
    """An LM head of 8-bit weights, from single nibbles; their sums are near the given weights."""
    p = replace(PRESETS["tiny"], vocabulary_bits=8)
    rng = np.random.default_rng(3)
    weights = rng.normal(size=(p.vocabulary_size, p.hidden_size)).astype(np.float32)
    image = vocabulary_image(p, Vocabulary.quantised(np.ones(p.hidden_size), weights, p))
    assert image.shape == (p.vocabulary_positions, 4, 8)
    magnitudes = [0, 1, 2, 3, 4, 6, 8, 12]
    # Four groups of 16 inputs, twice: one column of special values, four of scales, 8 * 4 columns.
    assert [place.rounds for place in p.projection] == [10, 10, 6]
    errors = []
    for token, number in ((0, 0), (37, 21), (170, 63), (404, 32)):
        piece, output = divmod(token, 160)
        round_, unit, element = output // 16, output // 4 % 4, output % 4
        base = p.projection[piece].base
        row = image[base + round_, unit].view("<f2")[element]
        start = base + p.projection[piece].rounds + 37 * round_
        total = 0
        for half in (0, 1):
            group = 4 * half + number // 16
            special = image[start, unit, group] >> 2 * element & 3
            pair = start + 1 + group // 2 * 9
            scale = int(image[pair, unit, 4 * (group % 2) + element])
            column = image[pair + 1 + 4 * (group % 2) + number % 16 // 4, unit]
            lane = 4 * element + number % 4
            code = int(column[lane // 2]) >> 4 * (lane % 2) & 15
            units = -magnitudes[code - 8] if code > 8 else magnitudes[code % 8]
            total += scale * ([10, -10, 16, -16][special] if code == 8 else units)
        errors.append(float(total * row / 2 - weights[token, number]))
    # A single stored weight deviates by up to a sixth of the largest one of its group.
    assert np.abs(errors).max() < 0.05


@pytest.mark.parametrize("spare", [0, 1])
def test_integers_of_a_vector_fill_their_bits(spare: int) -> None:
    rng = np.random.default_rng(spare)
    vectors = rng.normal(size=(50, 16)) * np.exp2(rng.integers(-30, 30, (50, 1)))
    raw, point = block_fixed(vectors.astype(np.float32), spare=spare)
    largest = np.abs(raw).max(axis=1)
    assert (largest >= 1 << 14 - spare).all()
    assert (largest <= 1 << 15 - spare).all()
    error = np.abs(raw - np.ldexp(vectors.astype(np.float32).astype(float), point[:, np.newaxis]))
    assert error[np.abs(raw) < (1 << 15) - 1].max() <= 0.5
    nothing, _point = block_fixed(np.zeros((1, 4), np.float32))
    assert nothing.tolist() == [[0, 0, 0, 0]]


def test_epsilon_is_in_squared_steps() -> None:
    table = step_table(576)
    for point, steps in table.items():
        assert steps == np.rint(np.ldexp(576 * NORM_EPSILON, 2 * point))
    assert np.ldexp(576 * NORM_EPSILON, 2 * (min(table) - 1)) <= 0.5
    assert np.ldexp(576 * NORM_EPSILON, 2 * (max(table) + 1)) >= (1 << 32) - 1


@pytest.mark.parametrize("preset", PRESETS)
def test_places_fit_their_bits(preset: str) -> None:
    """Places in instructions, and the following places, slice by slice."""
    p = PRESETS[preset]
    program, places = Program(p), Places(p)
    fields, scores = npu_instruction(p), p.slots // p.lanes
    named = ("source", "target", "sums", "factors", "value_scales")
    for scheduled in program.npu:
        instruction = scheduled.instruction
        operation = instruction.operation
        # A pseudo-channel's scales follow those of the previous one.
        channel = instruction.head % p.pseudo_channels
        assert 4 * channel + instruction.scale_index < p.scale_count
        # Scores are as many as there are tokens.
        count = scores if operation == NpuOperation.SCORES else instruction.count
        assert count < 1 << fields["count"].width
        for name in named:
            assert getattr(instruction, name) + count < 1 << fields[name].width
        if operation in READS_NUMBERS:
            assert instruction.source + count < 1 << places.numbers_bits
    for scheduled in program.memory:
        widths = {"inputs": places.word_bits, "sums": places.result_bits}
        for name, width in (widths | {"columns": places.column_bits}).items():
            assert max(getattr(scheduled.instruction, name)) < 1 << width


@pytest.mark.parametrize("preset", PRESETS)
def test_loops_fit_their_bits(preset: str) -> None:
    """Loops of every product, and the words of the ring in the input registers."""
    p = PRESETS[preset]
    bits, unit = MemoryBits(p), p.channel.unit
    most = {"groups": bits.groups, "rounds": bits.rounds, "steps": bits.steps}
    products = [one.instruction for one in Program(p).memory]
    for product in products:
        counts = {name: getattr(product, name) for name in most}
        assert all(counts[name] < 1 << most[name] for name in most)
        assert product.fetch_length < 1 << bits.fetch_length
        # The ring counts the words of a pass, and each pass as a round.
        words = counts["groups"] * (counts["steps"] // unit.steps_a_word)
        assert words >> product.twice < 1 << bits.words
        assert counts["rounds"] << product.twice < 1 << bits.rounds
