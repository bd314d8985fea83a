"""The products between the feed-forward matrices, for heads back to back."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.arith.requantiser import requantised
from golden.nonlinear.activation_functions import activation as activation_of
from hdl.catalog import entry_named
from hdl.kelle.control.gated_products import GatedProducts
from hdl.kelle.parameters import KelleParameters
from hdl.nonlinear.activation_functions import VALUE, Activation
from hdl.target import Target, writing_for

TINY: KelleParameters = entry_named("kelle").parameters("tiny")


@pytest.mark.parametrize(
    ("head_size", "activation"), [(8, Activation.SILU), (24, Activation.GELU), (4, Activation.SILU)]
)
@pytest.mark.parametrize(
    ("gap", "block", "tokens"), [(0, None, 1), (3, None, 1), (0, 5, 3), (3, 3, 3), (0, 2, 1)]
)
def test_gates_are_multiplied_by_their_own_channels(
    head_size: int, activation: Activation, gap: int, block: int | None, tokens: int
) -> None:
    """Heads of two, six and one slices, which reuse the same addresses.

    The array gives a slice of gates per slice of the hidden state at most. With heads of one slice
    the activation takes as many cycles.
    """
    changes = {"banks": 2, "word_bytes": 2} if head_size == 4 else {}
    changes |= {
        "head_size": head_size,
        "intermediate_size": 6 * head_size,
        "words": 4096,
        "bands": 1,
    }
    p = replace(TINY, activation=activation, block=block, **changes)
    unit = GatedProducts(parameters=p)
    rng = np.random.default_rng(head_size)
    slices = p.intermediate_slices * tokens
    ups, gates = rng.integers(-(1 << 15), 1 << 15, (2, slices, p.rows))
    # Gates near zero as well: most gates of 16 bits are in the function's linear ranges.
    gates[1::2] >>= 4
    activated = activation_of(gates, activation.value, p.functions)
    wanted = requantised(activated * ups, 1, VALUE.fraction_bits)
    work: list[Any] = []
    for first in range(0, slices, p.head_slices * tokens):
        head = range(first, first + p.head_slices * tokens)
        work += [("ups", ups, i) for i in head]
        # The array multiplies a tile by a slice of each token.
        for i in range(first, head.stop, tokens):
            work += [("gates", gates, i + token) for token in range(tokens)]
            work += [None] * (tokens * (p.hidden_slices - 1) + gap)
    got = np.zeros_like(ups)
    places = [p.step_tokens * (i // tokens) + i % tokens for i in range(slices)]
    order, whole = [], []

    async def bench(context: Any) -> None:
        context.set(unit.last_token, tokens - 1)
        for item in work + [None] * (16 + 2 * tokens * p.product_pieces):
            context.set(unit.ups.strobe, 0)
            context.set(unit.gates.strobe, 0)
            if item is not None:
                name, values, address = item
                port = getattr(unit, name)
                context.set(port.strobe, 1)
                context.set(port.address, places[address])
                context.set(port["values"], [int(v) for v in values[address]])
            if context.get(unit.products.strobe):
                got[len(order)] = [context.get(v) for v in unit.products["values"]]
                order.append(context.get(unit.products.address))
                whole.append(context.get(unit.of_last_token))
            await context.tick()

    with writing_for(Target.FPGA):
        simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert order == places
    assert whole == ([0] * (tokens - 1) + [1]) * p.intermediate_slices
    assert np.array_equal(got, wanted)
