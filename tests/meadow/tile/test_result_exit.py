"""Requantised results by exact fractions, clamped to INT8 or to 16 bits."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hdl.catalog import entry_named
from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.element_parameters import PIPELINED_ONLY
from hdl.meadow.tile.result_exit import ResultExit
from testbenches.packing import pack, to_integers
from testbenches.stream_trial import check_streams

P: MeadowParameters = entry_named("meadow").parameters("tiny")


@pytest.mark.parametrize("bits", [8, 16])
def test_results_are_clamped_to_their_bits(bits: int) -> None:
    unit = ResultExit(parameters=P.element, parts=replace(PIPELINED_ONLY, clamp=bits == 8))
    scale, shift = 41, 7
    top = 1 << bits - 1
    rng = np.random.default_rng(bits)
    # Half of the results exceed the clamp, and some need all of its bits.
    sums = rng.integers(-(top << shift) // scale * 2, (top << shift) // scale * 2, 300)
    last = rng.random(len(sums)) < 0.2
    exact = [round(Fraction(int(value) * scale, 1 << shift)) for value in sums]
    wanted = np.clip(exact, -top, top - 1)
    assert {-top, top - 1} < set(wanted.tolist())

    def cycle(ctx: Any, _received: Any) -> None:
        ctx.set(unit.settings.scale, scale)
        ctx.set(unit.settings.shift, shift)

    layout = P.element.result_layout
    check_streams(
        unit,
        {"sums": to_integers(pack(layout, {"value": sums, "last": last}))},
        {"results": to_integers(pack(layout, {"value": wanted, "last": last}))},
        cycle=cycle,
    )
