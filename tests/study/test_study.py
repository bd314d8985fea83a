"""The verb and what it writes: complete or not at all."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from golden.study import kelle, meadow, outcome, veda
from golden.study.outcome import Claim, Outcome, Plot, markdown, write_outcome
from golden.study.precision import quantised, rounded
from golden.study.subject import Subject
from systola.cli import main

HOLDS = {"yes", "partly", "no", "not measurable"}


@pytest.fixture
def subject(model: Any) -> Subject:
    windows = np.random.default_rng(2).integers(0, 97, (1, 160))
    return Subject(model=model, windows=windows, progress=lambda what, steps: lambda: None)


@pytest.mark.parametrize(
    ("name", "near"), [("keller", "kelle"), ("VEDA", "veda"), ("tensor", None)]
)
def test_an_unknown_paper_ends_with_2(name: str, near: str | None) -> None:
    result = CliRunner().invoke(main, ["study", "--paper", name])
    assert result.exit_code == 2
    assert f"PAPER must be one of kelle, lad, meadow, p3llm, veda, not '{name}'" in result.output
    assert (f"did you mean '{near}'" in result.output) == (near is not None)


@pytest.mark.parametrize(
    ("shares", "holds"),
    [([0.93, 0.86], "yes"), ([0.93, 0.859], "partly"), ([0.93, 0.86, 0.73, 0.61], "partly"),
     ([0.85, 0.6], "no")],
)  # fmt: skip
def test_a_share_that_remains_for_some_steps_is_partly(shares: list[float], holds: str) -> None:
    assert kelle.popular_verdict(shares) == holds


def test_another_context_ends_with_2() -> None:
    result = CliRunner().invoke(main, ["study", "--paper", "veda", "--context", "1000"])
    assert result.exit_code == 2
    assert "'1000' is not one of '256', '512', '1024', '2048', '4096'" in result.output


def test_kelle_finishes(subject: Subject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kelle, "BUDGETS", (40, 64))
    monkeypatch.setattr(kelle, "FLIPPED_BUDGET", 40)
    monkeypatch.setattr(kelle, "POPULAR_BUDGET", 40)
    monkeypatch.setattr(kelle, "PREFILL", 80)
    monkeypatch.setattr(kelle, "LATER", (20, 60))
    before = [weight.clone() for weight in subject.model.parameters()]
    check(kelle.study(subject, full=False), tmp_path)
    for old, new in zip(before, subject.model.parameters(), strict=True):
        assert bool((old == new).all())


def test_veda_finishes(subject: Subject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(veda, "BUDGETS", (40, 64))
    monkeypatch.setattr(veda, "SENSITIVE", 40)
    monkeypatch.setattr(veda, "BUILD", tmp_path / "build")
    check(veda.study(subject, full=False), tmp_path)


def test_meadow_finishes(subject: Subject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(meadow, "BLOCK", 40)
    monkeypatch.setattr(meadow, "CHUNKS", (1, 2))
    monkeypatch.setattr(meadow, "PACKETS", (64, 128))
    before = [weight.clone() for weight in subject.model.parameters()]
    check(meadow.study(subject, full=False), tmp_path)
    for old, new in zip(before, subject.model.parameters(), strict=True):
        assert bool((old == new).all())


def check(done: Outcome, folder: Path) -> None:
    written = {file.name for file in write_outcome(done, folder)}
    plots = {f"{done.paper}-{plot.stem}.{kind}" for plot in done.plots for kind in ("svg", "png")}
    assert written == plots | {f"{done.paper}.json", f"{done.paper}.md"}
    content = json.loads((folder / f"{done.paper}.json").read_text())
    assert {claim["holds"] for claim in content["claims"]} <= HOLDS
    assert {file.name for file in folder.iterdir()} == written


def test_interrupted_study_preserves_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = Claim(what="w", paper="1", ours="2", holds="no")
    plot = Plot(stem="p", title="t", x="x", y="y", curves={"c": ([1, 2], [3, 4])})
    done = Outcome(paper="veda", settings={"tokens": 1}, claims=[claim], plots=[plot])
    write_outcome(done, tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def interrupt(_: Outcome) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(outcome, "markdown", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_outcome(done, tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_the_page_holds_every_claim() -> None:
    claim = Claim(what="better", paper="5.7", ours="6.1", holds="no")
    page = markdown(Outcome(paper="kelle", settings={}, claims=[claim]))
    assert "| better | 5.7 | 6.1 | no |" in page


def test_few_bits_are_few_levels(model: Any) -> None:
    weight = model.model.layers[0].mlp.up_proj.weight
    before = weight.detach().clone()
    with quantised(model, weight_bits=4, activation_bits=8, cache_bits=8):
        assert max(len(row.unique()) for row in weight) <= 15
    assert bool((weight == before).all())
    assert bool((rounded(before, 8) - before).abs().max() <= before.abs().max() / 127 / 2 + 1e-6)
