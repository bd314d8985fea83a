"""A bank of operators in one module, which one program simulates together."""

from collections.abc import Mapping

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import wiring

from hdl.arith.operator import Operator
from hdl.unit import Unit
from testbenches.arith.bulk import run_bulk


class Bank(Unit):
    """Independent operators with a common clock; a port is named ``<operator>_of_<port>``.

    Parameters
    ----------
    operators : tuple[tuple[str, Operator], ...]
        Names and operators.
    """

    def __init__(self, *, operators: tuple[tuple[str, Operator], ...]) -> None:
        self.operators = operators
        super().__init__(
            {
                f"{name}_of_{port}": member
                for name, operator in operators
                for port, member in operator.signature.members.items()
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the ports of the operators to those of the bank."""
        m = Module()
        for name, operator in self.operators:
            m.submodules[name] = operator
            for port, member in operator.signature.members.items():
                outer, inner = getattr(self, f"{name}_of_{port}"), getattr(operator, port)
                inwards = member.flow == wiring.In
                m.d.comb += inner.eq(outer) if inwards else outer.eq(inner)
        return m


def run_bank(
    operators: Mapping[str, Operator], operands: dict[str, dict[str, np.ndarray]]
) -> dict[str, dict[str, np.ndarray]]:
    """Run operand sets through several operators at once.

    Parameters
    ----------
    operators : dict[str, Operator]
        Operators of any latency; an `enable` input is held at 1 unless it is among the operands.
    operands : dict[str, dict[str, numpy.ndarray]]
        Values of each input of every operator, as for `run_bulk`; lengths may differ.

    Returns
    -------
    dict[str, dict[str, numpy.ndarray]]
        Values of each output of every operator, one per operand set.
    """
    deepest = max(operator.stages for operator in operators.values())
    vectors = {name: len(next(iter(inputs.values()))) for name, inputs in operands.items()}
    cycles = max(vectors.values()) + deepest
    driven = {}
    for name, operator in operators.items():
        inputs = dict(operands[name])
        if "enable" in operator.signature.members:
            inputs.setdefault("enable", np.ones(vectors[name], np.uint8))
        for port, values in inputs.items():
            padding = [(0, cycles - len(values))] + [(0, 0)] * (values.ndim - 1)
            driven[f"{name}_of_{port}"] = np.pad(values, padding, mode="edge")
    outputs = run_bulk(Bank(operators=tuple(operators.items())), driven, latency=0)
    results: dict[str, dict[str, np.ndarray]] = {name: {} for name in operators}
    for path, values in outputs.items():
        name, port = path.split("_of_")
        first = operators[name].stages
        results[name][port] = values[first : first + vectors[name]]
    return results
