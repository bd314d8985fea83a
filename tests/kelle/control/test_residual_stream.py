"""The residual stream of a layer: input, norm, residual sums and output."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.kelle.kelle import added, normalised
from hdl.catalog import entry_named
from hdl.kelle.control.residual_stream import ResidualStream
from hdl.kelle.parameters import KelleParameters
from hdl.target import Target, writing_for

TINY: KelleParameters = entry_named("kelle").parameters("tiny")
EPSILON = 1 << 28
PATIENCE = 1000
"""Timeout of a block in cycles."""


@pytest.mark.parametrize(
    ("pause", "layer_norm", "tokens"),
    [
        (0.0, False, [1, 1, 1, 1]),
        (0.6, False, [1, 1, 1, 1]),
        (0.6, True, [1, 1, 1, 1]),
        (0.0, False, [3, 1]),
        (0.6, True, [1, 3]),
    ],
)
def test_layers_in_sequence(pause: float, layer_norm: bool, tokens: list[int]) -> None:
    """The sums of a block start when its input has been transferred; steps of some tokens each."""
    block = None if max(tokens) == 1 else 4
    p = replace(TINY, intermediate_size=16, layer_norm=layer_norm, block=block)
    unit, rng = ResidualStream(parameters=p), np.random.default_rng(3)
    states, attention, feed_forward = rng.integers(-(1 << 15), 1 << 15, (3, 4, p.hidden_size))
    # One state hardly changes, another saturates.
    attention[0] >>= 9
    seen: dict[str, list[list[int]]] = {"inputs": [], "normalised": [], "outputs": []}

    def wants() -> bool:
        return bool(rng.random() >= pause)

    async def run(context: Any, done: Any, sums: Any = (), leaves: bool = False) -> None:
        """Advance, with random stalls of the streams, until `done`; send a block's sums."""
        # The same slice of each token, then the next slice.
        parts = np.reshape(sums, (-1, p.hidden_slices, p.rows)).swapaxes(0, 1).reshape(-1, p.rows)
        slices = [list(map(int, part)) for part in parts]
        count = max(len(slices) // p.hidden_slices, 1)
        address = cycles = 0
        while address < len(slices) or not done():
            cycles += 1
            assert cycles < PATIENCE, seen
            gives = address < len(slices) and wants()
            context.set(unit.sums.strobe, gives)
            context.set(unit.leaves, leaves)
            if gives:
                place = address % count * p.hidden_slices + address // count
                context.set(unit.sums.address, place)
                context.set(unit.sums["values"], slices[address])
                address += 1
            for name in seen:
                context.set(getattr(unit, name).ready, wants())
            taken = [
                name
                for name in seen
                if context.get(getattr(unit, name).valid) and context.get(getattr(unit, name).ready)
            ]
            for name in taken:
                seen[name].append([context.get(v) for v in getattr(unit, name).payload])
            await context.tick()
        context.set(unit.sums.strobe, 0)

    async def give(context: Any) -> None:
        for state in states:
            for part in state.reshape(-1, p.rows):
                context.set(unit.hidden.payload, [int(v) for v in part])
                context.set(unit.hidden.valid, 1)
                await context.tick().until(unit.hidden.ready)
            context.set(unit.hidden.valid, 0)

    async def bench(context: Any) -> None:
        context.set(unit.epsilon, EPSILON)
        first = 0
        for count in tokens:
            context.set(unit.start, 1)
            await context.tick()
            context.set(unit.start, 0)
            # The last token's index changes when a step starts.
            context.set(unit.last_token, count - 1)
            own = slice(first, first + count)
            inputs, outputs = (2 * first + count) * p.hidden_slices, own.stop * p.hidden_slices
            await run(context, lambda inputs=inputs: len(seen["inputs"]) == inputs)
            after = inputs + count * p.hidden_slices
            await run(context, lambda after=after: len(seen["inputs"]) == after, attention[own])
            await run(
                context,
                lambda outputs=outputs: len(seen["outputs"]) == outputs,
                feed_forward[own],
                True,
            )
            first += count
            assert not context.get(unit.pending)

    with writing_for(Target.FPGA):
        simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(give, background=True)
    simulator.add_testbench(bench)
    simulator.run()
    between = added(states, attention)
    before, renewed = (
        np.stack([normalised(state, EPSILON, p) for state in part]) for part in (states, between)
    )
    # Rows of a layer norm have a mean of zero; those of an RMSNorm do not.
    assert (np.abs(before.mean(axis=1)).max() < 2) == layer_norm
    got = {name: np.array(slices).reshape(-1, p.hidden_size) for name, slices in seen.items()}
    assert np.array_equal(got["normalised"], before)
    steps = np.split(np.arange(len(states)), np.cumsum(tokens)[:-1])
    wanted = [part[own] for own in steps for part in (before, renewed)]
    assert np.array_equal(got["inputs"], np.concatenate(wanted))
    assert np.array_equal(got["outputs"], added(between, feed_forward))
