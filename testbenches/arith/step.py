"""Run a few operand sets through an operator in Amaranth's simulator, with pauses."""

from typing import Any

import numpy as np
from amaranth.hdl import ClockDomain, Module
from amaranth.lib import data
from amaranth.sim import Simulator

from hdl.arith.operator import Operator


def run_steps(
    unit: Operator, operands: dict[str, np.ndarray], *, seed: int = 0
) -> dict[str, np.ndarray]:
    """Return an operator's results, in order.

    With an `enable` input, about half of the cycles are disabled; in these cycles the inputs hold
    another set of operands.

    Parameters
    ----------
    unit : Operator
        The operator.
    operands : dict[str, numpy.ndarray]
        Values of every operand, of one length; arrays have one more axis for an array port.
    seed : int
        Seed of the pauses.

    Returns
    -------
    dict[str, numpy.ndarray]
        Values of every result, as Python integers in an object array.
    """
    random = np.random.default_rng(seed)
    vectors = len(next(iter(operands.values())))
    outputs = [name for name, member in unit.signature.members.items() if member.flow.name == "Out"]
    results: dict[str, list[int]] = {name: [] for name in outputs}
    paused_unit = "enable" in unit.signature.members

    async def drive(context: Any) -> None:
        done = 0
        while done < vectors + unit.stages:
            enabled = bool(random.integers(2)) if paused_unit else True
            if paused_unit:
                context.set(unit.enable, enabled)
            index = min(done, vectors - 1) if enabled else int(random.integers(vectors))
            for name, values in operands.items():
                _set(context, getattr(unit, name), values[index])
            if unit.stages == 0:
                await context.delay(1e-9)
            if enabled and done >= unit.stages:
                for name in outputs:
                    results[name].append(context.get(getattr(unit, name)))
            if unit.stages:
                await context.tick()
            done += enabled

    design = Module()
    design.submodules.unit = unit
    if unit.stages:
        design.domains.sync = ClockDomain()
    simulator = Simulator(design)
    if unit.stages:
        simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    return {name: np.array(values, dtype=object) for name, values in results.items()}


def _set(context: Any, port: Any, value: Any) -> None:
    """Set a port: an array element by element, any other port by its value."""
    if isinstance(port, data.View):
        for index, item in enumerate(value):
            context.set(port[index], int(item))
    else:
        context.set(port, int(value))
