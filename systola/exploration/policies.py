"""Sweeps over cache policies and their fields: the perplexity of each point."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Any

from golden.policies.registry import Named, policy_named
from hdl.errors import UserError
from systola.exploration.results import Row
from systola.exploration.sweep import MOST_VALUES
from systola.perplexity import Perplexity


@dataclass(frozen=True, kw_only=True)
class PolicyPoint:
    """A policy with values of its fields.

    Parameters
    ----------
    named : Named
        The policy.
    fields : Mapping[str, Any]
        The values that the sweep sets.
    """

    named: Named
    fields: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Policy and values, for tables and messages."""
        values = [f"{name}={value}" for name, value in self.fields.items()]
        return " ".join([self.named.name, *values])

    @property
    def parameters(self) -> dict[str, Any]:
        """The policy's name, and all fields that the sweep sets, as the columns of a table."""
        values: dict[str, Any] = {"parameter.policy": self.named.name}
        for name in self.fields:
            value = getattr(self.named.policy, name)
            values[f"parameter.{name}"] = value.value if isinstance(value, Enum) else value
        return values


@dataclass(frozen=True, kw_only=True)
class PolicyPoints:
    """The legal and illegal combinations of policies and values.

    Parameters
    ----------
    legal : Sequence[PolicyPoint]
        The points.
    illegal : Mapping[str, str]
        Message of the violated rule, by the name of each illegal combination.
    """

    legal: Sequence[PolicyPoint]
    illegal: Mapping[str, str]


def policy_points(texts: Sequence[str], grid: Mapping[str, tuple[Any, ...]]) -> PolicyPoints:
    """Return every combination of policies and values; those that violate a rule are omitted.

    Parameters
    ----------
    texts : Sequence[str]
        Names or files of policies.
    grid : Mapping[str, tuple[Any, ...]]
        Values by field.

    Raises
    ------
    UserError
        If there is no such policy, two have the same name, a field does not exist, a value has the
        wrong type, or no legal point remains.
    """
    policies: dict[str, Named] = {}
    for named in map(policy_named, dict.fromkeys(texts)):
        if named.name in policies:
            raise UserError(f"POLICY must have different names, not {named.name} twice")
        policies[named.name] = named
    if not policies:
        raise UserError("POLICY must name a policy, not be empty")
    count = len(policies)
    for values in grid.values():
        count *= len(values)
    if count > MOST_VALUES:
        raise UserError(f"a sweep must have at most {MOST_VALUES} points, not {count}")
    legal: list[PolicyPoint] = []
    illegal: dict[str, str] = {}
    for named, fields in product(policies.values(), _combinations(grid)):
        point = PolicyPoint(named=named, fields=fields)
        try:
            legal.append(PolicyPoint(named=named.changed(fields), fields=fields))
        except ValueError as error:
            illegal[point.name] = str(error)
    if not legal:
        first = next(iter(illegal.values()))
        raise UserError(
            f"SWEEP must have a legal point: {len(illegal)} are illegal; first: {first}"
        )
    return PolicyPoints(legal=legal, illegal=illegal)


def _combinations(grid: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Yield the values of each combination by field; one without values for an empty grid."""
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def policy_row(point: PolicyPoint, measured: Perplexity) -> Row:
    """Return a point's line of the table.

    `budget` is that of the policy, or the window of a policy that evicts nothing in it.
    """
    found = measured.record()
    checked = sum(sample[0][0] for sample in measured.samples)
    equal = sum(sample[0][1] for sample in measured.samples)
    return {
        "point": point.name,
        **point.parameters,
        "verb": "perplexity",
        "of": f"{measured.text}: {len(measured.losses)} windows of {measured.context} tokens",
        "budget": min(point.named.policy.budget, measured.context),
        "perplexity": found["perplexity"],
        "float_perplexity": found["float_perplexity"],
        "loss": found["loss"],
        "loss_error": found["loss_error"],
        "added_loss": found["added_loss"],
        "added_loss_error": found["added_loss_error"],
        "evictions_checked": checked,
        "evictions_equal": equal,
    }
