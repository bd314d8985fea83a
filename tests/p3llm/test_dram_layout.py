"""DRAM bytes of P3-LLM: unpacked by an independent script, one-hot codes, appended tokens."""

import numpy as np
import pytest

from golden.p3llm.dram_layout import (
    key_append,
    nibbles,
    pack_columns,
    pack_nibbles,
    pack_selects,
    pack_zero_points,
    unpack_columns,
)
from golden.p3llm.pim.real_operands import linear, probabilities_and_values, queries_and_keys
from hdl.p3llm.parameters import P3llmParameters
from hdl.paths import ROOT


def code_at(columns: np.ndarray, output: int, term: int, elements: int = 16) -> int:
    """Return one code by the page's definition: nibble 4 * element + lane, lower nibble first."""
    tile, element = divmod(output, elements)
    column, lane = divmod(term, 4)
    place = 4 * element + lane
    byte = int(columns[tile, column, place // 2])
    return byte >> 4 if place % 2 else byte & 15


@pytest.mark.parametrize(("outputs", "terms", "elements"), [(16, 8, 16), (37, 30, 16), (9, 5, 4)])
def test_every_code_is_where_the_page_specifies(outputs: int, terms: int, elements: int) -> None:
    rng = np.random.default_rng(outputs)
    codes = rng.integers(0, 16, (outputs, terms)).astype(np.uint8)
    columns = pack_columns(codes, elements=elements)
    assert columns.shape == (-(-outputs // elements), -(-terms // 4), 2 * elements)
    for output in range(outputs):
        for term in range(terms):
            assert code_at(columns, output, term, elements) == codes[output, term]
    assert np.array_equal(unpack_columns(columns, outputs=outputs, terms=terms), codes)


def test_one_code_is_one_nibble() -> None:
    for output in range(32):
        for term in range(8):
            codes = np.zeros((32, 8), np.uint8)
            codes[output, term] = 15
            columns = pack_columns(codes)
            assert np.count_nonzero(nibbles(columns)) == 1
            assert code_at(columns, output, term) == 15


def test_real_tensors_are_recovered() -> None:
    for operands in (
        linear(0, "q_proj", outputs=40, inputs=576, tokens=1),
        queries_and_keys(14, 0, tokens=77, heads=1),
        probabilities_and_values(29, 2, tokens=77, heads=1),
    ):
        outputs, terms = operands.codes.shape
        columns = pack_columns(operands.codes)
        assert np.array_equal(unpack_columns(columns, outputs=outputs, terms=terms), operands.codes)


def test_metadata() -> None:
    selects = np.random.default_rng(1).integers(0, 4, (8, 16))
    packed = int.from_bytes(pack_selects(selects).tobytes(), "little")
    zero_points = np.random.default_rng(2).integers(0, 16, 64)
    zeros = int.from_bytes(pack_zero_points(zero_points).tobytes(), "little")
    for index, select in enumerate(selects.ravel()):
        assert packed >> 2 * index & 3 == select
    for index, zero_point in enumerate(zero_points):
        assert zeros >> 4 * index & 15 == zero_point
    assert np.array_equal(nibbles(pack_nibbles(zero_points)), zero_points)


@pytest.mark.parametrize("channels", [64, 128])
def test_a_key_is_appended_by_masked_writes(channels: int) -> None:
    """Token by token over stale bytes: the same columns as packed at once."""
    rng = np.random.default_rng(channels)
    keys = rng.integers(0, 16, (35, channels)).astype(np.uint8)
    expected = pack_columns(keys)
    memory = rng.integers(0, 256, expected.shape).astype(np.uint8).reshape(-1, 32)
    for token, key in enumerate(keys):
        writes = key_append(token, key)
        assert len(writes) == channels // 4
        for column, mask, data in writes:
            assert bin(mask).count("1") == 2
            for byte in range(32):
                if mask >> byte & 1:
                    memory[column, byte] = data >> 8 * byte & 255
    columns = memory.reshape(expected.shape)
    # The elements of the last tile without a token keep their stale codes.
    assert np.array_equal(unpack_columns(columns, outputs=35, terms=channels), keys)


def test_page_has_the_positions_of_smollm2() -> None:
    """The table of `docs/p3llm/dram_layout.md`, from the parameters of text generation."""
    p = P3llmParameters(layers=30, vocabulary_size=49152)
    cached = p.key_base(0, 1) - p.key_base(0)
    positions = {
        "a layer: ": p.layer_positions - cached,
        "a layer's keys and values": cached,
        "30 layers": p.layers * p.layer_positions,
        "final norm, ": p.vocabulary_positions,
        "all |": p.layers * p.layer_positions + p.vocabulary_positions,
    }
    page = (ROOT / "docs" / "p3llm" / "dram_layout.md").read_text()
    for row, count in positions.items():
        (line,) = (line for line in page.splitlines() if line.startswith(f"| {row}"))
        assert line.endswith(f"| {count:,} | {count * 2 * p.units * p.elements:,} |")
    assert f"Layer n starts at position n x {p.layer_positions:,}," in page
