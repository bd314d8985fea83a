"""Cycles of a token in which no weights are transferred, by their place in the layer.

``python -m systola.comparing.gaps TOP CACHED`` runs the token that follows a number of cached
tokens (`systola.comparing.contexts`) on Kelle or LAD, whose weights are one stream. It prints the
cycles without a transfer for each number of transfers that precede them in their layer, summed over
the layers. The matrices' sizes give the cause: which matrix has ended, and which one is next.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm.language_model import open_language_model
from golden.llm.texts import text_named
from synth.comparison import kept
from systola.comparing.contexts import measured
from systola.comparing.design import Choice, Design, kept_commands

PORT = "weights_ready"
"""The accelerator's output of the stream of weights; the harness always offers the next ones."""


class Trace:
    """Records the transfers of weights of each round of a system's program."""

    def __init__(self) -> None:
        self.rounds: list[NDArray[np.uint8]] = []

    def of(self, run: Any) -> Any:
        """Return a session's method `run` that also records."""

        def traced(*arguments: Any, record: Sequence[str] = (), **options: Any) -> Any:
            found = run(*arguments, record=[*record, PORT], **options)
            self.rounds.append(found.outputs.pop(PORT)[:, 0])
            return found

        return traced


def gaps(rounds: Sequence[NDArray[np.uint8]]) -> Counter[int]:
    """Return the cycles without a transfer by the transfers before them, summed over rounds."""
    found: Counter[int] = Counter()
    for ready in rounds:
        places, cycles = np.unique(np.cumsum(ready)[ready == 0], return_counts=True)
        found.update(dict(zip(places.tolist(), cycles.tolist(), strict=True)))
    return found


def main(top: str, cached: int) -> None:
    """Print the gaps of the layers, then of the LM head."""
    system = kept()["systems"][top]
    model = open_language_model(None)
    design = Design.open(Choice.of(kept_commands(system)["generate"]), model, system)
    design.system.prepare(lambda words: None)
    trace = Trace()
    begin = design.system.begin

    def traced(state: Any) -> None:
        begin(state)
        session = design.system.host._session
        session.run = trace.of(session.run)

    design.system.begin = traced
    outcome = measured(design.system, model.tokens_of(text_named("news")), cached)
    layers = model.shape.layers
    rounds = [own for own in trace.rounds if own.any()][-layers - 1 :]
    print(f"{outcome.cycles:,} cycles, of which {sum(map(len, rounds)):,} are recorded")
    for name, own in (("layers", rounds[:layers]), ("LM head", rounds[layers:])):
        for place, cycles in sorted(gaps(own).items()):
            print(f"{name}: after {place:,} transfers, {cycles:,} cycles")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
