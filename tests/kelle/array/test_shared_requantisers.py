"""Requantisers that several lanes share: results in order, skewed by lane and aligned."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.arith.requantiser import requantised
from hdl.kelle.array.matrix_parameters import MatrixUnitParameters
from hdl.kelle.array.shared_requantisers import SharedRequantisers
from hdl.target import Target, writing_for

P = MatrixUnitParameters(rows=8, bands=2, vectors=3, shared=2, spacing=2, scales=4)
VECTORS = 40
LONGEST = 4000
"""Cycles after which a result is missing: each vector takes at most 11 and a pause of 30."""


@pytest.mark.parametrize(("shared", "spacing"), [(1, 1), (2, 2), (2, 5), (4, 4), (8, 8), (8, 11)])
def test_bursts_of_vectors_give_results_in_order(shared: int, spacing: int) -> None:
    """Bursts as long as the memories, and single vectors, with a random scale each."""
    p = replace(P, shared=shared, spacing=spacing)
    rng = np.random.default_rng(shared + spacing)
    totals = rng.integers(-(1 << 40), 1 << 40, (VECTORS, p.rows))
    users = rng.permutation(VECTORS)
    words = rng.integers(0, p.scales, VECTORS)
    scales = rng.integers(1 << 14, 1 << 16, (p.scales, p.rows))
    shifts = rng.integers(36, 44, (p.scales, p.rows))
    wanted = requantised(totals, scales[words], shifts[words])
    unit = SharedRequantisers(parameters=p)
    got = Recorder(unit, p)

    async def bench(context: Any) -> None:
        for word in range(p.scales):
            context.set(unit.scales_valid, 1)
            context.set(unit.scales.address, word)
            for lane in range(p.rows):
                value = {"scale": int(scales[word, lane]), "shift": int(shifts[word, lane])}
                context.set(unit.scales["values"][lane], value)
            await context.tick()
        context.set(unit.scales_valid, 0)
        ended: list[int | None] = []
        accepted = waiting = idle = 0
        while len(got.results) < VECTORS:
            assert len(ended) < LONGEST
            # An accepted vector's total is complete some cycles later, as in the array.
            accepts = accepted < VECTORS and waiting < p.held and not idle
            idle = int(rng.integers(0, 30)) if rng.random() < 0.2 else max(idle - 1, 0)
            context.set(unit.accepted.valid, int(accepts))
            if accepts:
                header = {"scale": int(words[accepted]), "user": int(users[accepted])}
                context.set(unit.accepted.header, header)
            ended.append(accepted if accepts else None)
            accepted += accepts
            for lane in range(p.rows):
                # Lane i's total follows lane 0's i cycles later, and is valid for one cycle.
                at = len(ended) - 4 - lane
                vector = ended[at] if at >= 0 else None
                if lane == 0:
                    context.set(unit.ended, int(vector is not None))
                noise = int(rng.integers(-(1 << 40), 1 << 40))
                context.set(
                    unit.totals[lane], noise if vector is None else int(totals[vector, lane])
                )
            waiting += accepts - context.get(unit.started)
            got.sample(context)
            await context.tick()

    with writing_for(Target.FPGA):
        simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert [user for user, _ in got.results] == users.tolist()
    assert np.array_equal([values for _, values in got.results], wanted)
    # Lane i's result is i cycles later than that of lane 0, which `coming` announces.
    assert [user for _, user in got.coming] == users.tolist()
    times = np.array([time for time, _ in got.coming])
    lanes = np.array(got.lanes)
    skewed = [[lanes[time + 1 + lane, lane] for lane in range(p.rows)] for time in times]
    assert np.array_equal(skewed, wanted)
    distances = np.diff(times)
    assert distances.min() == spacing


class Recorder:
    """What the unit outputs: per cycle its lanes, and what `coming` and `results` mark."""

    def __init__(self, unit: SharedRequantisers, p: MatrixUnitParameters) -> None:
        self.unit, self.rows = unit, p.rows
        self.lanes: list[list[int]] = []
        self.coming: list[tuple[int, int]] = []
        self.results: list[tuple[int, list[int]]] = []

    def sample(self, context: Any) -> None:
        """Record the outputs of a cycle."""
        unit = self.unit
        if context.get(unit.coming.valid):
            self.coming.append((len(self.lanes), context.get(unit.coming.user)))
        self.lanes.append([context.get(unit.lanes[lane]) for lane in range(self.rows)])
        if context.get(unit.results.valid):
            values = [context.get(unit.results["values"][lane]) for lane in range(self.rows)]
            self.results.append((context.get(unit.results.user), values))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shared": 16}, "shared must be at most rows = 8, not 16"),
        ({"shared": 4, "spacing": 2}, "spacing must be at least shared = 4, not 2"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        replace(P, **change)
    assert message in str(error.value)
