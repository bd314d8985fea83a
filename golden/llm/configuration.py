"""Reader of a model's `config.json` and `generation_config.json`, which rejects unknown keys."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from golden.llm.model_files import CONFIGURATION, GENERATION, DataFileError, ModelFiles
from hdl.model_shape import ModelShape

DIMENSIONS = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)
"""Keys that every configuration sets to a positive integer."""

OTHER_KEYS = (
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "tie_word_embeddings",
    "eos_token_id",
)
"""Further keys that are read here."""

FIXED: Mapping[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "partial_rotary_factor": 1.0,
    "rope_interleaved": False,
    "is_llama_config": True,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "cross_attention_hidden_size": None,
    "sliding_window": None,
    "use_sliding_window": False,
    "quantization_config": None,
}
"""Keys that the accelerators accept with one value only."""

NEUTRAL = frozenset(
    (
        # The file's origin, and the storage format of its numbers.
        "_commit_hash _name_or_path transformers_version transformers.js_config "
        "torch_dtype dtype unsloth_fixed unsloth_version "
        # Implementation choices that do not change the mathematics.
        "_attn_implementation _attn_implementation_autoset _flash_attn_2_enabled "
        "attn_implementation pretraining_tp use_cache gradient_checkpointing torchscript "
        "use_bfloat16 chunk_size_feed_forward output_attentions output_hidden_states "
        "return_dict is_decoder "
        # Training.
        "initializer_range attention_dropout hidden_dropout neftune_noise_alpha "
        # Tokens that the tokenizer adds, and labels of other tasks.
        "bos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id "
        "id2label label2id problem_type task_specific_params finetuning_task prefix "
        "tokenizer_class max_sequence_length "
        # The selection of the next token, which is always the argmax here.
        "max_length min_length do_sample early_stopping num_beams num_beam_groups "
        "diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty "
        "no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences "
        "output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id "
        "remove_invalid_values exponential_decay_length_penalty suppress_tokens "
        "begin_suppress_tokens"
    ).split()
)
"""Keys that do not affect the logits."""

END_TOKEN = 2
"""The end token of a Llama configuration without `eos_token_id`."""


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object of a file.

    Raises
    ------
    DataFileError
        The file is not JSON, or not an object.
    """
    try:
        found = json.loads(file.read_bytes())
    except ValueError as error:
        raise DataFileError(f"{file} cannot be read and may be corrupted: {error}") from error
    if not isinstance(found, dict):
        raise DataFileError(f"{file} must contain a JSON object, not {found!r}")
    return found


def require_understood(file: Path, config: Mapping[str, Any]) -> None:
    """Reject a configuration with a key or a value that is not implemented.

    A key with the value null counts as absent.
    """
    for key, value in config.items():
        if key in FIXED and value is not None and value != FIXED[key]:
            raise DataFileError(
                f"{key} in {file} must be {json.dumps(FIXED[key])}, not {json.dumps(value)}"
            )
        known = key in FIXED or key in NEUTRAL or key in DIMENSIONS or key in OTHER_KEYS
        if not known and value is not None:
            raise DataFileError(
                f"{file} has {key} = {json.dumps(value)}, which the accelerators do not implement"
            )
    if config.get("model_type") != FIXED["model_type"]:
        raise DataFileError(f'model_type in {file} must be "llama" but is not set')


def shape_of(file: Path, config: Mapping[str, Any]) -> ModelShape:
    """Return the dimensions that a configuration sets."""
    require_understood(file, config)
    sizes = {key: count(file, key, config.get(key)) for key in DIMENSIONS}
    heads, hidden_size = sizes["num_attention_heads"], sizes["hidden_size"]

    def optional(key: str, default: int) -> int:
        value = config.get(key)
        return default if value is None else count(file, key, value)

    return checked_shape(
        file,
        hidden_size=hidden_size,
        intermediate_size=sizes["intermediate_size"],
        heads=heads,
        kv_heads=optional("num_key_value_heads", heads),
        head_size=optional("head_dim", hidden_size // heads),
        layers=sizes["num_hidden_layers"],
        vocabulary_size=sizes["vocab_size"],
        context_length=sizes["max_position_embeddings"],
        rope_base=_rope_base(file, config),
        norm_epsilon=positive(file, "rms_norm_eps", config.get("rms_norm_eps")),
    )


def _rope_base(file: Path, config: Mapping[str, Any]) -> float:
    """Return the base of an unscaled rotary embedding, from the keys of old and new versions."""
    bases = [config.get("rope_theta")]
    for spelling in ("rope_scaling", "rope_parameters"):
        found = config.get(spelling)
        if found is None:
            continue
        fixed = {"rope_type": "default", "type": "default", "partial_rotary_factor": 1.0}
        understood = isinstance(found, dict) and all(
            value is None or key == "rope_theta" or fixed.get(key) == value
            for key, value in found.items()
        )
        if not understood:
            raise DataFileError(
                f'{spelling} in {file} must have the rope_type "default" and no other key but '
                f"rope_theta, not {json.dumps(found)}: the accelerators do not scale the rotary "
                "embedding"
            )
        bases.append(found.get("rope_theta"))
    stated = {positive(file, "rope_theta", base) for base in bases if base is not None}
    if len(stated) > 1:
        raise DataFileError(f"rope_theta in {file} must have one value, not {sorted(stated)}")
    return stated.pop() if stated else 10_000.0


def checked_shape(file: Path, **dimensions: Any) -> ModelShape:
    """Return the dimensions that a file sets.

    Raises
    ------
    DataFileError
        The dimensions violate a rule of `ModelShape`.
    """
    try:
        return ModelShape(**dimensions)
    except ValueError as error:
        raise DataFileError(f"{file} is not supported: {error}") from error


def count(file: Path, key: str, value: Any) -> int:
    """Check that a key's value is a positive integer, and return it.

    Raises
    ------
    DataFileError
        The value is missing or is not a positive integer.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise DataFileError(f"{key} in {file} must be a positive integer, not {value!r}")
    return value


def positive(file: Path, key: str, value: Any) -> float:
    """Check that a key's value is a positive finite number, and return it.

    Raises
    ------
    DataFileError
        The value is missing or is not a positive finite number.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise DataFileError(f"{key} in {file} must be a positive number, not {value!r}")
    return float(value)


def end_tokens(file: Path, key: str, value: Any) -> frozenset[int]:
    """Return the end tokens that a key lists: one, several, or none for null."""
    tokens = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in tokens):
        raise DataFileError(
            f"{key} in {file} must be a token number or a list, not {json.dumps(value)}"
        )
    return frozenset(token for token in tokens if token >= 0)


def configured(files: ModelFiles) -> tuple[ModelShape, bool, frozenset[int]]:
    """Return dimensions, whether the LM head shares the embedding, and the end tokens.

    As in `transformers`, the end tokens are those of `generation_config.json`, or of `config.json`
    if the former has none.

    Raises
    ------
    DataFileError
        A file is missing or corrupted, or has a key or a value that is not implemented.
    """
    file = files.neighbour(CONFIGURATION)
    if file is None:
        raise DataFileError(f"{files.named} must have its {CONFIGURATION} in the same folder")
    config = read_object(file)
    shape = shape_of(file, config)
    tied = config.get("tie_word_embeddings")
    if tied not in (None, False, True):
        raise DataFileError(
            f"tie_word_embeddings in {file} must be true or false, not {json.dumps(tied)}"
        )
    stop = end_tokens(file, "eos_token_id", config.get("eos_token_id", END_TOKEN))
    generation = files.neighbour(GENERATION)
    if generation is not None:
        listed = read_object(generation).get("eos_token_id")
        stop = end_tokens(generation, "eos_token_id", listed) or stop
    return shape, bool(tied), stop
