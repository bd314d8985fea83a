"""A layer of DeiT, whose attention is not causal: float64 compared with `transformers`."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import DeiTConfig
from transformers.models.deit.modeling_deit import DeiTLayer

from golden.meadow.layer_quantisation import quantised_layer, real_steps
from golden.meadow.meadow import run_layer
from hdl.catalog import entry_named
from hdl.meadow.control.program import LayerPlace, Program
from hdl.meadow.instructions import Kind
from hdl.meadow.parameters import MeadowParameters
from hdl.nonlinear.activation_functions import Activation
from testbenches.meadow.memory_images import MemoryImages
from testbenches.meadow.random_layers import STATE_STEP, random_layers
from tests.llm.opt_layer import numbers
from tests.meadow.float_layer import float_layer

SMALL = {"hidden_size": 384, "heads": 6, "kv_heads": 6, "intermediate_size": 1536}
P: MeadowParameters = replace(
    entry_named("meadow").parameters("paper"), **SMALL, activation=Activation.GELU, causal=False
)
"""DeiT-S."""

TOKENS = 24
POSITIONS = np.arange(TOKENS)
NONE = np.zeros((P.kv_heads, 0, P.head_size))
NO_CACHE = (NONE.astype(np.int64), NONE.astype(np.int64))


def size_of(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


@pytest.fixture(scope="module")
def layer() -> Any:
    """Return DeiT-S's layer in float64 with random numbers; the project's norms have its epsilon.

    Queries and keys are large enough that a token attends to few others.
    """
    config = DeiTConfig(
        hidden_size=P.hidden_size,
        num_attention_heads=P.heads,
        intermediate_size=P.intermediate_size,
        layer_norm_eps=1e-5,
    )
    # The other implementation has its softmax in float32.
    config._attn_implementation = "sdpa"
    torch.manual_seed(1)
    module = DeiTLayer(config).double().eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "layernorm" in name:
                parameter.normal_(int(name.endswith("weight")), 0.3)
            else:
                parameter.normal_(0, 0.3 if name.endswith("bias") else P.hidden_size**-0.5)
    return module


@pytest.fixture(scope="module")
def states() -> NDArray[np.float64]:
    rows = np.random.default_rng(2).normal(0.5, 2, (TOKENS, P.hidden_size))
    return np.rint(rows / STATE_STEP) * STATE_STEP


def real(module: Any) -> Any:
    own = module.attention
    linears = {"query": own.q_proj, "key": own.k_proj, "value": own.v_proj, "output": own.o_proj}
    linears |= {"up": module.mlp.fc1, "down": module.mlp.fc2}
    return float_layer(linears, (module.layernorm_before, module.layernorm_after), P)


def test_layer_in_float64_equals_that_of_deit(layer: Any, states: NDArray[np.float64]) -> None:
    found = real_steps(real(layer), states, POSITIONS, (NONE, NONE), P)
    with torch.inference_mode():
        made = layer(torch.tensor(states)[None])
    own = numbers(made[0] if isinstance(made, tuple) else made).reshape(TOKENS, -1)
    assert size_of(found["states"] - own) < 1e-12 * size_of(own - states)


def test_integers_are_near_float64_and_causal_ones_are_not(
    layer: Any, states: NDArray[np.float64]
) -> None:
    """Limit the error relative to the layer's contribution to the hidden states."""
    integers, plain = quantised_layer(real(layer), states, P, STATE_STEP)
    exact = real_steps(plain, states, POSITIONS, (NONE, NONE), P)["states"]
    raw = np.rint(states / STATE_STEP).astype(np.int64)
    contribution = size_of(exact - states)
    got = run_layer(integers, raw, NO_CACHE, P).states * STATE_STEP
    assert size_of(got - exact) < 0.05 * contribution
    causal = run_layer(integers, raw, NO_CACHE, replace(P, causal=True)).states * STATE_STEP
    assert size_of(causal - exact) > 0.2 * contribution
    # The last token sees all others in both.
    assert np.array_equal(causal[-1], got[-1])


@pytest.mark.parametrize("preset", ["tiny_opt", "tiny_deit"])
def test_programs_mask_keys_only_if_attention_is_causal(preset: str) -> None:
    p: MeadowParameters = entry_named("meadow").parameters(preset)
    layers, _states = random_layers(p, np.random.default_rng(1), 1)
    place: LayerPlace = MemoryImages(p).add_layer(layers[0])
    program = Program(p, skip=True)
    program.layer(layers[0], place, past=2, tokens=3)
    (attention,) = [one for one in program.issued if one.kind is Kind.TPHS]
    assert attention.block["causal"] == int(preset == "tiny_opt")
