"""Conditions over parameters, for a sweep's ``where``: ``lanes * rows <= 64``."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from hdl.errors import UserError, unknown

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARING: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_UNARY: dict[type, Callable[[Any], Any]] = {ast.Not: operator.not_, ast.USub: operator.neg}


def parse_constraint(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """Parse a condition of integers, parameters, ``+ - * // %``, comparisons, ``and or not``.

    Returns
    -------
    Callable[[Mapping[str, Any]], bool]
        Function that evaluates the condition for parameter values by name; ``part.name`` is the
        name of a part's parameter. It raises `UserError` for an unknown parameter.

    Raises
    ------
    UserError
        If the text is not such a condition.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise UserError(f"where must be a condition such as lanes <= 8, not {text!r}") from error

    def holds(values: Mapping[str, Any]) -> bool:
        return bool(_value(tree, values, text))

    return holds


def _value(node: ast.expr, values: Mapping[str, Any], text: str) -> Any:
    """Evaluate a node; reject every node outside the grammar of `parse_constraint`."""

    def of(part: ast.expr) -> Any:
        return _value(part, values, text)

    match node:
        case ast.Constant(value=int() | str() as value):
            return value
        case ast.Name() | ast.Attribute():
            name = ast.unparse(node)
            if name not in values:
                raise UserError(unknown("a parameter in where", name, values))
            return values[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            try:
                return _BINARY[type(op)](of(left), of(right))
            except (TypeError, ZeroDivisionError) as error:
                raise UserError(f"where cannot be computed, {error}: {text!r}") from error
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](of(operand))
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(of(part) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return any(of(part) for part in parts)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in _COMPARING for op in ops
        ):
            sides = [of(left), *map(of, others)]
            pairs = zip(ops, sides, sides[1:], strict=False)
            return all(_COMPARING[type(op)](one, other) for op, one, other in pairs)
        case _:
            raise UserError(f"where cannot contain {ast.unparse(node)!r}: {text!r}")
