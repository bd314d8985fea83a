"""Logic functions in liberty syntax, evaluated for many cases at once."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import and_, or_, xor

Values = Mapping[str, int]
"""Inputs by name; each is an integer with one bit per case."""

Function = Callable[[Values, int], int]
"""Function from inputs, and an integer in which the bit of every case is 1, to the output."""


@lru_cache(maxsize=4096)
def logic_function(text: str) -> Function:
    """Convert a liberty function to a Python function on integers.

    ``!`` and a prefix or postfix quote invert, ``* &`` and a space are AND, ``^`` is XOR, ``+ |``
    are OR.

    Raises
    ------
    ValueError
        If the text is not a function.
    """
    tokens = re.findall(r"\w+|[!'()*&+|^]", text)
    try:
        found = _disjunction(tokens)
    except IndexError:
        tokens = [""]
    if tokens:
        raise ValueError(f"a function must be complete, not {text!r}")
    return found


def names(text: str) -> list[str]:
    """Return the distinct inputs of a function."""
    return list(dict.fromkeys(name for name in re.findall(r"\w+", text) if name not in "01"))


def _operand(tokens: list[str]) -> Function:
    token = tokens.pop(0)
    if token == "!":
        return _inverted(_operand(tokens))
    if token == "(":
        found = _disjunction(tokens)
        tokens.pop(0)
    elif token in ("0", "1"):
        found = _constant(token == "1")
    else:
        found = _input(token)
    while tokens and tokens[0] == "'":
        tokens.pop(0)
        found = _inverted(found)
    return found


def _constant(high: bool) -> Function:
    return lambda values, every: every if high else 0


def _input(name: str) -> Function:
    return lambda values, every: values[name]


def _inverted(inner: Function) -> Function:
    return lambda values, every: every ^ inner(values, every)


def _conjunction(tokens: list[str]) -> Function:
    found = _operand(tokens)
    while tokens and tokens[0] not in "+|^)":
        if tokens[0] in "*&":
            tokens.pop(0)
        found = _combined(and_, found, _operand(tokens))
    return found


def _parity(tokens: list[str]) -> Function:
    found = _conjunction(tokens)
    while tokens and tokens[0] == "^":
        tokens.pop(0)
        found = _combined(xor, found, _conjunction(tokens))
    return found


def _disjunction(tokens: list[str]) -> Function:
    found = _parity(tokens)
    while tokens and tokens[0] in "+|":
        tokens.pop(0)
        found = _combined(or_, found, _parity(tokens))
    return found


def _combined(operator: Callable[[int, int], int], left: Function, right: Function) -> Function:
    return lambda values, every: operator(left(values, every), right(values, every))
