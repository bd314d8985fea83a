"""Argmax of the lanes' values, compared with numpy, with ties, gaps and a restart."""

from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from hdl.kelle.array.systolic_argmax import SystolicArgmax


@pytest.mark.parametrize(("rows", "width", "number_bits"), [(2, 3, 5), (4, 8, 6), (8, 33, 7)])
def test_ties_resolve_to_the_lowest_number(rows: int, width: int, number_bits: int) -> None:
    """Skewed wavefronts, some back to back and some with gaps; four searches."""
    unit = SystolicArgmax(rows=rows, width=width, number_bits=number_bits)
    rng = np.random.default_rng(rows)
    low, high = -(1 << width - 1), 1 << width - 1

    async def bench(context: Any) -> None:
        for search in range(4):
            count = (1 << number_bits) // rows
            # Few different values, so that many are equal; all of them negative in one search.
            values = rng.integers(low, high if search else -1, (count, rows), endpoint=False)
            if search == 2:
                values = np.where(values > 0, high - 1, low)
            begins = np.cumsum(rng.integers(1, 3, count))
            context.set(unit.clear, 1)
            await context.tick()
            context.set(unit.clear, 0)
            for cycle in range(int(begins[-1]) + rows + 2):
                context.set(unit.strobe, cycle in begins)
                for lane in range(rows):
                    own = np.flatnonzero(begins == cycle - lane)
                    # Values between wavefronts must be ignored.
                    value = values[own[0], lane] if len(own) else high - 1
                    context.set(unit.values[lane], int(value))
                await context.tick()
            flat = values.reshape(-1)
            assert context.get(unit.number) == int(flat.argmax())
            assert context.get(unit.largest) == int(flat.max())

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize(
    ("change", "message"),
    [({"rows": 3}, "rows must be a power of two"), ({"number_bits": 1}, "number_bits must be")],
)
def test_rejects_illegal_parameters(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SystolicArgmax(**({"rows": 4, "width": 8, "number_bits": 6} | change))
