"""The captured tensors follow the model of `transformers`, and are a whole decoder layer."""

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from golden.llm import Trace, model, text_named
from golden.llm.model import SMOLLM2
from golden.llm.perplexity import perplexity

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

U = 2.0**-24
"""The relative error of one rounding to float32."""

SUMS = 2.0**-44
"""A bound on the relative error of float64 sums, products and functions, by absolute terms."""

DRIFT = 48 * U
"""A bound on the relative distance between the states of a token and those of the float64 model.

The pass rounds about ten tensors in each of 30 layers. Float32 arithmetic between these tensors
exceeds the bound, and half precision exceeds it by a factor of 170.
"""

LAYERS = pytest.mark.parametrize("layer", (0, 14, 29))


@pytest.fixture(scope="module")
def own(network: "LlamaForCausalLM", trace: Trace) -> Any:
    """Return the outputs of the model of `transformers` in float64: states, cache, attention.

    Its rotary embedding computes angles in float32 in every precision, so it is replaced.
    """
    import torch

    class Angles(torch.nn.Module):
        def forward(self, x: Any, position_ids: Any) -> Any:
            exponents = torch.arange(0, 1, 2 / 64, dtype=torch.float64)
            angles = position_ids[..., None].double() * SMOLLM2.rope_base**-exponents
            angles = torch.cat([angles, angles], dim=-1)
            return angles.cos(), angles.sin()

    double = copy.deepcopy(network).double()
    double.model.add_module("rotary_emb", Angles())
    tokens = torch.tensor(trace.tokens, dtype=torch.long)[None]
    with torch.inference_mode():
        return double.model(
            input_ids=tokens, output_attentions=True, output_hidden_states=True, use_cache=True
        )


def float64(array: np.ndarray) -> np.ndarray:
    """Return the array in float64."""
    return array.astype(np.float64)


def apply(trace: Trace, layer: int, name: str, inputs: np.ndarray) -> np.ndarray:
    """Apply a linear layer in float64."""
    return float64(inputs) @ float64(trace.linear(layer, name).weight).T


def apply_absolute(trace: Trace, layer: int, name: str, inputs: np.ndarray) -> np.ndarray:
    """Return the sum of the absolute terms of each output: what rounding errors scale with."""
    return np.abs(float64(inputs)) @ np.abs(float64(trace.linear(layer, name).weight)).T


def normalise(trace: Trace, layer: int, name: str, states: np.ndarray) -> np.ndarray:
    """Apply an RMSNorm in float64."""
    mean_square = np.mean(states**2, axis=1, keepdims=True)
    return states / np.sqrt(mean_square + SMOLLM2.norm_epsilon) * float64(trace.norm(layer, name))


def rotate(vectors: np.ndarray) -> np.ndarray:
    """Apply the rotary embedding in float64: element i turns with element i + 32."""
    low, high = np.split(vectors, 2, axis=1)
    exponents = np.arange(low.shape[1]) / low.shape[1]
    angles = np.arange(len(vectors))[:, None] * SMOLLM2.rope_base**-exponents
    turned = (low + 1j * high) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=1)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return causal softmax attention of one head in float64."""
    scores = q @ k.T / np.sqrt(q.shape[1])
    scores[np.triu_indices_from(scores, k=1)] = -np.inf
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True) @ v


def silu(values: np.ndarray) -> np.ndarray:
    """Return x times the logistic function of x."""
    return values / (1 + np.exp(-values))


def test_shapes(trace: Trace) -> None:
    """The interface has the shapes and types it promises."""
    assert trace.tokens.dtype == np.int32 and trace.tokens.shape == (320,)
    assert (trace.heads, trace.kv_heads, trace.head_size, trace.hidden_size) == (9, 3, 64, 576)
    attention = trace.attention_trace(14, 8)
    for name in ("q", "k", "v", "q_before_rope", "k_before_rope", "output"):
        array = getattr(attention, name)
        assert array.dtype == np.float32 and array.shape == (320, 64)
        assert array.flags.c_contiguous and not array.flags.writeable
    for array in (attention.scores, attention.probabilities):
        assert array.dtype == np.float32 and array.shape == (320, 320)
    assert trace.linear(14, "down_proj").weight.shape == (576, 1536)
    assert trace.linear(14, "down_proj").inputs.shape == (320, 1536)
    assert trace.norm(14, "input").shape == (576,)


def test_shape_is_the_models(network: "LlamaForCausalLM") -> None:
    """The constants equal those of the model file."""
    config = network.config
    assert config.rope_parameters == {"rope_theta": SMOLLM2.rope_base, "rope_type": "default"}
    assert config.hidden_act == "silu"
    assert (
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        config.intermediate_size,
        config.vocab_size,
        config.max_position_embeddings,
        config.rms_norm_eps,
    ) == (
        SMOLLM2.layers,
        SMOLLM2.hidden_size,
        SMOLLM2.heads,
        SMOLLM2.kv_heads,
        SMOLLM2.head_size,
        SMOLLM2.intermediate_size,
        SMOLLM2.vocabulary_size,
        SMOLLM2.context_length,
        SMOLLM2.norm_epsilon,
    )


@LAYERS
def test_states_keys_and_values_are_the_models(own: Any, trace: Trace, layer: int) -> None:
    """States, rotated keys and values follow those of `transformers` in float64."""
    cache = own.past_key_values.layers[layer]
    heads = [trace.attention_trace(layer, head) for head in range(0, trace.heads, 3)]
    # `transformers` applies the final norm to the states after the last layer.
    for found, expected in (
        (trace.hidden(layer)[0], own.hidden_states[layer][0]),
        (np.hstack([head.k for head in heads]), cache.keys[0].swapaxes(0, 1).flatten(1)),
        (np.hstack([head.v for head in heads]), cache.values[0].swapaxes(0, 1).flatten(1)),
    ):
        difference = np.linalg.norm(found - expected.numpy(), axis=1)
        assert np.all(difference <= DRIFT * np.linalg.norm(expected.numpy(), axis=1))


@LAYERS
def test_weights_are_the_models(network: "LlamaForCausalLM", trace: Trace, layer: int) -> None:
    """The weights equal those that `transformers` reads from the file, to the last bit."""
    decoder = network.model.layers[layer]
    for name in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"):
        module = getattr(decoder.self_attn, name, None) or getattr(decoder.mlp, name)
        expected = module.weight.detach().numpy()
        np.testing.assert_array_equal(trace.linear(layer, name).weight, expected)
    for name in ("input", "post_attention"):
        expected = getattr(decoder, f"{name}_layernorm").weight.detach().numpy()
        np.testing.assert_array_equal(trace.norm(layer, name), expected)


@LAYERS
def test_probabilities_are_the_models(own: Any, trace: Trace, layer: int) -> None:
    """Probabilities recomputed from q and k follow those of `transformers` in float64.

    A score errs by the errors of the query and of the key. A probability errs by the error of its
    own score and by that of the denominator.
    """
    for head in range(trace.heads):
        attention = trace.attention_trace(layer, head)
        lengths = (np.linalg.norm(part, axis=1) for part in (attention.q, attention.k))
        relative = 2 * 2 * DRIFT * np.outer(*lengths).max() / 8 + U
        expected = own.attentions[layer][0, head].numpy()
        difference = np.abs(attention.probabilities - expected)
        assert np.all(difference <= relative * expected + 2.0**-149)
        assert np.all(np.triu(attention.probabilities, k=1) == 0)
        sums = attention.probabilities.sum(axis=1, dtype=np.float64)
        # Each probability is rounded once, by half a unit in its own last place.
        assert np.all(np.abs(sums - 1) <= U)


@LAYERS
def test_head_outputs_are_rounded_attention(trace: Trace, layer: int) -> None:
    """A head's output is causal attention over the captured q, k and v, rounded once."""
    for head in range(trace.heads):
        attention = trace.attention_trace(layer, head)
        q, k, v = map(float64, (attention.q, attention.k, attention.v))
        bound = U * np.abs(attention.output) + SUMS * attend(q, k, np.abs(v))
        assert np.all(np.abs(attend(q, k, v) - attention.output) <= bound)


@LAYERS
def test_rotary_embedding(trace: Trace, layer: int) -> None:
    """The rotary embedding of q_before_rope and k_before_rope, rounded once, gives q and k."""
    for head in range(trace.heads):
        attention = trace.attention_trace(layer, head)
        for before, after in (
            (attention.q_before_rope, attention.q),
            (attention.k_before_rope, attention.k),
        ):
            low, high = np.split(float64(before), 2, axis=1)
            length = np.tile(np.hypot(low, high), 2)
            difference = np.abs(rotate(float64(before)) - after)
            # An angle of up to 320 radians errs by 2**-44 in float64.
            assert np.all(difference <= U * np.abs(after) + 2 * SUMS * length)


@LAYERS
def test_linear_layers_chain(trace: Trace, layer: int) -> None:
    """Every captured tensor follows from the captured tensors before it by one rounding."""

    def check_sum(name: str, expected: np.ndarray) -> None:
        inputs = trace.linear(layer, name).inputs
        bound = U * np.abs(expected) + SUMS * apply_absolute(trace, layer, name, inputs)
        assert np.all(np.abs(apply(trace, layer, name, inputs) - expected) <= bound)

    def check_norm(name: str, states: np.ndarray, layers: tuple[str, ...]) -> None:
        expected = normalise(trace, layer, name, float64(states))
        for linear in layers:
            difference = np.abs(trace.linear(layer, linear).inputs - expected)
            assert np.all(difference <= (U + SUMS) * np.abs(expected))

    states_in, states_out = trace.hidden(layer)
    heads = [trace.attention_trace(layer, head) for head in range(trace.heads)]
    kv_heads = heads[:: trace.heads // trace.kv_heads]
    check_norm("input", states_in, ("q_proj", "k_proj", "v_proj"))
    check_sum("q_proj", np.hstack([head.q_before_rope for head in heads]))
    check_sum("k_proj", np.hstack([head.k_before_rope for head in kv_heads]))
    check_sum("v_proj", np.hstack([head.v for head in kv_heads]))
    np.testing.assert_array_equal(
        trace.linear(layer, "o_proj").inputs, np.hstack([head.output for head in heads])
    )
    check_sum("o_proj", trace.attention_output(layer))

    # A float32 sum of two values is the float64 sum, rounded once.
    states = states_in + trace.attention_output(layer)
    check_norm("post_attention", states, ("gate_proj", "up_proj"))
    inputs = trace.linear(layer, "gate_proj").inputs
    gate, up = (apply(trace, layer, name, inputs) for name in ("gate_proj", "up_proj"))
    gate_terms, up_terms = (
        apply_absolute(trace, layer, name, inputs) for name in ("gate_proj", "up_proj")
    )
    product = silu(gate) * up
    # The slope of SiLU is below 1.1 everywhere.
    bound = U * np.abs(product)
    bound += SUMS * (1.1 * gate_terms * np.abs(up) + np.abs(silu(gate)) * (up_terms + np.abs(up)))
    assert np.all(np.abs(trace.linear(layer, "down_proj").inputs - product) <= bound)

    inputs = trace.linear(layer, "down_proj").inputs
    down = apply(trace, layer, "down_proj", inputs)
    bound = U * (np.abs(down) + np.abs(states_out))
    bound += 2 * SUMS * apply_absolute(trace, layer, "down_proj", inputs)
    assert np.all(np.abs(states + down - states_out) <= bound)


@LAYERS
def test_decoder_layer_in_float64(trace: Trace, layer: int) -> None:
    """A decoder layer computed in float64 from its input and its weights gives its output.

    For each token the error is below 32 U of what the layer adds to the hidden state, plus one
    rounding for each of the two additions to it. Half precision anywhere would cost 8192 U.
    """
    states_in, states_out = map(float64, trace.hidden(layer))
    inputs = normalise(trace, layer, "input", states_in)
    q, k, v = (
        np.split(vectors, vectors.shape[1] // 64, axis=1)
        for vectors in (
            apply(trace, layer, name, inputs) for name in ("q_proj", "k_proj", "v_proj")
        )
    )
    outputs = [attend(rotate(q[head]), rotate(k[head // 3]), v[head // 3]) for head in range(9)]
    states = states_in + apply(trace, layer, "o_proj", np.hstack(outputs))
    inputs = normalise(trace, layer, "post_attention", states)
    gate, up = (apply(trace, layer, name, inputs) for name in ("gate_proj", "up_proj"))
    states = states + apply(trace, layer, "down_proj", silu(gate) * up)

    def length(vectors: np.ndarray) -> np.ndarray:
        return np.linalg.norm(vectors, axis=1)

    bound = 32 * U * length(states - states_in) + 2 * U * length(states)
    assert np.all(length(states - states_out) <= bound)


def test_model_predicts_english(network: "LlamaForCausalLM", trace: Trace) -> None:
    """Perplexity of the prose is that of a working language model.

    Measured: 33.7 over the first 320 tokens, and 1600 with the same tokens in random order.
    """
    assert perplexity(network, trace.tokens) < 37
    shuffled = np.random.default_rng(1).permutation(trace.tokens)
    assert perplexity(network, shuffled) > 1000


def test_perplexity_is_the_mean_over_windows(network: "LlamaForCausalLM", trace: Trace) -> None:
    """Two windows weigh by their predicted tokens, and a last window of one token counts none."""
    first = perplexity(network, trace.tokens[:40], context=40)
    second = perplexity(network, trace.tokens[40:60], context=40)
    both = perplexity(network, trace.tokens[:60], context=40)
    assert both == pytest.approx(np.exp((39 * np.log(first) + 19 * np.log(second)) / 58))
    assert perplexity(network, trace.tokens[:41], context=40) == pytest.approx(first)


def test_perplexity_refuses_what_it_cannot_predict(network: "LlamaForCausalLM") -> None:
    """One token has nothing to predict."""
    with pytest.raises(ValueError, match="tokens must contain at least 2 tokens, not 1"):
        perplexity(network, np.array([5]))
    with pytest.raises(ValueError, match="context must be at least 2, not 1"):
        perplexity(network, np.array([5, 6]), context=1)


def test_tokens_are_the_texts(trace: Trace) -> None:
    """The tokens are a beginning of the text, and the prose holds at least 1100 of them."""
    tokens = model.load_tokens(text_named("prose"))
    assert len(tokens) >= 1100
    np.testing.assert_array_equal(trace.tokens, tokens[: len(trace.tokens)])
