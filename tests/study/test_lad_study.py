"""The study of LAD: Equation 7, words, ROUGE's inputs, and a whole pass on a small model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.llm.model import SMOLLM2
from golden.study.lad_cycles import Pipeline, Sizes
from golden.study.lad_fidelity import scheme
from golden.study.lad_generation import generate
from golden.study.lad_locality import Source, locality
from golden.study.lad_machines import machines
from golden.study.lad_measured import Laboratory
from golden.study.lad_rivals import HeavyHitters
from golden.study.lad_traffic import Decoding, traffic_table
from golden.study.lad_traffic import real as real_group
from golden.study.lad_traffic import synthetic as synthetic_head
from golden.study.lad_union import group_steps, rows_of
from hdl.lad.catalog import SMOLLM2_TILE


def sizes(**counts: float) -> Sizes:
    """Return one step's sets."""
    return Sizes(**{name: np.array([count]) for name, count in counts.items()})  # pyright: ignore[reportArgumentType]


EXAMPLE = sizes(length=4096.0, centres=300.0, exact=80.0, active=300.0, changed=2.0, hits=240.0)


def quiet(what: str, steps: int) -> Callable[[], None]:
    """Show no progress."""
    return lambda: None


def test_equation_7_of_an_example() -> None:
    terms = {name: float(term[0]) for name, term in Pipeline().formula(EXAMPLE).items()}
    assert terms == pytest.approx({"EAS": 356, "APID": 341.33, "MD": 150, "AC": 230}, rel=1e-3)


def test_ceilings_cost_what_the_formula_hides() -> None:
    """U = 2 takes as many cycles as 3; lanes that share out columns win most of it back."""
    pipeline = Pipeline()
    assert pipeline.scheduled(EXAMPLE)["AC"][0] == 43 + 2 + 100 + 131
    assert pipeline.shared_columns(EXAMPLE)[0] == 43 + 2 + 100 + 86 + 2
    assert pipeline.scheduled(EXAMPLE)["EAS"][0] == 150 + max(128, 151) + 40


def test_words_of_an_example() -> None:
    words = {name: float(part[0]) for name, part in Pipeline().words(EXAMPLE).items()}
    assert words["A to F"] == 2 * 16770
    assert words["key centres"] == 300 * 128
    assert words["keys and values of J"] == 2 * 300 * 128
    assert words["G"] == 2 * 4 * 4096
    assert float(Pipeline().full_attention(EXAMPLE)[0]) == 2 * 128 * 4097
    fetched = sum(words.values())
    assert Pipeline().fetch(EXAMPLE, prefetch=False)[0] == pytest.approx(fetched / 128)
    saved = 2 * 128 * 240 / 128
    assert Pipeline().fetch(EXAMPLE, prefetch=True)[0] == pytest.approx(fetched / 128 - saved)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size"),
    ((SMOLLM2.heads, SMOLLM2.kv_heads, SMOLLM2.head_size), (32, 32, 128)),
    ids=("SmolLM2", "LLaMA2-7B"),
)
def test_full_attention_moves_the_cache_once_per_key_value_head(
    heads: int, kv_heads: int, size: int
) -> None:
    """Words of a step are the elements of a cache [kv_heads, n, K and V, d] and of one new row."""
    n = int(EXAMPLE.length[0])
    cache = np.broadcast_to(np.int8(0), (kv_heads, n, 2, size))
    words = cache.size + cache[:, 0].size
    pipeline = Pipeline(head_size=size, shared=heads // kv_heads)
    assert float(pipeline.full_attention(EXAMPLE)[0]) * heads == words
    per_head = float(pipeline.full_attention_per_head(EXAMPLE)[0])
    assert per_head * kv_heads == words
    # The ideal machine and KV4 are bound by the grouped words; LAD's own words are per head.
    ideal = max(2 * n / 7, words / heads / 128)
    assert float(pipeline.ideal(EXAMPLE)[0]) == pytest.approx(ideal)
    alone = Pipeline(head_size=size)
    own, expected = pipeline.words(EXAMPLE), alone.words(EXAMPLE)
    assert {name: float(part[0]) for name, part in own.items()} == {
        name: float(part[0]) for name, part in expected.items()
    }


def test_rivals_move_less_than_the_ideal_accelerator() -> None:
    pipeline = Pipeline()
    ideal, four, heavy = (
        float(cycles(EXAMPLE)[0])
        for cycles in (pipeline.ideal, pipeline.four_bits, pipeline.heavy_hitters)
    )
    assert ideal == pytest.approx(2 * 4097)
    assert heavy < four < ideal


def test_a_pass_is_measured_once(model: Any, windows: np.ndarray, tmp_path: Path) -> None:
    told: list[str] = []

    def progress(what: str, steps: int) -> Callable[[], None]:
        told.append(what)
        return lambda: None

    laboratory = Laboratory(model, tmp_path, "small", progress)
    first, again = (laboratory.predictions("pass", scheme(12), windows[0]) for _ in range(2))
    assert told == ["pass"]
    assert np.array_equal(first.losses, again.losses)
    exact = laboratory.predictions("original", None, windows[0])
    assert np.abs(first.losses - exact.losses).max() < 0.5
    assert (first.choices == exact.choices).mean() > 0.8
    assert first.nonpositive == 0


def test_tables_of_a_small_model_s_trace(model: Any, windows: np.ndarray, tmp_path: Path) -> None:
    laboratory = Laboratory(model, tmp_path, "small", quiet)
    trace = laboratory.trace("trace", scheme(5, centres=True), windows[0], (32, 64))
    source = Source(name="small", intervals=5, trace=trace, lengths=(32, 64), head_size=8)
    assert trace.shares.sum(-1) == pytest.approx(1)
    means = source.means(64)
    assert means["active"] >= 16
    assert means["changed"] >= 49 / 64
    tables, claims, _plot = locality([source])
    assert [len(table.rows) for table in tables] == [2, 2]
    more, speed, _plots = machines([source])
    assert all(len(row) == len(table.columns) for table in (*tables, *more) for row in table.rows)
    assert {claim.holds for claim in (*claims, *speed)} <= {"yes", "no"}


def test_generation_is_the_model_s_own(model: Any, windows: np.ndarray) -> None:
    """Without an attention of ours; and a rival with room for all generates the same."""
    import torch

    prompts = windows[:, :40].astype(np.int64)
    tokens = generate(model, prompts, 12)
    with torch.inference_mode():
        expected = model.generate(
            torch.tensor(prompts), max_new_tokens=12, min_new_tokens=12, do_sample=False
        )
    assert np.array_equal(tokens, expected[:, 40:].numpy())
    roomy = HeavyHitters(heavy=0.5, recent=0.5)
    assert np.array_equal(generate(model, prompts, 1, roomy), tokens[:, :1])


def rows_by_machine(decoding: Decoding) -> dict[str, dict[str, str]]:
    """Return the rows of the table of words by machine, cells by column."""
    table = traffic_table([decoding])
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return {row["machine"]: row for row in rows}


def number(cell: str) -> float:
    return float(cell.replace(",", "").removesuffix("%"))


def test_words_at_the_streams_of_a_short_decoding() -> None:
    """A key is read for each centre and each of M; what is fetched ahead is read once more."""
    rows = rows_by_machine(synthetic_head(40))
    assert list(rows) == ["one head", "one head, last J fetched ahead", "full attention, grouped"]
    alone, ahead, full = rows.values()
    size = 128
    assert alone["appends"] == full["appends"] == f"{2 * size}"
    assert alone["A to F read"] == alone["A to F written"] == f"{size**2 + 3 * size + 2:,}"
    assert number(ahead["K, V of J"]) > number(alone["K, V of J"])
    assert full["all"] == f"{2 * size * 21.5:,.0f}"
    assert alone["of grouped full attention"] == alone["of full attention per query head"]


def test_words_of_a_group_have_grouped_attention_as_reference() -> None:
    """SmolLM2's three query heads of one key/value head; both references counted step by step."""
    steps, size, heads = 70, 64, 3
    rows = rows_by_machine(real_group(steps, 14))
    last = range(steps - 63, steps + 1)
    grouped = sum(2 * size * n + 2 * size for n in last) / 64 / heads
    assert rows["full attention, grouped"]["all"] == f"{grouped:,.0f}"
    assert rows["full attention, per query head"]["all"] == f"{grouped * heads:,.0f}"
    for row in rows.values():
        words = number(row["all"])
        assert number(row["of grouped full attention"]) == pytest.approx(
            100 * words / grouped, abs=0.2
        )
    lad = rows["group of 3, their last J fetched ahead"]
    found = rows_of(SMOLLM2_TILE, group_steps(SMOLLM2_TILE, steps, 14, 0))
    assert number(lad["K, V of J"]) == pytest.approx(2 * size * found["union, ahead"], abs=0.5)
    assert number(lad["K, V of J"]) < number(rows["one head"]["K, V of J"])


def test_a_group_s_union_by_sets_is_the_model_s() -> None:
    """What the tile's model counts row by row is what Python's sets have in common."""
    p = SMOLLM2_TILE
    found = rows_of(p, group_steps(p, 70, 14, 0))
    assert found["model"] == found["union, ahead"]
    assert found["union"] < found["J"] < found["alone, ahead"]
    assert found["union, ahead"] < found["alone, ahead"]
