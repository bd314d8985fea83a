"""Number of popular tokens in a real text, and the tokens that receive the input vectors.

`python -m golden.kelle.eviction.popularity`. The study checks that the criterion is neither true
for all tokens nor for none, and that the order of the text does not determine the selection.
"""

from dataclasses import dataclass

from golden.kelle.decoder_layer import real_layer
from golden.kelle.eviction.eviction_controller import KEPT
from golden.kelle.eviction.prefill import prefill
from golden.kelle.kelle import KelleModel
from golden.llm import Trace, open_trace
from hdl.catalog import entry_named
from hdl.kelle.parameters import KelleParameters

LAYERS = (0, 14, 29)
FIRST, STEPS = 144, 200
"""Tokens of the prefill, and decode steps."""


@dataclass(frozen=True)
class Popularity:
    """Counts of popular tokens in a prefill and in the decode steps after it.

    Parameters
    ----------
    kept : int
        Tokens before the recent window that some head keeps of the prefill.
    popular : int
        Those of the kept tokens that most heads keep: the candidates for the vectors.
    chosen : tuple[int, ...]
        Positions of the tokens that receive a vector.
    held : int
        Decode steps in which most heads did not evict the leaving token.
    mattered : int
        Those of the held steps in which the leaving token was important to most heads.
    stored : int
        Those of the latter steps in which a vector was free.
    """

    kept: int
    popular: int
    chosen: tuple[int, ...]
    held: int
    mattered: int
    stored: int


def popularity(p: KelleParameters, trace: Trace, layer: int) -> Popularity:
    """Count popular tokens in a layer of SmolLM2."""
    block = real_layer(trace, layer, p)
    model, policy, inputs = KelleModel(p, block), p.eviction, block.quantised.copy()
    kept = [token for token in prefill(model, FIRST).kept if token.position < FIRST - p.window]
    positions = [token.position for token in kept]
    popular = {n for n in positions if positions.count(n) > policy.popular_heads}
    chosen = {token.position for token in kept if token.vector != KEPT}
    held = mattered = stored = 0
    for now in range(FIRST, FIRST + STEPS):
        step = model.step(now, block.quantised_states[now])
        inputs[now] = step.normalised
        keepers = [place.head for place in step.placements if place.evicted != now - p.window]
        matters = [head for head in keepers if model.eviction.heads[head].important]
        held += len(keepers) > policy.popular_heads
        mattered += len(matters) > policy.popular_heads
        if step.store:
            stored += 1
            model.inputs[step.store[1]] = inputs[step.store[0]]
    return Popularity(
        len(set(positions)), len(popular), tuple(sorted(chosen)), held, mattered, stored
    )


def main() -> None:
    """Print one row per layer."""
    p = entry_named("kelle").parameters("smollm2")
    trace = open_trace(text="prose", tokens=640, layers=LAYERS)
    print("| layer | popular of kept | vectors for | held | matter | stored |")
    print("|---|---|---|---|---|---|")
    for layer in LAYERS:
        found = popularity(p, trace, layer)
        places = ", ".join(map(str, found.chosen))
        print(
            f"| {layer} | {found.popular} of {found.kept} | {places} "
            f"| {found.held} | {found.mattered} | {found.stored} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
