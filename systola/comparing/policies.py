"""Cache policies next to the designs: the model in float32, without an accelerator."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hdl.paths import BUILD
from synth.comparison import Watched
from synth.results import Record
from systola.comparing.design import Command
from systola.comparing.figures import CONTEXT, TEXT, WINDOWS, Figure, Figures
from systola.comparing.rows import Cell, Row, cell_of
from systola.options import path_shown
from systola.perplexity import FloatModel, PolicyModel

if TYPE_CHECKING:
    from golden.policies.registry import Named

CODE = ("code", "policies")
"""Digests of the project's code in the identity of a result."""

NO_ACCELERATOR = "no accelerator"
"""Value of the rows that a policy alone does not have."""


@dataclass(frozen=True, kw_only=True)
class PolicyColumn:
    """A policy, which has a cache and a perplexity, and no row of an accelerator.

    Parameters
    ----------
    text : str
        Name or file, as `POLICY` specifies it.
    named : Named
        The policy with its budget.
    budget : int, optional
        `BUDGET`, if it is given.
    identity : dict[str, Any]
        All that decides a perplexity of the policy.
    """

    text: str
    named: "Named"
    budget: int | None
    identity: dict[str, Any]

    @classmethod
    def open(cls, text: str, budget: int | None, model: Any) -> "PolicyColumn":
        """Return the column of a policy for a language model.

        Raises
        ------
        UserError
            If there is no such policy, or it has no budget.
        """
        from golden.policies.registry import policy_named

        named = policy_named(text).adjusted(budget, None)
        # As a result's JSON has it.
        identity = json.loads(json.dumps(PolicyModel(FloatModel(model), named).identity))
        return cls(text=text, named=named, budget=budget, identity=identity)

    @property
    def title(self) -> str:
        """The heading of the column."""
        return f"{self.named.name}, float32"

    @property
    def cached(self) -> int | None:
        """Tokens that a layer caches; None if the policy evicts none."""
        from golden.policies.protocol import LONGEST

        return self.named.policy.budget if self.named.policy.budget < LONGEST else None

    @property
    def command(self) -> Command:
        """The command that measures the perplexity."""
        values = {
            "POLICY": self.text,
            "BUDGET": str(self.budget or ""),
            "WINDOWS": str(WINDOWS),
            "CONTEXT": str(CONTEXT),
            "TEXT": TEXT,
        }
        return Command(verb="perplexity", variables={}).changed(values)

    def figures(self) -> Figures:
        """Return the perplexity, if a result has it; one of earlier code is stale."""
        found: Figures = {}
        for file in sorted((BUILD / "perplexity").glob(f"policy-{self.named.name}-*.json")):
            record = Record.read(file)
            values = record.values
            conditions = values["text"], values["context"], len(values["losses"])
            identity = values["identity"]
            same = _without_code(identity) == _without_code(self.identity)
            stale = identity != self.identity
            if conditions == (TEXT, CONTEXT, WINDOWS) and same and not (found and stale):
                found["perplexity"] = Figure(
                    value=values["perplexity"], source=str(path_shown(file)), stale=stale
                )
        return found

    def missing(self, figures: Figures) -> bool:
        """Return whether the perplexity is absent or stale."""
        return "perplexity" not in figures or figures["perplexity"].stale

    def cell(self, row: Row, figures: Figures) -> Cell:
        """Return a row's cell."""
        if not row.of_policies:
            return Cell(value=NO_ACCELERATOR, text=NO_ACCELERATOR, marks=())
        watched = Watched({name: own.value for name, own in figures.items()})
        return cell_of(row, {"figures": watched, "cached": self.cached}, figures)

    def record(self, figures: Figures) -> dict[str, Any]:
        """Return what the JSON file has of the policy."""
        return {
            "policy": self.text,
            "identity": self.identity,
            "cached_tokens_at_most": self.cached,
            "figures": {name: vars(own) for name, own in figures.items()},
            "commands": {"perplexity": str(self.command)},
        }


def _without_code(identity: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in identity.items() if name not in CODE}
