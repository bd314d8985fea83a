"""Which tests of a testbench a run is for: the others are listed in its result, not passed."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cocotb

from testbenches.bench import catalog_parameters, context, record_fact


@dataclass(frozen=True)
class Run:
    """What a test may depend on.

    Parameters
    ----------
    parameters : Any
        The parameter object of the unit under test.
    full : bool
        Long versions were asked for.
    four_states : bool
        The simulator has four states, and is slow.
    """

    parameters: Any
    full: bool = False
    four_states: bool = False


Condition = Callable[[Run], bool]

CONDITIONS: dict[tuple[str, str], Condition] = {}
"""By module and name of a test, when it applies; the others always do."""


def only_if(holds: Condition, reason: str) -> Callable[[Any], Any]:
    """Apply a test only to some runs; stands right above the test's function.

    Parameters
    ----------
    holds : Condition
        Whether the test applies to a run.
    reason : str
        What keeps it from others, for the list `not_applicable` in ``sim.json``.
    """

    def decorate(test: Any) -> Any:
        CONDITIONS[test.__module__, test.__name__] = holds
        applies = True
        # Other modules, or any outside of a simulator, are imported for what else is in them.
        if cocotb.is_simulation and test.__module__ in os.environ["COCOTB_TEST_MODULES"].split(","):
            told = context()
            run = Run(catalog_parameters(), told["full"], told["simulator"] == "icarus")
            applies = holds(run)
        if not applies:
            record_fact("not_applicable", test.__name__, reason)
        return cocotb.skipif(not applies, reason=reason)(test)

    return decorate
