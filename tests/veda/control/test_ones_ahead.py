"""Test that a one is inserted ahead of each group, under any stalls."""

from typing import Any

import pytest
from amaranth.hdl import unsigned

from hdl.veda.control.ones_ahead import OnesAhead
from testbenches.stream_trial import check_streams


@pytest.mark.parametrize("length", [1, 3, 8])
def test_a_one_is_ahead_of_each_group(length: int) -> None:
    unit = OnesAhead(shape=unsigned(16), code=0x3C00, longest=8)
    groups = [[16 * group + item for item in range(length)] for group in range(5)]
    items = [item for group in groups for item in group]
    # That of the next group is valid before its items arrive.
    wanted = [item for group in [*groups, []] for item in (0x3C00, *group)]

    def cycle(ctx: Any, _received: Any) -> None:
        ctx.set(unit.length, length)

    check_streams(unit, {"source": items}, {"sink": wanted}, cycle=cycle)


def test_rejects_groups_without_items() -> None:
    with pytest.raises(ValueError, match="longest must be an integer from 1 to 1048576, not 0"):
        OnesAhead(shape=unsigned(16), code=1, longest=0)
