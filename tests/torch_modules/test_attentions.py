"""The attention modules equal the numpy models bit for bit, and refuse what they cannot take."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from golden.arith.float_values import codes, values
from golden.kelle.decoder_layer import real_layer
from golden.kelle.eviction.prefill import prefill
from golden.kelle.kelle import KelleModel
from golden.lad.lad_tile import LadTile
from golden.llm import Trace, open_trace
from golden.p3llm.p3llm import Cache, attention
from golden.p3llm.quantisers.key_smoothing import smoothing_factors
from golden.policies.agreement import LAYERS, POLICIES, TOKENS
from golden.policies.cache import Cache as PolicyCache
from golden.policies.protocol import Policy, Query
from golden.policies.registry import BUILT_IN
from golden.policies.scores import Aerp, Source
from golden.policies.voting import Voting
from golden.torch_modules.attentions import (
    ExactAttention,
    Form,
    KelleAttention,
    LadAttention,
    P3llmAttention,
    PolicyAttention,
    VedaAttention,
)
from golden.veda.veda import LayerModel
from golden.veda.voting.vote_threshold import ThresholdCoefficients
from hdl.catalog import entry_named
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from hdl.lad.catalog import SMOLLM2_TILE, TINY_TILE
from hdl.lad.parameters import LadTileParameters
from hdl.p3llm.parameters import P3llmParameters
from hdl.veda.parameters import VedaParameters

Heads = tuple[Tensor, Tensor, Tensor]
LAYER, SHORT = LAYERS[1], 40


def preset(top: str, name: str) -> Any:
    return entry_named(top).presets[name]


def random_heads(shape: tuple[int, int, int, int], seed: int, batch: int = 1) -> Heads:
    """Return queries, keys and values of heads, kv_heads, tokens, head_size; one key attracts."""
    heads, kv_heads, tokens, size = shape
    rng = np.random.default_rng(seed)
    query, key, value = (
        rng.normal(0, 1.5, (batch, count, tokens, size)).astype(np.float32)
        for count in (heads, kv_heads, kv_heads)
    )
    key[:, :, 0] += query[:, :kv_heads].mean(axis=2)
    return torch.from_numpy(query), torch.from_numpy(key), torch.from_numpy(value)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def real_heads(trace: Trace, tokens: int = SHORT) -> Heads:
    """Return queries, keys and values of a layer of SmolLM2."""
    own = [trace.attention_trace(LAYER, head) for head in range(trace.heads)]
    group = trace.heads // trace.kv_heads
    parts = (
        [one.q for one in own],
        [one.k for one in own[::group]],
        [one.v for one in own[::group]],
    )
    query, key, value = (torch.tensor(np.stack(part)[None, :, :tokens]) for part in parts)
    return query, key, value


def arrays(heads: Heads) -> list[NDArray[np.float64]]:
    return [part[0].double().numpy() for part in heads]


def assert_equal(found: Tensor, wanted: NDArray[Any]) -> None:
    """Compare the outputs of one sequence, [heads, tokens, head_size], bit for bit."""
    np.testing.assert_array_equal(found[0].numpy(), wanted.astype(np.float32))


def veda_outputs(
    heads: Heads, p: VedaParameters, budget: int, reserved: int, **options: Any
) -> tuple[NDArray[np.float64], int]:
    """Decode with the model of a layer; return the outputs, and the number of evictions."""
    query, key, value = arrays(heads)
    layer = LayerModel(p, **options)
    query = query * (p.head_size**-0.5 * float(np.log2(np.e)))
    rows, cached, evicted = [], 0, 0
    for now in range(query.shape[1]):
        cached += 1
        full = cached == budget
        step = layer.attend(
            *(codes(part[:, now]) for part in (query, key, value)),
            vote=now >= reserved,
            evictions=int(full),
        )
        cached -= full
        evicted += full
        rows.append(values(step.outputs).reshape(-1, p.head_size)[: p.heads])
    return np.stack(rows, axis=1), evicted


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", ["tiny", "tiny_wide", "tiny_two_copies"])
def test_veda_equals_its_layer(name: str, seed: int) -> None:
    p: VedaParameters = preset("veda", name)
    heads = random_heads((p.heads, p.kv_heads, 24, p.head_size), seed)
    wanted, evicted = veda_outputs(heads, p, 10, 3)
    assert evicted == 24 - 9
    assert_equal(VedaAttention(p, budget=10, reserved=3)(*heads), wanted)


def test_veda_equals_its_layer_on_real_tensors(trace: Trace) -> None:
    p: VedaParameters = preset("veda", "smollm2")
    heads = real_heads(trace)
    wanted, _evicted = veda_outputs(heads, p, 24, 8)
    assert_equal(VedaAttention(p, budget=24, reserved=8)(*heads), wanted)


def test_veda_votes_with_the_given_coefficients() -> None:
    p: VedaParameters = preset("veda", "tiny_wide")
    heads = random_heads((p.heads, p.kv_heads, 24, p.head_size), 4)
    other = ThresholdCoefficients(2048, 0)
    wanted, _evicted = veda_outputs(heads, p, 8, 2, coefficients=other)
    assert_equal(VedaAttention(p, budget=8, reserved=2, coefficients=other)(*heads), wanted)
    assert not np.array_equal(wanted, veda_outputs(heads, p, 8, 2)[0])


def lad_outputs(heads: Heads, p: LadTileParameters) -> NDArray[np.float64]:
    query, key, value = arrays(heads)
    tile = LadTile(parameters=p)
    group = len(query) // len(key)
    rows = [
        tile.step(
            head,
            codes(query[head, now] * p.vector.head_size**-0.5),
            codes(key[head // group, now]),
            codes(value[head // group, now]),
        ).output
        for now in range(query.shape[1])
        for head in range(len(query))
    ]
    return values(np.stack(rows)).reshape(query.shape[1], *query[:, 0].shape).swapaxes(0, 1)


@pytest.mark.parametrize("seed", [1, 2])
def test_lad_equals_its_tile(seed: int) -> None:
    p = replace(TINY_TILE, stored_heads=4)
    heads = random_heads((4, 2, p.slots, p.vector.head_size), seed)
    module = LadAttention(TINY_TILE, heads=4, kv_heads=2)
    assert_equal(module(*heads), lad_outputs(heads, p))


def test_lad_equals_its_tile_on_real_tensors(trace: Trace) -> None:
    # The tile of the model's preset shares rows between the query heads of a group.
    heads = real_heads(trace, 24)
    module = LadAttention(SMOLLM2_TILE, heads=9, kv_heads=3)
    assert_equal(module(*heads), lad_outputs(heads, SMOLLM2_TILE))


class WatchedModel(KelleModel):
    """A layer that records its queries, keys, values and attention in integers."""

    def step(self, now: int, state: NDArray[np.int64]) -> Any:
        x = self.normalise(state)[np.newaxis]
        keys, vectors = self.keys_values(x, np.array([now]))
        self.heads = self.queries(x, np.array([now]))[0], keys[0], vectors[0]
        return super().step(now, state)

    def project(self, operation: Operation, vectors: NDArray[np.int64]) -> NDArray[np.int64]:
        if operation is Operation.OUTPUT:
            self.context = vectors[0]
        return super().project(operation, vectors)


def kelle_case(
    trace: Trace, p: KelleParameters, tokens: int
) -> tuple[Heads, dict[str, Tensor], list[NDArray[Any]], int]:
    """Decode a whole real layer; return its heads, steps, attention, and recomputed tokens."""
    layer = real_layer(trace, LAYER, p)
    model = WatchedModel(p, layer)
    prefill(model, 1)
    first, origin = layer.quantised[:1], np.array([0])
    keys, vectors = model.keys_values(first, origin)
    heads = [(model.queries(first, origin)[0], keys[0], vectors[0])]
    contexts, inputs, stored = [], {0: layer.quantised[0]}, 0
    for now in range(1, tokens):
        step = model.step(now, layer.quantised_states[now])
        inputs[now] = step.normalised
        if step.store:
            model.inputs[step.store[1]] = inputs[step.store[0]]
            stored += 1
        heads.append(model.heads)
        contexts.append(model.context.reshape(p.heads, p.head_size))
    names = (Operation.QUERY, Operation.KEY, Operation.VALUE)
    state = {
        f"{which.name.lower()}_step": torch.tensor(layer.steps[which], dtype=torch.float64)
        for which in names
    }
    query, key, value = (
        torch.from_numpy(
            (np.stack(part, axis=1)[np.newaxis] * layer.steps[which]).astype(np.float32)
        )
        for part, which in zip(zip(*heads, strict=True), names, strict=True)
    )
    return (query, key, value), state, contexts, stored


@pytest.mark.parametrize("name", ["tiny", "smollm2"])
def test_kelle_equals_a_whole_decoder_layer(trace: Trace, name: str) -> None:
    p: KelleParameters = preset("kelle", name)
    tokens = 56
    if name == "smollm2":
        p = replace(p, slots=32, window=16, sinks=4)
    heads, state, contexts, stored = kelle_case(trace, p, tokens)
    assert stored > 0, "no token was recomputed from a stored vector"
    module = KelleAttention(p)
    module.load_state_dict(state)
    found = module(*heads, scaling=1.0)
    wanted = np.stack(contexts, axis=1) * float(state["value_step"])
    np.testing.assert_array_equal(found[0, :, 1:].numpy(), wanted.astype(np.float32))
    group = p.heads // p.kv_heads
    assert torch.equal(found[0, :, 0], heads[2][0, :, 0].repeat_interleave(group, 0))


def test_kelle_is_calibrated_to_the_largest_magnitudes() -> None:
    p: KelleParameters = preset("kelle", "tiny")
    heads = random_heads((p.heads, p.kv_heads, 12, p.head_size), 1)
    module = KelleAttention(p)
    module.calibrate(*heads)
    steps = [float(module.state_dict()[name]) for name in KelleAttention.STEPS]
    largest = [float(part.abs().max()) for part in heads]
    factors = (1.5 * p.head_size**-0.5, 1.5, 1.0)
    for step, most, factor in zip(steps, largest, factors, strict=True):
        assert step == pytest.approx(most * factor / 32767, rel=1e-6)
    # With a cache for all tokens, the attention is that of float32 within the steps.
    roomy = KelleAttention(replace(p, slots=16, words=256))
    roomy.load_state_dict(module.state_dict())
    exact = torch.nn.functional.scaled_dot_product_attention(
        *heads, is_causal=True, enable_gqa=True
    )
    assert (roomy(*heads) - exact).abs().max() < 0.02


def p3llm_outputs(heads: Heads, factors: NDArray[np.uint16], p: P3llmParameters) -> Any:
    """Attend token by token, in the order of a decode."""
    query, key, value = (codes(part) for part in arrays(heads))
    cache, rows = Cache.empty(factors), []
    for now in range(query.shape[1]):
        cache = cache.appended(key[:, now], value[:, now])
        rows.append(values(codes(attention(query[:, now], cache, p))))
    return np.stack(rows, axis=1)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_p3llm_equals_its_decode_steps(seed: int) -> None:
    p: P3llmParameters = preset("p3llm", "tiny")
    heads = random_heads((p.heads, p.kv_heads, 20, p.head_size), seed)
    module = P3llmAttention(p)
    module.calibrate(heads[1][:, :, :9])
    factors = smoothing_factors(codes(heads[1][0, :, :9].numpy()))
    assert not np.all(factors == factors[0, 0, 0])
    assert_equal(module(*heads), p3llm_outputs(heads, factors, p))


def test_p3llm_equals_its_decode_steps_on_real_tensors(trace: Trace) -> None:
    p: P3llmParameters = preset("p3llm", "smollm2")
    heads = real_heads(trace, 24)
    module = P3llmAttention(p)
    module.calibrate(heads[1])
    factors = smoothing_factors(codes(heads[1][0].numpy()))
    assert_equal(module(*heads), p3llm_outputs(heads, factors, p))


def policy_outputs(heads: Heads, policy: Policy, decide: Callable[[Any], Any]) -> Any:
    """Attend query by query to the tokens that a policy keeps, in float64."""
    query, key, value = arrays(heads)
    count, tokens = query.shape[:2]
    group = count // len(key)
    scores = np.full((count, tokens, tokens), -np.inf, np.float32)
    for head in range(count):
        for now in range(tokens):
            own = key[head // group, : now + 1] @ query[head, now] * query.shape[-1] ** -0.5
            scores[head, now, : now + 1] = own
    found = np.zeros(query.shape)
    for cache in np.split(np.arange(count), policy.unit.caches(count, len(key))):
        for now, positions in enumerate(decide(scores[cache])):
            for head in cache:
                raw = scores[head, now, positions].astype(np.float64)
                powers = np.exp(raw - raw.max())
                found[head, now] = powers / powers.sum() @ value[head // group, positions]
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_policies_equal_their_bit_exact_forms_on_real_tensors(trace: Trace, name: str) -> None:
    policy = replace(POLICIES[name], budget=36)
    heads = real_heads(trace, 64)
    module = PolicyAttention(policy)
    assert module.form is Form.EXACT
    # Both round sums of float64 to float32 once; their order is another.
    found = module(*heads)[0].double().numpy()
    wanted = policy_outputs(heads, policy, policy.exact_form)
    np.testing.assert_allclose(found, wanted, rtol=2**-22, atol=1e-9)
    full = policy_outputs(heads, policy, lambda scores: map(np.arange, range(1, 65)))
    assert np.abs(found - full).max() > 1e-3


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "full_cache"])
def test_policies_equal_their_second_sources(name: str, seed: int) -> None:
    policy = replace(BUILT_IN[name], budget=40)
    heads = random_heads((6, 2, 56, 8), seed)
    found = PolicyAttention(policy, Form.DOUBLE)(*heads)[0].double().numpy()
    wanted = policy_outputs(heads, policy, policy.second_source)
    np.testing.assert_allclose(found, wanted, rtol=2**-22, atol=1e-9)


def test_fast_form_attends_to_the_slots_of_the_cache() -> None:
    policy = Aerp(budget=20, source=Source.INTEGER)
    heads = random_heads((6, 2, 48, 8), 5)
    module = PolicyAttention(policy, Form.FAST)
    query, key, _value = arrays(heads)
    scores = module.scores(query, key, 8**-0.5)[:3]
    cache = PolicyCache(policy, 1, 1, 48)
    for now, positions in enumerate(module.positions(scores)):
        slots = cache.arrive(now)
        assert positions.tolist() == sorted(slots[0, 0].tolist())
        raw = torch.tensor(scores[:, now, slots[0, 0]])[None, None]
        cache.step(Query(now, slots, raw, raw.softmax(-1)))


def test_a_policy_is_named_as_on_the_command_line() -> None:
    assert PolicyAttention("h2o").form is Form.DOUBLE
    assert PolicyAttention("voting").form is Form.EXACT
    heads = random_heads((2, 2, 6, 4), 1)
    exact = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
    assert torch.allclose(PolicyAttention("full_cache")(*heads), exact, atol=1e-6)
    with pytest.raises(ValueError, match=r"bit-exact model must be another, not <Form\.EXACT"):
        PolicyAttention("h2o", Form.EXACT)


def small_modules() -> list[ExactAttention]:
    """Return each module with 6 query heads, 2 or 3 key/value heads, ready to be called."""
    kelle = KelleAttention(preset("kelle", "tiny"))
    p = kelle.p
    kelle.calibrate(*random_heads((p.heads, p.kv_heads, 9, p.head_size), 8))
    return [
        VedaAttention(preset("veda", "tiny_wide"), budget=6, reserved=2),
        LadAttention(TINY_TILE, heads=4, kv_heads=2),
        kelle,
        P3llmAttention(preset("p3llm", "tiny")),
        PolicyAttention(Voting(budget=6, reserved=2)),
    ]


def heads_for(module: ExactAttention, batch: int = 1, tokens: int = 12) -> Heads:
    shape = (module.heads or 4, module.kv_heads or 2, tokens, module.head_size or 8)
    return random_heads(shape, 7, batch)


@pytest.mark.parametrize("module", small_modules(), ids=lambda own: type(own).__name__)
def test_sequences_of_a_batch_are_independent(module: ExactAttention) -> None:
    heads = heads_for(module, batch=2)
    both = module(*heads)
    for number in range(2):
        alone = module(*(part[number : number + 1] for part in heads))
        assert torch.equal(both[number : number + 1], alone)


@pytest.mark.parametrize("module", small_modules(), ids=lambda own: type(own).__name__)
def test_later_tokens_do_not_change_earlier_outputs(module: ExactAttention) -> None:
    heads = heads_for(module)
    shorter = module(*(part[:, :, :8] for part in heads))
    assert torch.equal(module(*heads)[:, :, :8], shorter)


@pytest.mark.parametrize("module", small_modules(), ids=lambda own: type(own).__name__)
def test_float16_inputs_give_float16_outputs(module: ExactAttention) -> None:
    heads = tuple(part.half() for part in heads_for(module))
    found = module(*heads)
    assert found.dtype is torch.float16
    assert torch.equal(found, module(*(part.float() for part in heads)).half())


@pytest.mark.parametrize("module", small_modules(), ids=lambda own: type(own).__name__)
def test_wrong_tensors_are_refused(module: ExactAttention) -> None:
    query, key, value = heads_for(module)
    name = type(module).__name__

    def refused(words: str, *heads: Any, **options: Any) -> None:
        with pytest.raises(ValueError, match=words):
            module(*heads, **options)

    refused(
        f"query of {name} must have one of the types torch.float16, torch.float32, not "
        "torch.float64",
        query.double(),
        key,
        value,
    )
    refused("key of .* must have one of the types", query, key.bfloat16(), value)
    refused("value of .* must have the type of query", query, key, value.half())
    refused("query of .* must be a tensor, not 'ndarray'", query.numpy(), key, value)
    refused("key of .* must be on the device cpu", query, key.to("meta"), value)
    refused("query of .* must have 4 dimensions", query[0], key, value)
    refused("key of .* must have the shape .* no cache", query, key[:, :, :5], value)
    refused("value of .* must have the shape", query, key, value[..., :2])
    refused("query of .* must not be empty", query[:, :, :0], key, value)
    refused("value of .* must be finite, not .inf.", query, key, value.clone().fill_(torch.inf))
    trained = query.clone().requires_grad_()
    refused("query of .* must not require a gradient", trained, key, value)
    with torch.no_grad():
        assert torch.equal(module(trained, key, value), module(query, key, value))


@pytest.mark.parametrize("module", small_modules()[:4], ids=lambda own: type(own).__name__)
def test_other_dimensions_are_refused(module: ExactAttention) -> None:
    query, key, value = heads_for(module)
    with pytest.raises(ValueError, match=rf"query heads of .* must be {module.heads}, not 1"):
        module(query[:, :1], key, value)
    with pytest.raises(ValueError, match=r"key/value heads of .* must be"):
        module(query, key[:, :1], value[:, :1])
    with pytest.raises(ValueError, match=r"head_size of .* must be"):
        module(*(part[..., :2] for part in (query, key, value)))
    with pytest.raises(ValueError, match=rf"tokens of .* must be at most {module.longest}"):
        module(*heads_for(module, tokens=module.longest + 1))


def test_heads_that_share_unequally_are_refused() -> None:
    query, key, value = random_heads((4, 3, 5, 8), 1)
    with pytest.raises(ValueError, match="must divide the 4 heads, not 3"):
        PolicyAttention("h2o")(query, key, value)


@pytest.mark.parametrize("module", small_modules(), ids=lambda own: type(own).__name__)
def test_another_device_is_refused_and_a_cast_changes_nothing(module: ExactAttention) -> None:
    heads = heads_for(module)
    before = module(*heads)
    with pytest.raises(ValueError, match=f"device of {type(module).__name__} must be cpu"):
        torch.nn.Sequential(module).to("meta")
    torch.nn.Sequential(module).half()
    assert torch.equal(module(*heads), before)
    assert list(module.parameters()) == []


def test_state_of_calibrated_modules_is_saved_and_loaded() -> None:
    for module in small_modules():
        if isinstance(module, KelleAttention | P3llmAttention):
            other: ExactAttention = copy.deepcopy(module)
            other.load_state_dict({name: one * 0 + 1 for name, one in module.state_dict().items()})
            heads = heads_for(module)
            if isinstance(module, P3llmAttention):
                module.calibrate(heads[1])
                assert not torch.equal(other(*heads), module(*heads))
            other.load_state_dict(module.state_dict())
            assert torch.equal(other(*heads), module(*heads))


def test_illegal_settings_are_refused() -> None:
    veda: VedaParameters = preset("veda", "tiny_wide")
    with pytest.raises(ValueError, match="budget must be an integer from 2 to 16, not 17"):
        VedaAttention(veda, budget=17)
    kelle = KelleAttention(preset("kelle", "tiny"))
    with pytest.raises(ValueError, match="KelleAttention must be calibrated before it is called"):
        kelle(*heads_for(kelle))
    query, key, value = heads_for(kelle)
    with pytest.raises(ValueError, match="key to calibrate KelleAttention must not be all zero"):
        kelle.calibrate(query, key * 0, value)
    p3llm = P3llmAttention(preset("p3llm", "tiny"))
    with pytest.raises(ValueError, match="scaling of P3llmAttention must be 1 / sqrt"):
        p3llm(*heads_for(p3llm), scaling=1.0)
    with pytest.raises(ValueError, match="key to calibrate P3llmAttention must have the shape"):
        p3llm.calibrate(torch.ones(1, 3, 5, 7))
    with pytest.raises(ValueError, match="pre_rope of P3llmAttention must be false, not True"):
        P3llmAttention(replace(p3llm.p, pre_rope=True))
    lad = LadAttention(TINY_TILE, heads=4, kv_heads=2)
    query, key, value = heads_for(lad)
    with pytest.raises(ValueError, match="key of LadAttention must fit FP16, up to 65504, not"):
        lad(query, key * 1e6, value)
