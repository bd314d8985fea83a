"""Serialiser and collector convert between groups and items, with any pauses."""

import random

import pytest
from amaranth.lib import data

from hdl.stream.collector import Collector
from hdl.stream.selecting_serialiser import SelectingSerialiser
from hdl.stream.serialiser import Serialiser
from testbenches.stream_trial import check_streams, run_streams


def groups_and_items(width: int, count: int, *, tag_bits: int) -> tuple[list[int], list[int]]:
    """Return random packed groups, and their items."""
    rng = random.Random(f"{width} {count}")
    groups, items = [], []
    for _ in range(12):
        numbers = [rng.randrange(1 << width) for _ in range(count)]
        tag, last = rng.randrange(1 << tag_bits), rng.randrange(2)
        packed = sum(number << width * place for place, number in enumerate(numbers))
        groups.append(packed | (tag | last << tag_bits) << width * count)
        for place, number in enumerate(numbers):
            ends = last and place == count - 1
            items.append(number | (tag | ends << tag_bits) << width)
    return groups, items


@pytest.mark.parametrize(("width", "count", "tag_bits"), [(1, 2, 0), (32, 3, 1), (7, 6, 3)])
def test_groups_become_items(width: int, count: int, tag_bits: int) -> None:
    groups, items = groups_and_items(width, count, tag_bits=tag_bits)
    unit = Serialiser(shape=width, items=count, tag_shape=tag_bits)
    check_streams(unit, {"groups": groups}, {"items": items})


@pytest.mark.parametrize(("width", "count"), [(1, 2), (29, 8), (7, 6)])
def test_groups_become_items_by_selection(width: int, count: int) -> None:
    groups, items = groups_and_items(width, count, tag_bits=0)
    check_streams(
        SelectingSerialiser(shape=width, items=count), {"groups": groups}, {"items": items}
    )


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(("width", "count"), [(1, 2), (33, 3), (80, 6)])
def test_items_become_groups(width: int, count: int, overlap: bool) -> None:
    groups, items = groups_and_items(width, count, tag_bits=0)
    unit = Collector(shape=width, items=count, overlap=overlap)
    check_streams(unit, {"items": items}, {"groups": groups})


def test_items_may_have_any_shape() -> None:
    pair = data.StructLayout({"x": 3, "y": 5})
    groups, items = groups_and_items(8, 4, tag_bits=0)
    check_streams(Serialiser(shape=pair, items=4), {"groups": groups}, {"items": items}, seeds=[1])
    check_streams(Collector(shape=pair, items=4), {"items": items}, {"groups": groups}, seeds=[1])


def test_full_rate_across_groups() -> None:
    """Groups follow each other without idle cycles: one cycle per item, plus one."""
    cycles = 0

    def count(ctx: object) -> None:
        nonlocal cycles
        cycles += 1

    for unit, sources, sinks in (
        (Serialiser(shape=4, items=4), {"groups": [1, 2, 3]}, {"items": 12}),
        (SelectingSerialiser(shape=4, items=4), {"groups": [1, 2, 3]}, {"items": 12}),
        (Collector(shape=4, items=4), {"items": range(12)}, {"groups": 3}),
    ):
        cycles = 0
        run_streams(unit, sources, sinks, seed=0, pauses="none", cycle=count)
        assert cycles == 12 + 1 + 19


@pytest.mark.parametrize("part", [Serialiser, Collector])
def test_rejects_a_number_of_items_out_of_range(part: type) -> None:
    with pytest.raises(ValueError, match="items must be an integer from 2 to 4096, not 1"):
        part(shape=8, items=1)
