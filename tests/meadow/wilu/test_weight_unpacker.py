"""Weight unpacker: model compared with the matrices that were packed; parameters."""

import re
from typing import Any

import numpy as np
import pytest

from golden.meadow.packing.weight_packer import Level, pack_matrix
from golden.meadow.wilu.weight_unpacker import PackedWeights, of_weights, unpack_weights
from hdl.meadow.wilu.unpacker_parameters import UnpackerParameters
from hdl.meadow.wilu.weight_unpacker_parameters import WeightUnpackerParameters


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"unpacker": UnpackerParameters(id_bits=11)},
            "unpacker.id_bits must be at least 16, a chunk's bits, not 11",
        ),
        (
            {"unpacker": UnpackerParameters(id_bits=8), "chunk": 1, "entries": 512},
            "entries must be at most 256, not 512",
        ),
        ({"chunk": 4}, "chunk must be a power of two between 1 and 2, not 4"),
        ({"entries": 100}, "entries must be a power of two between 2 and 65536, not 100"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        WeightUnpackerParameters(**change)


@pytest.mark.parametrize("chunk", [1, 2])
@pytest.mark.parametrize("level", list(Level))
def test_unpacked_weights_equal_packed_weights(level: Level, chunk: int) -> None:
    p = WeightUnpackerParameters(chunk=chunk)
    matrix = np.random.default_rng(1).integers(-20, 20, (30, 60)).astype(np.int8)
    got = unpack_weights(of_weights(pack_matrix(matrix, level, chunk=chunk)), p)
    assert np.array_equal(got.chunks.reshape(matrix.shape), matrix)
    assert not got.table and not any(got.unpacked.result.values())


def test_table_of_wrong_length_is_an_error() -> None:
    p = WeightUnpackerParameters(entries=64)
    matrix = np.random.default_rng(1).integers(0, 5, (30, 60)).astype(np.int8)
    given = of_weights(pack_matrix(matrix, Level.REINDEXED))
    assert given.table is not None and len(given.table) == 25
    short = unpack_weights(PackedWeights(packed=given.packed, table=given.table[:20]), p)
    assert short.table and short.unpacked.range
    pairs = matrix.reshape(-1, 2)
    known = (pairs[:, np.newaxis] == given.table[:20]).all(-1).any(-1)
    assert np.array_equal(short.chunks[known], pairs[known])
    assert (short.chunks[~known] == given.table[0]).all()
    long = np.resize(given.table, (70, 2))
    assert unpack_weights(PackedWeights(packed=given.packed, table=long), p).table
