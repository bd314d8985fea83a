"""Cycles and bytes of a token with many cached tokens, in Verilog with ideal ports.

``python -m systola.comparing.contexts TOP CACHED...`` prints an entry of the list `contexts` in
`docs/comparison.json` for each number of cached tokens. The golden model computes the caches of
news text up to two tokens before the end. The Verilog decodes these two, and is compared with the
golden model as in ``make generate``. Kelle has its caches on the chip, and decodes the whole text.
"""

import json
import sys
from dataclasses import replace
from typing import Any

from golden.llm.language_model import open_language_model
from golden.llm.texts import text_named
from hdl.target import Target
from synth.comparison import kept
from synth.present_verilog import present_verilog
from systola.comparing.design import Choice, Design, kept_commands
from systola.generate import adapter_of
from systola.generation.system import BlockProgress, Outcome, System


def measured(system: System, tokens: list[int], cached: int) -> Outcome:
    """Return the outcome of the token that follows a number of cached tokens.

    Parameters
    ----------
    system : System
        The accelerator, prepared; it is ended here.
    tokens : list[int]
        A text with more tokens than that number.
    cached : int
        Tokens before the measured one, at least two.
    """
    # The first token on restored caches finds none of the rows that LAD prefetches.
    state = system.cached_state(tokens[: cached - 1])
    try:
        system.begin(state)
        for position in range(0 if state is None else cached - 1, cached):
            system.run(system.next_block(position), tokens[position : position + 1], _unwatched)
        return system.run(system.next_block(cached), tokens[cached : cached + 1], _unwatched)
    finally:
        system.end()


def _unwatched(progress: BlockProgress) -> None:
    """Ignore the progress of a block."""


def entry(design: Design, tokens: list[int], cached: int) -> dict[str, Any]:
    """Return the entry of a number of cached tokens for `docs/comparison.json`."""
    design.system.prepare(lambda words: None)
    outcome = measured(design.system, tokens, cached)
    return {
        "cached": cached,
        "cycles": outcome.cycles,
        "bytes": outcome.bytes_read + outcome.bytes_written,
        "bound": outcome.bound,
        "verilog_digest": present_verilog(
            design.entry, design.dimensions, Target.FPGA, lambda words: None
        ),
    }


def main(top: str, cached: list[int]) -> None:
    """Print the entries of a system with the parameters of the comparison."""
    system = kept()["systems"][top]
    choice = Choice.of(kept_commands(system)["generate"])
    if adapter_of(top).budgets:
        # No token of the text is evicted.
        choice = replace(choice, budget=choice.parameters().slots)
    model = open_language_model(None)
    tokens = model.tokens_of(text_named("news"))
    for number in cached:
        print(json.dumps(entry(Design.open(choice, model, system), tokens, number)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], [int(number) for number in sys.argv[2:]])
