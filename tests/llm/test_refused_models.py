"""Models that the accelerators cannot run are refused in one sentence, real ones are not."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golden.llm.configuration import shape_of
from golden.llm.language_model import open_language_model
from golden.llm.model import load_model
from golden.llm.model_files import DataFileError
from tests.generation.small_model import VOCABULARY, write_gguf, write_small_model


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_model(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_model(tmp_path_factory.mktemp("tied"), tie_word_embeddings=True)


def refuse(path: Path, message: str) -> None:
    """Open a model and read all its tensors, which must fail with the message."""
    with pytest.raises(DataFileError, match=re.escape(message)) as caught:
        model = open_language_model(path)
        model.projection()
        assert model.embedding is not None
        for layer in range(model.shape.layers):
            model.layer(layer)
    assert "\n" not in str(caught.value) and "damaged" not in str(caught.value)


def with_config(small: Path, folder: Path, change: dict[str, Any]) -> Path:
    """Return a folder with the small model's weights and another configuration."""
    config = json.loads((small / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    (folder / "model.safetensors").symlink_to(small / "model.safetensors")
    return folder


LINEAR = {"type": "linear", "factor": 8.0}
SCALED = "the accelerators do not scale the rotary embedding"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "qwen2"}, 'must be "llama", not "qwen2"'),
        ({"model_type": None}, 'must be "llama" but is not set'),
        (
            {"architectures": ["LlamaForSequenceClassification"]},
            'must be ["LlamaForCausalLM"], n',
        ),
        ({"hidden_act": "gelu"}, 'must be "silu", not "gelu"'),
        ({"rope_scaling": LINEAR}, SCALED),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, SCALED),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, SCALED),
        ({"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, SCALED),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 32.0}}, SCALED),
        ({"rope_scaling": {"factor": 8.0}}, SCALED),
        ({"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0]}}, SCALED),
        ({"rope_scaling": 8.0}, SCALED),
        ({"rope_parameters": {"rope_type": "llama3"}}, SCALED),
        ({"rope_parameters": LINEAR | {"rope_theta": 1e4}}, SCALED),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, SCALED),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, SCALED),
        ({"rope_theta": 5e5}, "rope_theta in"),
        ({"rope_theta": -1.0}, "must be a positive number, not -1.0"),
        ({"rope_interleaved": True}, "must be false, not true"),
        ({"partial_rotary_factor": 0.5}, "must be 1.0, not 0.5"),
        ({"sliding_window": 4096}, "must be null, not 4096"),
        ({"attention_bias": True}, "must be false, not true"),
        ({"mlp_bias": True}, "must be false, not true"),
        ({"attention_multiplier": 0.1}, "has attention_multiplier = 0.1, which the accelerators"),
        ({"logits_scaling": 8.0}, "has logits_scaling = 8.0"),
        ({"residual_multiplier": 0.2}, "has residual_multiplier = 0.2"),
        ({"embedding_multiplier": 12.0}, "has embedding_multiplier = 12.0"),
        ({"attn_logit_softcapping": 50.0}, "has attn_logit_softcapping = 50.0"),
        ({"final_logit_softcapping": 30.0}, "has final_logit_softcapping = 30.0"),
        ({"num_local_experts": 8}, "has num_local_experts = 8"),
        ({"auto_map": {"AutoModelForCausalLM": "own.Own"}}, "has auto_map = "),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config in"),
        ({"intermediate_size": 16}, "must have the shape (16, 20), not (12, 20)"),
        ({"vocab_size": 64}, "must have the shape (64, 20), not (45, 20)"),
        ({"num_hidden_layers": 1}, "model.layers.1.input_layernorm.weight, which the acc"),
        ({"num_hidden_layers": 3}, "must contain the tensor model.layers.2."),
        ({"num_key_value_heads": 3}, "kv_heads must divide heads = 4, not 3"),
        ({"num_attention_heads": 0}, "must be a positive integer, not 0"),
        ({"head_dim": 5}, "head_size must be even, not 5"),
        ({"hidden_size": "20"}, "must be a positive integer, not '20'"),
        ({"max_position_embeddings": None}, "must be a positive integer, not None"),
        ({"rms_norm_eps": None}, "must be a positive number, not None"),
        ({"tie_word_embeddings": True}, "must be equal, because tie_word_embeddings is true"),
        ({"tie_word_embeddings": "yes"}, 'must be true or false, not "yes"'),
        ({"eos_token_id": "2"}, 'must be a token number or a list, not "2"'),
    ],
)
def test_configuration_that_is_not_implemented_is_refused(
    small: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    refuse(with_config(small, tmp_path, change), message)


COMMON = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "model_type": "llama",
    "rope_scaling": None,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.1",
    "use_cache": True,
}


def published(name: str, sizes: str, **others: Any) -> Any:
    """Return a published configuration; `sizes` are the dimensions in the order of the keys."""
    keys = (
        "hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "num_key_value_heads max_position_embeddings vocab_size bos_token_id eos_token_id"
    ).split()
    numbers = dict(zip(keys, map(int, sizes.split()), strict=True))
    return pytest.param(COMMON | numbers | others, id=name)


SMOLLM2 = {
    "is_llama_config": True,
    "rope_interleaved": False,
    "pad_token_id": 2,
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
}
BIASES = {"attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False}


@pytest.mark.parametrize(
    "config",
    [
        published(
            "Llama-2-7b",
            "4096 11008 32 32 32 4096 32000 1 2",
            _name_or_path="meta-llama/Llama-2-7b-hf",
            pretraining_tp=1,
            rms_norm_eps=1e-5,
            tie_word_embeddings=False,
        ),
        published(
            "Llama-2-13b, first edition",
            "5120 13824 40 40 40 4096 32000 1 2",
            pad_token_id=0,
            pretraining_tp=2,
            rms_norm_eps=1e-5,
            tie_word_embeddings=False,
            max_length=4096,
        ),
        published(
            "Llama-3-8B",
            "4096 14336 32 32 8 8192 128256 128000 128001",
            **BIASES,
            head_dim=128,
            rope_theta=500000.0,
            pretraining_tp=1,
            rms_norm_eps=1e-5,
            tie_word_embeddings=False,
        ),
        published(
            "TinyLlama-1.1B",
            "2048 5632 22 32 4 2048 32000 1 2",
            attention_bias=False,
            pretraining_tp=1,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            tie_word_embeddings=False,
        ),
        published(
            "SmolLM-135M",
            "576 1536 30 9 3 2048 49152 0 0",
            _name_or_path="checkpoints/last",
            **BIASES,
            pretraining_tp=1,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            tie_word_embeddings=True,
        ),
        published(
            "SmolLM2-135M-Instruct",
            "576 1536 30 9 3 8192 49152 1 2",
            **SMOLLM2,
            **BIASES,
            pretraining_tp=1,
            rms_norm_eps=1e-5,
            rope_theta=100000,
            tie_word_embeddings=True,
        ),
    ],
)
def test_published_configurations_are_accepted(config: dict[str, Any]) -> None:
    shape = shape_of(Path("config.json"), config)
    assert shape.hidden_size == config["hidden_size"]
    assert shape.vocabulary_size == config["vocab_size"]
    assert shape.rope_base == config.get("rope_theta", 10_000)
    assert shape.head_size == config["hidden_size"] // config["num_attention_heads"]


def with_tensors(folder: Path, own: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Return a folder with the model of another one, after a change of its tensors."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(own / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).symlink_to(own / name)
    return folder


MATRIX = "model.layers.1.mlp.up_proj.weight"


def setting(name: str, make: Callable[[Any, Any], Any]) -> Callable[[dict[str, Any]], None]:
    """Return a change that gives one tensor other values, made of torch and the old ones."""
    import torch

    def change(tensors: dict[str, Any]) -> None:
        tensors[name] = make(torch, tensors.get(name, torch.zeros(4))).clone()

    return change


def value_at(number: float) -> Callable[[Any, Any], Any]:
    """Return a change of one value in the middle of a tensor."""

    def make(torch: Any, old: Any) -> Any:
        flat = old.clone().reshape(-1)
        flat[len(flat) // 2] = number
        return flat.reshape(old.shape)

    return make


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("model.layers.0.self_attn.q_proj.bias", lambda t, old: old, "q_proj.bias, which the acc"),
        (f"{MATRIX}_scale", lambda t, old: old, "up_proj.weight_scale, which the accelerators"),
        ("model.layers.1.mlp.up_proj.SCB", lambda t, old: old, "up_proj.SCB, which the accel"),
        ("model.layers.0.self_attn.q_norm.weight", lambda t, old: old, "q_norm.weight, which the"),
        (MATRIX, lambda t, old: old.to(t.float8_e4m3fn), "F32, F16, BF16, not F8_E4M3"),
        (MATRIX, lambda t, old: old.to(t.int8), "must be stored as F32, F16, BF16, not I8"),
        (MATRIX, lambda t, old: old.double(), "must be stored as F32, F16, BF16, not F64"),
        (MATRIX, lambda t, old: old.reshape(20, 12), "must have the shape (12, 20), not (20, 12)"),
        (MATRIX, value_at(float("nan")), f"{MATRIX} in"),
        ("lm_head.weight", value_at(float("inf")), "must be finite, not inf at [22, 10]"),
        ("model.embed_tokens.weight", value_at(float("-inf")), "must be finite, not -inf at"),
        ("model.norm.weight", value_at(float("nan")), "must be finite, not nan at [10]"),
        ("lm_head.weight", lambda t, old: old[:-1], "must have the shape (45, 20), not (44, 20)"),
        (
            "model.layers.0.self_attn.rotary_emb.inv_freq",
            lambda t, old: t.tensor([1.0, 0.02]),
            "inv_freq in",
        ),
    ],
)
def test_tensors_that_are_not_understood_are_refused(
    small: Path, tmp_path: Path, name: str, make: Callable[[Any, Any], Any], message: str
) -> None:
    refuse(with_tensors(tmp_path, small, setting(name, make)), message)


@pytest.mark.parametrize("name", ["lm_head.weight", MATRIX, "model.norm.weight"])
def test_missing_tensor_is_named(small: Path, tmp_path: Path, name: str) -> None:
    folder = with_tensors(tmp_path, small, lambda tensors: tensors.pop(name))
    refuse(folder, f"must contain the tensor {name}")
    # The comparison refuses it too, where `transformers` takes random numbers.
    with pytest.raises(DataFileError, match=f"missing keys {re.escape(name)}"):
        load_model(folder)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_stored_frequencies_of_the_base_are_accepted(
    small: Path, tmp_path: Path, kind: str
) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    make = lambda t, old: t.tensor([1.0, 0.01]).to(getattr(t, kind))  # noqa: E731
    open_language_model(with_tensors(tmp_path, small, setting(name, make)))


def test_tied_model_with_equal_head_is_accepted(tied: Path, tmp_path: Path) -> None:
    def copied(tensors: dict[str, Any]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    open_language_model(with_tensors(tmp_path, tied, copied))


def test_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    write_small_model(tmp_path, max_shard_size=8_000)
    first, second = sorted(tmp_path.glob("model-*"))[:2]
    both = load_file(second) | {"model.norm.weight": load_file(first).popitem()[1]}
    name = next(iter(load_file(first)))
    save_file(both | {name: load_file(first)[name]}, second, {"format": "pt"})
    refuse(tmp_path, f"{name} must be in one part of")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"llama.rope.scaling.type": "linear"}, "must be 'none', not 'linear'"),
        ({"llama.rope.scaling.type": "yarn"}, "must be 'none', not 'yarn'"),
        ({"llama.rope.scaling.factor": 8.0}, "must be 0.0 or 1.0, not 8.0"),
        ({"llama.rope.scale_linear": 4.0}, "must be 0.0 or 1.0, not 4.0"),
        ({"llama.rope.scaling.attn_factor": 1.2}, "has llama.rope.scaling.attn_factor = "),
        ({"llama.attention.sliding_window": 16}, "has llama.attention.sliding_window = 16"),
        ({"llama.attention.scale": 0.5}, "has llama.attention.scale = 0.5"),
        ({"llama.logit_scale": 0.5}, "has llama.logit_scale = 0.5"),
        ({"llama.residual_scale": 0.5}, "has llama.residual_scale = 0.5"),
        ({"llama.expert_count": 8}, "must be 0, not 8"),
        ({"llama.attention.head_count_kv": [2, 2]}, "must be a positive integer, not [2, 2]"),
        ({"llama.attention.head_count_kv": 3}, "kv_heads must divide heads = 4, not 3"),
        ({"llama.feed_forward_length": 16}, "must have the shape (16, 20), not (12, 20)"),
        ({"llama.rope.dimension_count": 2}, "llama.rope.dimension_count in"),
        ({"llama.attention.value_length": 8}, "must be 4, not 8"),
        ({"llama.context_length": None}, "must be a positive integer, not None"),
        ({"llama.vocab_size": 44}, "must be 45, not 44"),
        ({"tokenizer.ggml.tokens": ["0", "1"], "llama.vocab_size": 2}, "must have the shape (2, "),
        ({"tokenizer.ggml.model": "bert"}, "must be 'gpt2' or 'llama', not 'bert'"),
        ({"tokenizer.ggml.add_eos_token": True}, "must be False, not True"),
        ({"tokenizer.ggml.tokens": None}, "must contain a tokenizer in tokenizer.ggml.tokens"),
        ({"general.type": "adapter"}, "must be 'model', not 'adapter'"),
        ({"split.count": 2, "split.no": 0}, "is a part of a split model"),
        ({"clip.has_vision_encoder": True}, "has clip.has_vision_encoder = True"),
    ],
)
def test_gguf_metadata_that_is_not_implemented_is_refused(
    small: Path, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    refuse(write_gguf(small, tmp_path / "small.gguf", fields=fields), message)


def test_gguf_metadata_without_effect_is_accepted(small: Path, tmp_path: Path) -> None:
    fields = {
        "general.name": "Small",
        "general.license": "mit",
        "llama.rope.scaling.type": "none",
        "llama.rope.scaling.factor": 1.0,
        "llama.attention.key_length": 4,
        "llama.expert_count": 0,
        "quantize.imatrix.file": "calibration.dat",
        "tokenizer.chat_template": "{{ messages }}",
        "split.count": 0,
    }
    open_language_model(write_gguf(small, tmp_path / "small.gguf", fields=fields))


def test_gguf_infinity_is_refused(small: Path, tmp_path: Path) -> None:
    change = setting("lm_head.weight", value_at(float("inf")))
    changed = with_tensors(tmp_path, small, change)
    refuse(write_gguf(changed, tmp_path / "small.gguf"), "must be finite, not inf at [22, 10]")


def test_unknown_gguf_cutting_rule_is_refused(small: Path, tmp_path: Path) -> None:
    file = write_gguf(small, tmp_path / "small.gguf", fields={"tokenizer.ggml.pre": "tekken"})
    with pytest.raises(DataFileError, match=r"must be smollm, gpt-2 or one of .*, not 'tekken'"):
        open_language_model(file).tokens_of("1 2")


def test_model_without_tokenizer_is_refused(small: Path, tmp_path: Path) -> None:
    folder = with_config(small, tmp_path, {})
    with pytest.raises(DataFileError, match="transformers cannot load the tokenizer of"):
        open_language_model(folder).tokens_of("1 2")


def test_token_outside_the_vocabulary_is_refused(small: Path, tmp_path: Path) -> None:
    folder = write_small_model(tmp_path, vocab_size=40)
    model = open_language_model(folder)
    assert model.tokens_of("39") == [39] and VOCABULARY > 40
    with pytest.raises(
        DataFileError, match="must return tokens below the vocabulary_size 40, not 40"
    ):
        model.tokens_of("1 40")
