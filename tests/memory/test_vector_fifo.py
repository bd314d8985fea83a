"""The FIFO of vectors outputs them complete, for any lengths."""

import random

import pytest

from hdl.memory.vector_fifo import VectorFifo
from testbenches.stream_trial import check_streams, run_streams


def packed(vectors: list[list[int]]) -> list[int]:
    """Return items with `last`."""
    return [
        item | (place == len(vector) - 1) << 8
        for vector in vectors
        for place, item in enumerate(vector)
    ]


@pytest.mark.parametrize(("longest", "vectors"), [(2, 1), (5, 1), (6, 3)])
def test_vectors_keep_their_order(longest: int, vectors: int) -> None:
    rng = random.Random(longest)
    texts = [
        [rng.randrange(256) for _ in range(rng.choice([1, 2, rng.randint(1, longest), longest]))]
        for _ in range(24)
    ]
    unit = VectorFifo(shape=8, longest=longest, vectors=vectors)
    check_streams(unit, {"source": packed(texts)}, {"sink": packed(texts)})


def test_no_item_is_output_before_the_last_is_written() -> None:
    unit = VectorFifo(shape=8, longest=4, vectors=2)
    whole, part = [1, 2, 3], [7, 8]
    source = packed([whole]) + part
    assert run_streams(unit, {"source": source}, {"sink": 3}, seed=1)["sink"] == packed([whole])
    with pytest.raises(AssertionError):
        run_streams(unit, {"source": source}, {"sink": 4}, seed=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"longest": 1}, "longest must be an integer from 2 to 1048576, not 1"),
        ({"vectors": 0}, "vectors must be an integer from 1 to 262144, not 0"),
        ({"longest": 1 << 20, "vectors": 2}, "vectors must be an integer from 1 to 1, not 2"),
    ],
)
def test_rejects_illegal_dimensions(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VectorFifo(shape=8, **{"longest": 4, "vectors": 2, **change})
