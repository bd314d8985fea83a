"""A layer of OPT-125M's dimensions on the published accelerator: a prefill, then a decode step.

``python -m testbenches.meadow.published_layer`` generates random weights, packs them, runs the
compiled model of the accelerator of `model_parameters`, and compares all results.
"""

import tempfile
from pathlib import Path

import numpy as np

from golden.meadow.layer_quantisation import quantised_layer
from hdl.catalog import entry_named
from hdl.meadow.parameters import MeadowParameters
from testbenches.harness import Harness
from testbenches.meadow.checked_program import LayerProgram
from testbenches.meadow.long_program import run_program
from testbenches.meadow.published_models import model_parameters
from testbenches.meadow.random_layers import STATE_STEP, of_kind, random_weights

FREEDOM = 2.4
"""Degrees of freedom with which every matrix has fewer unique pairs than the table has entries."""


def program_of(p: MeadowParameters, tokens: int) -> tuple[LayerProgram, list[int]]:
    """Return a prefill of `tokens` tokens and a decode step, and the ideal cycles of both."""
    rng = np.random.default_rng(125)
    states = rng.normal(0, 3, (tokens + 1, p.hidden_size))
    real = of_kind(random_weights(p, rng, FREEDOM), p, rng)
    layer = quantised_layer(real, states, p, STATE_STEP)[0]
    raw = np.rint(states / STATE_STEP).astype(np.int64)
    program, work = LayerProgram(p, [layer], skip=True), [0]
    for block in (raw[:tokens], raw[tokens:]):
        program.add_block(block, [0])
        program.end()
        work.append(sum(program.traffic.ideal))
    return program, np.diff(work).tolist()


def run(p: MeadowParameters, tokens: int) -> None:
    """Print cycles, ideal cycles, bytes, and the number of compared values."""
    harness = Harness.compiled(entry_named("meadow"), p)
    program, work = program_of(p, tokens)
    traffic = program.traffic
    with tempfile.TemporaryDirectory() as folder:
        made = run_program(program, harness, Path(folder), progress=30)
    print(f"cycles of {tokens} tokens and of the next: {made.cycles}; ideal cycles: {work}")
    print(f"bytes {made.moved_bytes:,}, with unpacked weights", end=" ")
    print(f"{made.moved_bytes - traffic.fetched + traffic.weights:,}; {traffic.moved}")
    print(f"values compared: {made.compared:,}, all equal")


if __name__ == "__main__":
    run(model_parameters("OPT-125M"), 24)
