"""Random small legal parameters of any unit, generated from the declarations of its fields."""

import random
from collections import defaultdict
from operator import attrgetter
from typing import Any

from hdl.entry import Entry
from hdl.parameter_list import Description, descriptions
from hdl.parameters import OneOf, Part, PowerOfTwo, Range
from hdl.settings import with_values

STEPS = 60
"""Changes to try for one parameter object; many are rejected."""

GROWTH = 2
"""Upper limit of a number relative to the small presets, so that a run takes seconds."""


def draw(entry: Entry, rng: random.Random) -> tuple[Any, list[str]]:
    """Generate a legal parameter object by random changes to one of the small presets.

    Since many rules couple parameters, parameters of the same name are often changed together, and
    two names at a time.

    Returns
    -------
    tuple[Any, list[str]]
        The parameter object, and the messages of the rejected changes.
    """
    small = [preset for name, preset in entry.presets.items() if name.startswith("tiny")]
    parameters = rng.choice(small)
    alike: dict[str, list[Description]] = defaultdict(list)
    for parameter in descriptions(type(parameters)):
        if not isinstance(parameter.field.rule, Part):
            alike[parameter.path.rpartition(".")[2]].append(parameter)
    refusals = []
    for _ in range(STEPS):
        try:
            changes: dict[str, Any] = {}
            for name in rng.sample(list(alike), k=min(rng.choice((1, 1, 2)), len(alike))):
                group = alike[name] if rng.random() < 0.7 else [rng.choice(alike[name])]
                value = _value(group[0], small, parameters, rng)
                changes |= {parameter.path: value for parameter in group}
            parameters = with_values(parameters, changes)
        except ValueError as error:
            refusals.append(str(error))
    return parameters, refusals


def _value(parameter: Description, small: list[Any], owner: Any, rng: random.Random) -> Any:
    """Return a value that is legal by itself, not far above those of the small presets."""
    rule = parameter.field.rule
    if parameter.field.optional and rng.random() < 0.3:
        return None
    if isinstance(rule, OneOf):
        return rng.choice(list(rule.values.values()))
    assert isinstance(rule, Range)
    prefix = parameter.path.rpartition(".")[0]
    low, high = rule.bounds(attrgetter(prefix)(owner) if prefix else owner)
    usual = [attrgetter(parameter.path)(preset) for preset in small]
    most = min(high, max(low + 2, GROWTH * max(value or 0 for value in usual)))
    if isinstance(rule, PowerOfTwo):
        powers = [1 << bit for bit in range(high.bit_length()) if low <= 1 << bit <= most]
        return rng.choice(powers)
    # Errors are most likely at the ends of a range.
    return rng.choice((low, most, rng.randint(low, most), rng.randint(low, most)))
