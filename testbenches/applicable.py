"""Conditions of tests: a test that does not apply to a run is listed in its result, not passed."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cocotb

from testbenches.bench import catalog_parameters, context, record_fact


@dataclass(frozen=True)
class Run:
    """The properties of a run that a test may depend on.

    Parameters
    ----------
    parameters : Any
        Parameter object of the unit under test.
    full : bool
        The long versions are requested.
    four_states : bool
        The simulator has four states, and is slow.
    """

    parameters: Any
    full: bool = False
    four_states: bool = False


Condition = Callable[[Run], bool]

CONDITIONS: dict[tuple[str, str], Condition] = {}
"""Condition of a test, by its module and name; a test without one always applies."""


def only_if(holds: Condition, reason: str) -> Callable[[Any], Any]:
    """Apply a test only to some runs; the decorator directly above the test's function.

    Parameters
    ----------
    holds : Condition
        Return whether the test applies to a run.
    reason : str
        Reason why it does not apply to others, for the list `not_applicable` in ``sim.json``.
    """

    def decorate(test: Any) -> Any:
        CONDITIONS[test.__module__, test.__name__] = holds
        applies = True
        # Outside a simulator, or in a module that is not under test, imports need other members
        # only.
        if cocotb.is_simulation and test.__module__ in os.environ["COCOTB_TEST_MODULES"].split(","):
            facts = context()
            run = Run(catalog_parameters(), facts["full"], facts["simulator"] == "icarus")
            applies = holds(run)
        if not applies:
            record_fact("not_applicable", test.__name__, reason)
        return cocotb.skipif(not applies, reason=reason)(test)

    return decorate
