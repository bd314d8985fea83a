"""Operators that several functions share, or that a function has to itself.

Functions that never operate at the same time need their operators once. Each function is designed
for operators outside it, shared through an arbiter: it requests them, and uses them while they are
granted. A stand-alone function has private operators, which are always granted.
"""

from typing import Protocol, cast

from amaranth.hdl import Cat, Const, Module, Signal, Value, ValueLike
from amaranth.lib.data import StructLayout, View
from amaranth.lib.wiring import In, Out, Signature

from hdl.arith.float_format import BINARY16
from hdl.unit import Unit

EXTRA_BITS = 3
"""Mantissa bits of a shared multiplier's second operand below those of FP16."""

LONGER = StructLayout({"mantissa": 10 + EXTRA_BITS, "exponent": 5, "sign": 1})
"""An FP16 number with a longer mantissa."""

_FP16 = BINARY16.layout
UNARY = Signature({"a": Out(_FP16), "result": In(_FP16)})
BINARY = Signature({"a": Out(_FP16), "b": Out(_FP16), "result": In(_FP16)})
LONGER_PRODUCT = Signature({"a": Out(_FP16), "b": Out(LONGER), "result": In(_FP16)})
QUOTIENT = Signature({"a": Out(_FP16), "b": Out(_FP16), "result": In(_FP16), "busy": In(1)})
"""A quotient; while a serial divider is busy, its pipeline must not advance."""

EXACT_PRODUCT = Signature({"a": Out(_FP16), "b": Out(_FP16), "product": In(22)})
"""The product of two significands in the same cycle: the integer part of a multiplier."""


class OperatorPorts(Protocol):
    """Operands and result of an operator outside a function; each operator has some of them."""

    signature: Signature
    a: View
    b: View
    result: View
    product: Signal
    busy: Signal
    valid: Signal


class SharedOperators(Protocol):
    """Ports of a function to its operators, which are attributes by their names.

    The other members are those of `shared_operators`.
    """

    signature: Signature
    request: Signal
    grant: Signal
    end: Signal
    busy: Signal
    enable: Signal

    def __getattr__(self, name: str) -> OperatorPorts: ...


def shared_operators(**operators: Signature) -> Signature:
    """Return the signature of operators outside a function, including arbitration.

    Parameters
    ----------
    **operators : Signature
        Operands and result of each operator.

    Returns
    -------
    Signature
        The operators, each with `valid`, which is 1 while an item of the function is at its
        operands, and 0 unless the operators are granted or hold items of the function. And:
        `request`: the function can begin an item; `grant`: it may; `end`: it begins an item after
        which the arbiter may grant another function; `busy`: items are in the operators, which
        remain the function's until they are output; `enable`: the operators' pipelines advance.
    """
    arbitration = {name: Out(1) for name in ("request", "end", "busy", "enable")}
    arbitration["grant"] = In(1)
    marked = {
        name: Out(Signature({**ports.members, "valid": Out(1)}))
        for name, ports in operators.items()
    }
    return Signature(arbitration | marked)


def private_operators(m: Module, signature: Signature, **operators: Unit) -> SharedOperators:
    """Return the ports of operators that are submodules, granted in every cycle."""
    shared = cast("SharedOperators", signature.create(path=("operators",)))
    m.d.comb += shared.grant.eq(1)
    for name, operator in operators.items():
        m.submodules[name] = operator
        ports = getattr(shared, name)
        m.d.comb += operator.enable.eq(shared.enable)
        # A serial divider has an output `busy`; a pipelined one has none.
        link_results(m, operator, ports)
        for operand, port in ports.signature.members.items():
            if port.flow is Out and operand != "valid":
                m.d.comb += getattr(operator, operand).eq(getattr(ports, operand))
    return shared


def link_results(m: Module, operator: Unit, ports: OperatorPorts) -> None:
    """Connect an operator's results to a function; results that the operator lacks are 0."""
    for result, port in ports.signature.members.items():
        if port.flow is In and result in operator.signature.members:
            m.d.comb += getattr(ports, result).eq(getattr(operator, result))


def from_fp16(code: ValueLike) -> Value:
    """Return a number as a multiplier's longer operand."""
    # The mantissa is at the low end of a code: zeros appended below it do not change the number.
    return Cat(Const(0, EXTRA_BITS), Value.cast(code))
