"""A whole language model of the LLaMA kind, out of a GGUF or safetensors file."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm import model as packaged
from golden.llm.layers import LayerWeights, Reals
from golden.llm.model import DataFileError, ModelShape
from golden.llm.model_files import model_files
from golden.llm.texts import text_named

Singles = NDArray[np.float32]

CALIBRATION = 256
"""Tokens of prose on which the steps of integer systems are found."""

GGUF_NAMES = {
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "output": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "input_norm": "attn_norm",
    "feed_forward_norm": "ffn_norm",
}
SAFETENSORS_NAMES = {
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "input_norm": "input_layernorm",
    "feed_forward_norm": "post_attention_layernorm",
}


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A model's dimensions, and its tensors when they are asked for.

    Members
    -------
    file : Path
        The model's file, or the index of its files.
    digest : str
        SHA-256 of all files that decide what the model computes, see `ModelFiles.digest`.
    shape : ModelShape
        Dimensions.
    stop : frozenset of int
        Tokens that end a text.
    tensor : Callable[[int | None, str], numpy.ndarray]
        A layer's tensor by its name here, or one of `embedding`, `final_norm` and `projection`;
        a matrix has a row an output. Heads of queries and keys have as neighbours what the rotary
        embedding turns together.
    """

    file: Path
    digest: str
    shape: ModelShape
    stop: frozenset[int]
    tensor: Callable[[int | None, str], Singles]

    def layer(self, number: int) -> LayerWeights:
        """Return a layer's matrices in float64, folded as `LayerWeights` says."""
        s = self.shape

        def matrix(name: str, norm: str = "") -> Reals:
            weight = self.tensor(number, name).astype(np.float64).T
            own = self.tensor(number, norm).astype(np.float64)[:, np.newaxis] if norm else 1.0
            return weight * own

        def heads(name: str) -> Reals:
            return matrix(name, "input_norm").reshape(s.width, -1, s.head_size)

        return LayerWeights(
            query=heads("query") / np.sqrt(s.head_size),
            key=heads("key"),
            value=heads("value"),
            output=matrix("output").reshape(s.heads, s.head_size, s.width),
            gate=matrix("gate", "feed_forward_norm"),
            up=matrix("up", "feed_forward_norm"),
            down=matrix("down"),
        )

    @cached_property
    def embedding(self) -> Singles:
        """The hidden state that each token begins with, shape (vocabulary, width)."""
        return self.tensor(None, "embedding")

    def projection(self) -> Reals:
        """Return the vocabulary's projection, the final norm folded in: (width, vocabulary)."""
        norm = self.tensor(None, "final_norm").astype(np.float64)
        return self.tensor(None, "projection").astype(np.float64).T * norm[:, np.newaxis]

    def calibration(self, longest: int = CALIBRATION) -> list[int]:
        """Return the text on which steps are found, at most `longest` tokens of it."""
        return self.tokens_of(text_named("prose"))[: min(CALIBRATION, longest)]

    @cached_property
    def _tokenizer(self) -> Any:
        return packaged.tokenizer_of(self.file)

    def tokens_of(self, text: str) -> list[int]:
        """Return a text's tokens, without special ones."""
        return [int(t) for t in self._tokenizer(text, add_special_tokens=False)["input_ids"]]

    def text_of(self, tokens: list[int]) -> str:
        """Return the text that tokens stand for, special ones left out."""
        return self._tokenizer.decode(tokens, skip_special_tokens=True)


def open_language_model(file: Path | None = None) -> LanguageModel:
    """Open a model's file, SmolLM2's if none is named.

    Raises
    ------
    DataFileError
        There is no such file, it is damaged, or not of the LLaMA kind.
    """
    if file is None:
        file = packaged.verified_gguf()
    files = model_files(file)
    file = files.named
    if file not in files.weights:
        raise DataFileError(f"{file} is the index of a split model, which cannot be read yet")
    try:
        return (_open_gguf if files.gguf else _open_safetensors)(file, files.digest)
    except DataFileError:
        raise
    # What a damaged file makes its reader raise is not documented.
    except Exception as error:
        raise DataFileError(f"{file} cannot be read, and may be damaged: {error}") from error


def _open_gguf(file: Path, digest: str) -> LanguageModel:
    """Read what a GGUF file says of itself."""
    import gguf

    reader = gguf.GGUFReader(file)
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def field(name: str, default: Any = None) -> Any:
        known = reader.fields.get(name)
        if known is None and default is None:
            raise DataFileError(f"{file} says nothing of {name}")
        return default if known is None else known.contents()

    _require(file, "architecture", field("general.architecture"), "llama")
    _require(file, "rope scaling", field("llama.rope.scaling.type", "none"), "none")
    for name in tensors:
        if name.endswith(".bias") or name == "rope_freqs.weight":
            raise DataFileError(f"{file} has {name}, which the accelerators have no place for")
    width, heads = field("llama.embedding_length"), field("llama.attention.head_count")
    embedding = tensors["token_embd.weight"]
    shape = ModelShape(
        layers=field("llama.block_count"),
        width=width,
        heads=heads,
        kv_heads=field("llama.attention.head_count_kv", heads),
        head_size=field("llama.attention.key_length", width // heads),
        feed_forward=field("llama.feed_forward_length"),
        vocabulary=int(embedding.shape[1]),
        longest_context=field("llama.context_length"),
        rope_base=float(field("llama.rope.freq_base", 10_000.0)),
        norm_epsilon=float(field("llama.attention.layer_norm_rms_epsilon")),
    )
    whole = {"embedding": "token_embd", "final_norm": "output_norm"}
    whole["projection"] = "output" if "output.weight" in tensors else "token_embd"

    def tensor(layer: int | None, name: str) -> Singles:
        theirs = whole[name] if layer is None else f"blk.{layer}.{GGUF_NAMES[name]}"
        found = tensors[f"{theirs}.weight"]
        return np.asarray(gguf.dequantize(found.data, found.tensor_type), np.float32)

    stop = field("tokenizer.ggml.eos_token_id", -1)
    return _checked(LanguageModel(file, digest, shape, frozenset({stop}) - {-1}, tensor))


def _open_safetensors(file: Path, digest: str) -> LanguageModel:
    """Read a safetensors file, and the `config.json` beside it."""
    from safetensors import safe_open

    beside = file.with_name("config.json")
    if not beside.is_file():
        raise DataFileError(f"beside {file} there must be its config.json")
    config = json.loads(beside.read_text())
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    _require(file, "architecture", config.get("model_type"), "llama")
    _require(file, "rope scaling", rope.get("rope_type", "default"), "default")
    _require(file, "activation", config.get("hidden_act", "silu"), "silu")
    opened: Any = safe_open(file, framework="pt")
    names = set(opened.keys())
    if bias := sorted(name for name in names if name.endswith(".bias")):
        raise DataFileError(f"{file} has {bias[0]}, which the accelerators have no place for")
    heads, width = config["num_attention_heads"], config["hidden_size"]
    shape = ModelShape(
        layers=config["num_hidden_layers"],
        width=width,
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_size=config.get("head_dim") or width // heads,
        feed_forward=config["intermediate_size"],
        vocabulary=config["vocab_size"],
        longest_context=config["max_position_embeddings"],
        rope_base=float(rope.get("rope_theta") or config.get("rope_theta", 10_000.0)),
        norm_epsilon=float(config["rms_norm_eps"]),
    )
    whole = {"embedding": "model.embed_tokens", "final_norm": "model.norm"}
    whole["projection"] = "lm_head" if "lm_head.weight" in names else whole["embedding"]

    def tensor(layer: int | None, name: str) -> Singles:
        theirs = whole[name] if layer is None else f"model.layers.{layer}.{SAFETENSORS_NAMES[name]}"
        matrix = opened.get_tensor(f"{theirs}.weight").float().numpy()
        if name in ("query", "key"):
            # Here an element turns with the one half a head behind.
            halves = matrix.reshape(-1, 2, shape.head_size // 2, matrix.shape[1])
            matrix = halves.swapaxes(1, 2).reshape(matrix.shape)
        return matrix

    end = config.get("eos_token_id")
    stop = frozenset() if end is None else frozenset(end if isinstance(end, list) else [end])
    return _checked(LanguageModel(file, digest, shape, stop, tensor))


def _require(file: Path, what: str, found: Any, wanted: str) -> None:
    if found != wanted:
        raise DataFileError(f"{file} must have the {what} {wanted!r}, not {found!r}")


def _checked(model: LanguageModel) -> LanguageModel:
    """Return a model whose first layer has the sizes that the file states."""
    s = model.shape
    sizes = {
        "query": (s.heads * s.head_size, s.width),
        "key": (s.kv_heads * s.head_size, s.width),
        "down": (s.width, s.feed_forward),
        "feed_forward_norm": (s.width,),
    }
    for name, size in sizes.items():
        found = model.tensor(s.layers - 1, name).shape
        if found != size:
            raise DataFileError(f"the last layer's {name} must have the shape {size}, not {found}")
    return model
