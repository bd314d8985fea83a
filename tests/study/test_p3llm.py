"""P3-LLM's study: its tensors' formats are the golden ones, its verdicts count, it finishes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from golden.arith import bitmod_fp4, fp8_e4m3, fp8_s0e4m4, int4_asym
from golden.arith.float_values import codes
from golden.llm import open_trace
from golden.p3llm.scheme import PUBLISHED, Rope, Scheme, quantised, rounded_weights
from golden.p3llm.tensor_formats import Probabilities, asymmetric, bitmod, e4m3, probabilities
from golden.study import p3llm, p3llm_area, p3llm_outliers, p3llm_rivals
from golden.study.comparisons import Comparison, compared, verdicts
from golden.study.outcome import write_outcome
from golden.study.p3llm_grid import (
    BLOCK,
    dithered,
    dithered_weights,
    grid_results,
    q4_1_steps,
    relative_error,
)
from golden.study.p3llm_grid import table as grid_table
from golden.study.p3llm_keys import key_errors
from golden.study.p3llm_passes import SchemePasses, smooth_quant_shifts, window_losses
from golden.study.p3llm_speed import (
    SHAPES,
    Shape,
    drain_share,
    ecco_layer,
    hbm_pim_layer,
    mean_speedup,
    npu_layer,
    p3llm_layer,
    peak_ratio,
    pimba_layer,
)
from golden.study.p3llm_tables import published, speed_claims
from hdl.arith.fp8_s0e4m4 import Round
from hdl.catalog import entry_named
from hdl.paths import ROOT

TOKENS = 80


@pytest.fixture(scope="module")
def network() -> Any:
    """Return two layers of random weights whose inputs are whole groups."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(1)
    config = LlamaConfig(
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=192,
        vocab_size=97,
        initializer_range=0.2,
    )
    model = LlamaForCausalLM(config).eval()
    model.set_attn_implementation("eager")
    return model


@pytest.fixture(scope="module")
def text() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 97, (2, TOKENS))


def test_tensors_are_as_the_bit_exact_models_have_them() -> None:
    trace = open_trace(text="prose", tokens=640, layers=(14,))
    inputs = trace.linear(14, "down_proj").inputs[:64]
    code, scale = fp8_e4m3.quantise(inputs)
    expected = torch.tensor(code).view(torch.float8_e4m3fn).float() * torch.tensor(scale)
    assert torch.equal(e4m3(torch.tensor(inputs)), expected)

    value = trace.attention_trace(14, 0).v
    groups = int4_asym.quantise(value)
    numbers, scales = asymmetric(torch.tensor(value))
    assert np.array_equal(numbers * scales, groups.values())

    shares = trace.attention_trace(14, 0).probabilities[-64:]
    for target, rule in (
        (Probabilities.S0E4M4, Round.HALF_UP),
        (Probabilities.S0E4M4_RNE, Round.RNE),
        (Probabilities.S0E4M4_TRUNC, Round.TRUNC),
    ):
        bits = fp8_s0e4m4.decode(fp8_s0e4m4.encode(codes(shares), rule))
        got = probabilities(torch.tensor(shares), target)
        assert np.array_equal(got, bits.view(np.float16).astype(np.float32))

    weights = trace.linear(14, "q_proj").weight[:96]
    golden = bitmod_fp4.quantise(weights, group_size=64)
    steps, row = bitmod_fp4.quantise_scales(golden.scales)
    half_units = bitmod_fp4.decode(golden.codes, golden.selects[..., np.newaxis])
    expected = half_units / 2 * (steps.astype(np.float32) * row)[..., np.newaxis]
    got = bitmod(torch.tensor(weights), 64).numpy().reshape(expected.shape)
    # Errors of sets that are equal in one sum are not in another.
    differ = ~np.isclose(got, expected, rtol=1e-6, atol=0)
    assert differ.mean() < 1e-3


def test_a_scheme_without_formats_changes_nothing(network: Any, text: np.ndarray) -> None:
    before = window_losses(network, text[0])
    with quantised(network, Scheme()):
        assert np.allclose(window_losses(network, text[0]), before, atol=1e-5)
    assert np.array_equal(window_losses(network, text[0]), before)


def test_a_longer_text_does_not_change_what_was_decoded(network: Any, text: np.ndarray) -> None:
    """After the prompt, a decoded token depends only on earlier tokens; prefill does not."""
    for scheme, same in ((replace(PUBLISHED, prompt=30), True), (PUBLISHED, False)):
        with rounded_weights(network, scheme.weights, 64), quantised(network, scheme):
            long, short = (window_losses(network, text[0, :n]) for n in (TOKENS, 50))
        assert np.allclose(long[:49], short, atol=1e-4) == same


def test_keys_are_quantised_before_the_rotary_embedding(network: Any, text: np.ndarray) -> None:
    lanes = [Scheme(cache_bits=4, smoothing=True, rope=rope) for rope in Rope]
    lost = []
    for scheme in lanes:
        with quantised(network, scheme):
            lost.append(window_losses(network, text[0]))
    assert not np.allclose(*lost)


def test_many_comparisons_need_surer_differences() -> None:
    def one(sigmas: float) -> Comparison:
        return Comparison(name="n", difference=sigmas, error=1.0, blocks=60)

    assert verdicts([one(2.2)]) == ["yes"]
    assert verdicts([one(2.2), one(0.1), one(-4.0)]) == ["not measurable", "not measurable", "no"]
    lost = np.random.default_rng(3).random((2, 99))
    assert compared("same", lost, lost).probability == 1.0
    assert compared("more", lost, lost + 0.1).difference == pytest.approx(0.1)


def test_speeds_follow_from_the_paper_s_figures() -> None:
    assert peak_ratio() == 8
    # Sixteen sums of 32 bits from eight units, after 32 column reads.
    assert drain_share(1, 128, free_slots=False) == 0.25
    assert drain_share(2, 64, free_slots=False) == 1.0
    assert mean_speedup("HBM-PIM") > mean_speedup("HBM-PIM", drains=True) > 1


def test_speed_verdicts_rest_on_the_figures_with_drains() -> None:
    """Reading group sums is work of the formats: a figure without it decides nothing."""
    found = {claim.what: claim for claim in speed_claims()}
    for baseline, paper, verdict in (("HBM-PIM", 4.9, "no"), ("the NPU", 7.8, "yes")):
        claim = found[f"mean speedup over {baseline}"]
        drained = mean_speedup(baseline.removeprefix("the "), drains=True)
        assert claim.ours.startswith(f"{drained:.2f}; without drains")
        assert (abs(drained / paper - 1) <= 0.1) == (verdict == "yes")
        assert claim.holds == verdict
    for claim in found.values():
        first = float(claim.ours.split(";")[0])
        close = abs(first / float(claim.paper) - 1) <= 0.1
        assert claim.holds == ("yes" if close else "no")
    # The two ratios of peaks have no drains.
    assert sum("without drains" in claim.ours for claim in found.values()) == 5


SMALL = Shape(
    name="small", width=256, heads=4, kv_heads=2, feed_forward=512, post_rope=True, head_size=64
)
"""589,824 weights, 524,288 keys and as many values per request; two query heads share a key."""


def test_traffic_and_arithmetic_of_a_small_layer() -> None:
    """By hand: bytes and multiply-adds of two requests, in the systems' number of bits."""
    weights, cached = 256 * 64 * 12 + 3 * 256 * 512, 4096 * 2 * 64
    assert (SMALL.weights, SMALL.keys) == (weights, cached)
    products = 2 * (weights + 2 * 2 * cached)
    npu = npu_layer(SMALL, 2).total
    assert (npu.external, npu.internal, npu.outer, npu.inner) == (
        2 * weights + 2 * 2 * 2 * cached,
        0,
        products,
        0,
    )
    assert ecco_layer(SMALL, 2).total.external == npu.external / 4
    # Each of two requests reads the weights, each of two query heads the cache.
    pim = hbm_pim_layer(SMALL, 2).total
    assert (pim.internal, pim.external, pim.inner) == (
        2 * 2 * weights + 2 * 2 * 2 * 2 * cached,
        0,
        products,
    )
    pimba = pimba_layer(SMALL, 2, enhanced=True).total
    assert (pimba.internal, pimba.inner) == (pim.internal / 2, products)
    original = pimba_layer(SMALL, 2, enhanced=False)
    assert original.linear == npu_layer(SMALL, 2).linear
    assert original.attention == pimba_layer(SMALL, 2, enhanced=True).attention
    # Both requests and both heads share a column.
    own = p3llm_layer(SMALL, 2).total
    assert own.internal == weights * (4 + 8 / 128) / 8 + 2 * 2 * cached * (4 + 20 / 128) / 8
    assert (own.external, own.outer, own.inner) == (0, 0, products)
    # Above a batch of 8, linear layers move to the NPU.
    assert p3llm_layer(SMALL, 9).linear.outer == 9 * weights


def test_energy_of_a_column() -> None:
    """A column costs its share of a row, and what Pimba's simulator has for it."""
    column = 901.12 * 32 / 1024
    one = p3llm_rivals.Work(ns=0, external=32, outer=1)
    assert p3llm_rivals.memory_pj(one) == pytest.approx(919.04 + column)
    other = p3llm_rivals.Work(ns=0, internal=32, inner=4)
    assert p3llm_rivals.memory_pj(other) == pytest.approx(478.72 + column)
    elements = p3llm_rivals.PUBLISHED
    whole = one + other
    assert p3llm_rivals.energy_pj(whole, elements) == pytest.approx(
        919.04 + 478.72 + 2 * column + 5 * 0.69
    )
    assert p3llm_rivals.energy_pj(whole, elements, mixed=True) == pytest.approx(
        919.04 + 478.72 + 2 * column + 0.69 + 4 * 0.18
    )


def test_rivals_are_compared_as_in_figure_12() -> None:
    found = {claim.what: claim for claim in p3llm_rivals.claims()}
    assert found["mean speedup over Ecco"].holds == "yes"
    assert found["mean speedup over Pimba with 8-bit weights, batch 2 and 4"].holds == "no"
    # Attention decides at a batch of 64: twice as many query heads share a column.
    large = [p3llm_rivals.served(shape, 64) for shape in p3llm_rivals.LARGE]
    assert all(ecco.attention.ns > 1.9 * own.attention.ns for ecco, own in large)
    assert [shape.name for shape in p3llm_rivals.LARGE] == ["Llama-3.1-8B", "Llama-3.2-3B"]
    assert all(shape.group > 1 for shape in SHAPES if shape.post_rope)


def test_the_die_of_table_vii() -> None:
    """Both published rows imply the die, and netlists scale by feature size and DRAM process."""
    for row in (p3llm_area.HBM_PIM, p3llm_area.P3LLM):
        assert p3llm_area.share(row.mm2) == pytest.approx(row.share, abs=0.0015)
    unit = p3llm_area.Unit(name="one", um2=45 * 45)
    assert unit.mm2 == pytest.approx(20 * 20 * 10 * 32 / 1e6)
    half = p3llm_area.HALF
    assert half.relative_share(half) == p3llm_area.share(7.7)
    page = (ROOT / "docs" / "p3llm" / "pim" / "pim_compute_unit.md").read_text()
    assert f"| sized | {p3llm_area.OWN.um2:,} | 1,595 | {half.um2:,} |" in page
    assert f"| delay-optimised | 79,235 | 28,755 | 919 | {p3llm_area.SCALING} |" in page


def test_channels_with_outliers_are_found() -> None:
    """One channel of the second head is five times as large; smoothing removes it."""
    generator = torch.Generator().manual_seed(1)
    cache = torch.rand((2, 50, 8), generator=generator) + 1
    cache[1, 30, 3] = -10
    ratios = p3llm_outliers.relative(cache)
    assert [tuple(place) for place in np.argwhere(ratios > p3llm_outliers.OUTLIER)] == [(1, 3)]
    assert p3llm_outliers.heads_with_outliers(ratios) == 0.5
    largest = np.abs(cache.numpy()).max(1).astype(np.float64)
    assert ratios[1, 3] == pytest.approx(10 / np.sort(largest[1])[3:5].mean())


def test_keys_before_and_after_the_rotary_embedding(network: Any, text: np.ndarray) -> None:
    """Recomputed from the first layer's weights; the embedding keeps the length of each pair."""
    found = p3llm_outliers.channel_ratios(network, text[0], lambda what, steps: lambda: None)
    states = network.model.embed_tokens(torch.tensor(text[0]))
    layer = network.model.layers[0]
    with torch.inference_mode():
        here = layer.input_layernorm(states)
        keys = layer.self_attn.k_proj(here).unflatten(-1, (-1, 32)).transpose(0, 1)
        values = layer.self_attn.v_proj(here).unflatten(-1, (-1, 32)).transpose(0, 1)
    assert np.allclose(found["keys before RoPE"][:2], p3llm_outliers.relative(keys), rtol=1e-4)
    assert np.allclose(found["values"][:2], p3llm_outliers.relative(values), rtol=1e-4)
    assert not np.allclose(found["keys after RoPE"], found["keys before RoPE"], rtol=0.01)
    assert np.allclose(found["smoothed keys"], 1)
    assert {own.shape for own in found.values()} == {(4, 32)}


def test_table_iv_specifies_that_the_weights_differ() -> None:
    names = ("baseline", "+ key smoothing", "+ E4M3 activations")
    lost: dict[str, np.ndarray] = {name: np.ones((1, 66)) for name in names}
    rivals = {"Oaken": 2.0, "QuaRot": 1.5, "QServe": 0.5}
    table = published(lost, {name: np.full((1, 66), own) for name, own in rivals.items()})
    assert [row[:2] for row in table.rows] == [
        ("KV4, Oaken", "7.389"),
        ("KV4", "2.718"),
        ("W4A8KV4, QuaRot", "4.482"),
        ("W4A8KV4, QServe", "1.649"),
        ("W4A8KV4P8", "2.718"),
    ]
    assert "plain rounding in the row of W4A8KV4P8" in table.note and "apply AWQ" in table.note


def test_dithering_removes_the_files_grid_and_keeps_the_weights(network: Any) -> None:
    """Weights of the file are codes 0 to 15 of a block's step; dithered ones are evenly spread."""
    linear = open_trace(text="prose", tokens=640, layers=(14,)).linear(14, "q_proj")
    weight = torch.tensor(linear.weight)

    def codes_of(values: torch.Tensor) -> torch.Tensor:
        low = weight.unflatten(-1, (-1, BLOCK)).amin(-1, keepdim=True)
        return (values.unflatten(-1, (-1, BLOCK)) - low) / q4_1_steps(weight)

    stored = codes_of(weight)
    assert (stored - stored.round()).abs().max() < 0.01
    assert set(stored.round().unique().tolist()) == set(range(16))
    spread = dithered(weight, torch.Generator().manual_seed(1))
    off = codes_of(spread) - stored
    assert off.abs().max() <= 0.501 and off.mean().abs() < 0.002
    assert float(off.var()) == pytest.approx(1 / 12, rel=0.02)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with dithered_weights(network):
        name = "model.layers.0.mlp.up_proj.weight"
        assert not torch.equal(network.state_dict()[name], before[name])
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_relative_error_is_that_of_the_bit_exact_weights(network: Any, text: np.ndarray) -> None:
    weight = open_trace(text="prose", tokens=640, layers=(14,)).linear(14, "q_proj").weight[:96]
    golden = bitmod_fp4.quantise(weight, group_size=64)
    steps, row = bitmod_fp4.quantise_scales(golden.scales)
    half_units = bitmod_fp4.decode(golden.codes, golden.selects[..., np.newaxis])
    values = half_units / 2 * (steps.astype(np.float32) * row)[..., np.newaxis]
    off = values.reshape(weight.shape) - weight
    expected = np.sqrt((off**2).sum() / (weight**2).sum())
    assert relative_error(torch.tensor(weight), 64) == pytest.approx(expected, rel=1e-3)
    passes = SchemePasses(network, lambda what, steps: lambda: None)
    rows = grid_table(grid_results(passes, text, (32,))).rows
    # Other weights are another model: both perplexities differ.
    assert [row[:2] for row in rows] == [("as stored", "32"), ("dithered", "32")]
    assert rows[0][3] != rows[1][3] and rows[0][4] != rows[1][4]


def test_the_study_finishes(network: Any, text: np.ndarray, tmp_path: Path) -> None:
    passes = SchemePasses(network, lambda what, steps: lambda: None)
    passes._shifts = smooth_quant_shifts(network, text[1])
    keys = key_errors(network, passes.progress, {"one": text[0], "two": text[1]})
    grid = grid_results(passes, text, (32, 64))
    channels = p3llm_outliers.channel_ratios(network, text[0], passes.progress)
    rivals = p3llm.rival_losses(network, text, text[1], passes.progress)
    done = p3llm.outcome_of(passes, text, text[:1], keys, channels, grid, rivals)
    against = {claim.what.rpartition(" against ")[2] for claim in done.claims}
    assert against >= {"Oaken", "QuaRot", "QServe"}
    written = {file.name for file in write_outcome(done, tmp_path)}
    assert {"p3llm.md", "p3llm.json", "p3llm-keys.svg", "p3llm-roofline.svg"} <= written
    assert {claim.holds for claim in done.claims} <= {"yes", "no", "partly", "not measurable"}


def test_the_map_of_the_paper_lists_what_is_not_built() -> None:
    """Batches above 8 are refused in the page's words; the system finds no smoothing factors."""
    page = (ROOT / "docs" / "p3llm" / "README.md").read_text()
    with pytest.raises(ValueError, match="batch must be") as refused:
        replace(entry_named("p3llm").parameters("smollm2"), batch=9)
    assert f"**not built**: refused, `{refused.value}`" in page
    system = ROOT / "hdl" / "p3llm"
    files = [system / "p3llm.py", *system.glob("npu/*.py"), *system.glob("control/*.py")]
    uses = [file.name for file in files if "OBSERVE" in file.read_text()]
    assert uses == [] and "`OBSERVE`, which its own testbench uses" in page
