"""A language model of two layers with random weights: policies do not depend on its text."""

from typing import Any

import numpy as np
import pytest
import torch

TOKENS, VOCABULARY = 120, 97


@pytest.fixture(scope="session")
def model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(1)
    config = LlamaConfig(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=64,
        vocab_size=VOCABULARY,
        # Small random weights would attend to all tokens alike.
        initializer_range=0.3,
    )
    network = LlamaForCausalLM(config).eval()
    network.set_attn_implementation("eager")
    return network


@pytest.fixture(scope="session")
def windows() -> np.ndarray:
    return np.random.default_rng(1).integers(0, VOCABULARY, (1, TOKENS))
