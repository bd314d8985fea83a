"""Operators that a function uses, be they its own or lent by the unit that it is a part of.

Functions that never work at the same time need their operators once. Each of them is written
against a `Loan`: the ports of operators that stand elsewhere, and who may use them. A function by
itself gets operators of its own, and nobody to wait for.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Value
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out, Signature

from hdl.arith.float_format import BINARY16

EXTRA_BITS = 3
"""Mantissa bits of a shared multiplier's second operand below those of FP16."""

LONGER = StructLayout({"mantissa": 10 + EXTRA_BITS, "exponent": 5, "sign": 1})
"""An FP16 number with a longer mantissa."""

_FP16 = BINARY16.layout
UNARY = Signature({"a": Out(_FP16), "result": In(_FP16)})
BINARY = Signature({"a": Out(_FP16), "b": Out(_FP16), "result": In(_FP16)})
LONGER_PRODUCT = Signature({"a": Out(_FP16), "b": Out(LONGER), "result": In(_FP16)})
QUOTIENT = Signature({"a": Out(_FP16), "b": Out(_FP16), "result": In(_FP16), "busy": In(1)})
"""A quotient; while a serial divider is busy, its ranks must not move."""

EXACT_PRODUCT = Signature({"a": Out(_FP16), "b": Out(_FP16), "product": In(22)})
"""The product of two significands in the same cycle: what is inside a multiplier."""


def loan(**operators: Signature) -> Signature:
    """Return the signature of what a function borrows.

    Parameters
    ----------
    **operators : Signature
        Each operator's operands and result.

    Returns
    -------
    Signature
        These, and `wants`: there is something to begin; `granted`: it may; `ends`: something
        begins, behind which others may have a turn; `busy`: something is in the operators, which
        stay the function's until it is not; `enable`: their ranks move.
    """
    shared = {name: Out(1) for name in ("wants", "ends", "busy", "enable")} | {"granted": In(1)}
    return Signature(shared | {name: Out(ports) for name, ports in operators.items()})


def own(m: Module, signature: Signature, **operators: Any) -> Any:
    """Return a loan whose operators are submodules, granted in every cycle."""
    lent: Any = signature.create(path=("loan",))
    m.d.comb += lent.granted.eq(1)
    for name, operator in operators.items():
        m.submodules[name] = operator
        ports = getattr(lent, name)
        m.d.comb += operator.enable.eq(lent.enable)
        link_results(m, operator, ports)
        for operand, port in ports.signature.members.items():
            if port.flow is Out:
                m.d.comb += getattr(operator, operand).eq(getattr(ports, operand))
    return lent


def link_results(m: Module, operator: Any, ports: Any) -> None:
    """Give a borrower what an operator answers; what an operator lacks is 0."""
    for result, port in ports.signature.members.items():
        if port.flow is In and result in operator.signature.members:
            m.d.comb += getattr(ports, result).eq(getattr(operator, result))


def from_fp16(code: Any) -> Any:
    """Return a number as a multiplier's longer operand."""
    return Cat(Const(0, EXTRA_BITS), Value.cast(code))
