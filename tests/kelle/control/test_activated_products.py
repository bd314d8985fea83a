"""The activation between the matrices of a feed-forward block without a gate."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.kelle.kelle import activated
from hdl.catalog import entry_named
from hdl.kelle.control.activated_products import ActivatedProducts
from hdl.kelle.parameters import KelleParameters
from hdl.nonlinear.activation_functions import VALUE, Activation

TINY: KelleParameters = entry_named("kelle").parameters("tiny_opt")
ULPS = 1.1
"""Error bound of the table of GeLU in steps of a result, as stated in `ActivationFunctions`."""


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize(("block", "tokens"), [(1, 1), (3, 3), (4, 2)])
def test_slices_go_through_the_activation(activation: Activation, block: int, tokens: int) -> None:
    p = replace(TINY, activation=activation, block=block)
    unit, rng = ActivatedProducts(parameters=p), np.random.default_rng(tokens)
    ups = rng.integers(-(1 << 15), 1 << 15, (tokens * p.intermediate_slices, p.rows))
    places = [block * (i // tokens) + i % tokens for i in range(len(ups))]
    ups[1::2] >>= 4
    got, order, whole = np.zeros_like(ups), [], []

    async def bench(context: Any) -> None:
        context.set(unit.last_token, tokens - 1)
        address = 0
        while len(order) < len(ups):
            gives = address < len(ups) and rng.random() < 0.7
            context.set(unit.ups.strobe, gives)
            if gives:
                context.set(unit.ups.address, places[address])
                context.set(unit.ups["values"], [int(v) for v in ups[address]])
                address += 1
            if context.get(unit.products.strobe):
                got[len(order)] = [context.get(v) for v in unit.products["values"]]
                order.append(context.get(unit.products.address))
                whole.append(context.get(unit.of_last_token))
            await context.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert order == places
    assert whole == ([0] * (tokens - 1) + [1]) * p.intermediate_slices
    assert np.array_equal(got, activated(ups, p))
    # Both signs occur, and the results are those of the named function.
    assert min((ups < 0).sum(), (ups > 0).sum()) > ups.size // 4
    for up, product in zip(ups.reshape(-1).tolist(), got.reshape(-1).tolist(), strict=True):
        x = up / (1 << VALUE.fraction_bits)
        exact = {
            Activation.RELU: max(x, 0.0),
            Activation.GELU: x * math.erfc(-x / math.sqrt(2)) / 2,
            Activation.SILU: x / (1 + math.exp(-x)),
        }[activation]
        assert abs(product - exact * (1 << VALUE.fraction_bits)) < ULPS
