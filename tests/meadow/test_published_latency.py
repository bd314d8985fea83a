"""Latency of published models: bytes and cycles of the instructions, and the page's table."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from golden.meadow.packing.weight_packer import Level
from golden.study.meadow_claims import TBT, TTFT
from golden.study.meadow_latency import MODELS, Board, Work
from hdl.catalog import entry_named
from hdl.meadow.parameters import MeadowParameters
from hdl.paths import ROOT
from testbenches.harness import Harness
from testbenches.meadow.checked_program import LayerProgram
from testbenches.meadow.long_program import run_program
from testbenches.meadow.published_latency import (
    LAYERS,
    instruction_names,
    latency,
    layer_work,
    measure,
    rows,
    settings_of,
)
from testbenches.meadow.random_layers import random_layers

PAGE = (ROOT / "docs" / "meadow" / "study.md").read_text()
P: MeadowParameters = replace(entry_named("meadow").parameters("tiny_opt"), probability_bits=8)


@pytest.mark.parametrize("model", LAYERS)
@pytest.mark.parametrize(("cached", "tokens"), [(0, 64), (0, 512), (575, 1)])
def test_bytes_are_those_of_the_equations(model: str, cached: int, tokens: int) -> None:
    """The paper's bytes of weights, keys, values, scores and probabilities, and a few others."""
    p, own = settings_of(model), MODELS[model]
    d, f, context = own.width, own.feed_forward, cached + tokens
    biases = 3 * (5 * d + f)
    norms, exponentials = 3 * 4 * d, 3 * 256
    states = 2 * 3 * tokens * d
    others = biases + norms + exponentials + states + 2 * tokens * d + 2 * context * d
    pipelined = layer_work(p, cached=cached, tokens=tokens, gemm=False)
    assert sum(one.weights for one in pipelined) == 4 * d * d + 2 * d * f
    assert sum(one.others for one in pipelined) == others
    # The baseline writes and reads scores and probabilities, in words of 64 bytes.
    products = layer_work(p, cached=cached, tokens=tokens, gemm=True)
    row = -(-context // 64) * 64
    assert sum(one.weights for one in products) == 4 * d * d + 2 * d * f
    rest = sum(one.others for one in products) - others
    assert rest == 4 * own.heads * tokens * row


def test_compute_of_gemm_is_that_of_the_elements() -> None:
    """Of 84 + 12 elements, 72 compute the linear layers; a group has twelve tokens."""
    p, own = settings_of("OPT-125M"), MODELS["OPT-125M"]
    work = Work(model=own, tokens=504, context=504)
    board = Board(gigabits=1000, elements=96)
    ideal = sum(step.cycles for step in work.linear(board))
    found = layer_work(p, cached=0, tokens=504, gemm=False)
    # Norms take a cycle per word of hidden states; attention is one instruction.
    linear = [one.cycles for one in found if one.weights][:2]
    linear += [one.cycles for one in found if one.weights][3:]
    assert sum(linear) * 72 == pytest.approx(ideal * 96)


@pytest.mark.parametrize(("cached", "tokens"), [(0, 12), (12, 1)])
def test_calculated_cycles_are_near_those_of_the_verilog(
    cached: int, tokens: int, tmp_path: Path
) -> None:
    """At a bandwidth that limits all instructions; the bench compares all results."""
    rng = np.random.default_rng(3)
    (layer,), states = random_layers(P, rng, 1)
    harness = Harness.compiled(entry_named("meadow"), P)
    keys, values = rng.integers(-127, 128, (2, P.kv_heads, cached, P.head_size))
    for bits in (2, 4):
        cycles = []
        for gemm in (True, False):
            program = LayerProgram(P, [layer], level=Level.RAW, skip=True)
            program.fill_cache([(keys, values)])
            program.add_block(states[:tokens], [0], gemm=int(gemm))
            program.end()
            traffic = program.traffic
            assert sum(map(sum, traffic.instructions)) == sum(traffic.moved.values())
            run = run_program(program, harness, tmp_path, bits=bits)
            work = layer_work(P, cached=cached, tokens=tokens, gemm=gemm)
            assert sum(one.weights + one.others for one in work) == run.moved_bytes
            cycles.append(run.cycles[0])
            # Weights are fetched during the instructions before, so that the sum is no bound.
            assert latency(work, bits) == pytest.approx(cycles[-1], rel=0.03)
        assert cycles[0] > cycles[1]


@pytest.mark.full
def test_layer_of_opt_1_3b_equals_the_golden_model(capsys: pytest.CaptureFixture[str]) -> None:
    """Some 100 million weights through one lane, raw and packed; the run compares all results."""
    p = settings_of("OPT-1.3B", lanes=1, tokens=64, words=1 << 14)
    measure(p, cached=15, tokens=1, bandwidths=[0])
    found = capsys.readouterr().out.splitlines()
    assert sum("values equal" in line for line in found) == 2
    # Each of the two programs has a table with a row per instruction.
    names = [*instruction_names(p, gemm=True), *instruction_names(p, gemm=False)]
    rows = [line for line in found if line.startswith("|") and "---" not in line]
    assert [row.split(" | ")[0] for row in rows if "instruction" not in row] == [
        f"| {name}" for name in names
    ]


def test_page_has_the_calculated_table() -> None:
    for what, gigabits, baseline, own in rows():
        cells = [f"{each:,.1f}; {baseline / each:.2f}" for each in own]
        start = f"| {what} | {gigabits} | {baseline:,.1f} | {' | '.join(cells)} |"
        assert start in PAGE, start


def test_page_has_the_gains_next_to_the_published_ones() -> None:
    """Of Figures 6 and 7, the smaller of two gains first."""
    found: dict[str, list[list[float]]] = {}
    for what, gigabits, baseline, own in rows():
        phase, model = what.split()[0], what.split(", ")[1]
        gains = [baseline / each for each in own]
        found.setdefault(f"{phase}, {model}, {gigabits} Gb/s", []).append(gains)
    for phase, published in (("TTFT", TTFT), ("TBT", TBT)):
        for (model, gigabits), (low, high) in published.items():
            name = f"{phase}, {model}, {gigabits} Gb/s"
            pairs = [sorted(gains) for gains in zip(*found[name], strict=True)]
            cells = " | ".join(f"{first:.2f} to {second:.2f}" for first, second in pairs)
            start = f"| {name} | {low:g} to {high:g} | "
            (line,) = (line for line in PAGE.splitlines() if line.startswith(start))
            # The other line of that name has the latency model with assumed ratios.
            assert f"| {cells} |" in line
