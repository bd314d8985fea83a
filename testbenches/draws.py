"""Small legal parameters of any unit, drawn at random from what its fields declare."""

import random
from collections import defaultdict
from operator import attrgetter
from typing import Any

from hdl.entry import Entry
from hdl.parameter_list import Description, descriptions
from hdl.parameters import OneOf, Part, PowerOfTwo, Range
from hdl.settings import with_values

STEPS = 60
"""Changes that are tried for one draw; many are refused."""

GROWTH = 2
"""How far a number goes beyond the largest of the small presets, so that a run takes seconds."""


def draw(entry: Entry, rng: random.Random) -> tuple[Any, list[str]]:
    """Draw a legal parameter object, by a walk from one of the small presets.

    Parameters of the same name are often changed together, and two names at a time, since many
    rules tie them.

    Returns
    -------
    tuple[Any, list[str]]
        The parameter object, and what was said of each change that was refused.
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
    """Draw a value that is legal by itself, and not much above those of the small presets."""
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
    # The ends of a range are where mistakes are.
    return rng.choice((low, most, rng.randint(low, most), rng.randint(low, most)))
