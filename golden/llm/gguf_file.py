"""Reader of a decoder in a GGUF file, which rejects unknown metadata keys."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from golden.llm.configuration import checked_shape, count, end_tokens, positive
from golden.llm.model_files import DataFileError, ModelFiles
from golden.llm.stored_tensors import Contents, Names, Singles, Stored, reader_of
from hdl.model_shape import ModelShape

if TYPE_CHECKING:
    import gguf

NAMES = Names(
    whole={"embedding": "token_embd", "final_norm": "output_norm", "projection": "output"},
    layer="blk.{}.",
    parts={
        "query": "attn_q",
        "key": "attn_k",
        "value": "attn_v",
        "output": "attn_output",
        "gate": "ffn_gate",
        "up": "ffn_up",
        "down": "ffn_down",
        "input_norm": "attn_norm",
        "feed_forward_norm": "ffn_norm",
    },
)
FIXED: Mapping[str, tuple[Any, ...]] = {
    "general.architecture": ("llama",),
    "general.type": ("model",),
    "llama.rope.scaling.type": ("none",),
    "llama.rope.scaling.factor": (0.0, 1.0),
    "llama.rope.scale_linear": (0.0, 1.0),
    "llama.attention.causal": (True,),
    "llama.expert_count": (0,),
    "llama.expert_used_count": (0,),
    "llama.tensor_data_layout": ("Meta AI original pth",),
    "split.count": (0, 1),
    "tokenizer.ggml.model": ("gpt2", "llama"),
    "tokenizer.ggml.add_eos_token": (False,),
    "tokenizer.ggml.add_sep_token": (False,),
    "tokenizer.ggml.remove_extra_whitespaces": (False,),
}
"""Keys that are accepted only with these values; 0 means no scaling in llama.cpp."""

READ = frozenset(
    (
        "llama.block_count llama.embedding_length llama.attention.head_count "
        "llama.attention.head_count_kv llama.attention.key_length llama.attention.value_length "
        "llama.feed_forward_length llama.context_length llama.rope.freq_base "
        "llama.rope.dimension_count llama.attention.layer_norm_rms_epsilon llama.vocab_size "
        "split.no split.tensors.count tokenizer.ggml.pre tokenizer.ggml.tokens "
        "tokenizer.ggml.token_type tokenizer.ggml.scores tokenizer.ggml.merges "
        "tokenizer.ggml.add_bos_token tokenizer.ggml.add_space_prefix"
    ).split()
)
"""Keys that this module, `gguf` or the tokenizer reads."""

NEUTRAL = ("GGUF.", "general.", "quantize.", "mradermacher.", "tokenizer.chat_template")
"""Prefixes of keys that describe the file and do not affect the logits."""

ENDS = ("eos", "eot", "eom")
"""The tokens that end a text: end of sequence, of turn, of message."""


@dataclass(frozen=True, eq=False)
class Header:
    """The metadata of a GGUF file, and the positions of its tensors.

    Members
    -------
    file : Path
        The file.
    fields : dict
        The metadata by key.
    tensors : list of gguf.ReaderTensor
        The tensors, which are read from the disk on access.
    """

    file: Path
    fields: Mapping[str, Any]
    tensors: "list[gguf.ReaderTensor]"


def read_header(file: Path) -> Header:
    """Read the header of a GGUF file, which takes two seconds for a large vocabulary."""
    import gguf

    reader = gguf.GGUFReader(file)
    fields = {name: found.contents() for name, found in reader.fields.items()}
    return Header(file, fields, reader.tensors)


def open_gguf(files: ModelFiles) -> Contents:
    """Read a decoder's metadata and the header of its tensors.

    Raises
    ------
    DataFileError
        A part is missing, corrupted, or not implemented.
    """
    return contents_of(read_header(files.named))


def contents_of(header: Header) -> Contents:
    """Return the contents of a GGUF file whose header is read, as `open_gguf` does."""
    import gguf

    file, fields = header.file, header.fields
    _require_understood(file, fields)
    stored: dict[str, Stored] = {}
    for tensor in header.tensors:
        stored[tensor.name] = Stored(
            # GGUF lists the dimensions from the innermost to the outermost.
            tuple(int(size) for size in reversed(tensor.shape)),
            _reader(file, tensor, gguf.dequantize),
        )
    shape = _shape_of(file, fields)
    return Contents(
        shape=shape,
        stop=frozenset().union(
            *(
                end_tokens(file, key, fields.get(key))
                for key in (f"tokenizer.ggml.{name}_token_id" for name in ENDS)
            )
        ),
        tensor=reader_of(file, shape, NAMES, stored, tied="output.weight" not in stored),
    )


def _reader(file: Path, tensor: Any, dequantize: Callable[..., Any]) -> Callable[[], Singles]:
    """Return the function that reads a tensor, after a test of its format on one row."""

    def read(rows: slice = slice(None)) -> Singles:
        return np.asarray(dequantize(tensor.data[rows], tensor.tensor_type), np.float32)

    try:
        read(slice(1))
    except NotImplementedError as error:
        raise DataFileError(
            f"{tensor.name} in {file} has the unsupported format {tensor.tensor_type.name}"
        ) from error
    return read


def _require_understood(file: Path, fields: Mapping[str, Any]) -> None:
    """Reject a key or a value that is not implemented."""
    if fields.get("split.count", 0) not in FIXED["split.count"]:
        raise DataFileError(
            f"{file} is a part of a split model, which must be merged into one file first "
            "(llama-gguf-split --merge)"
        )
    for key, value in fields.items():
        if key in FIXED:
            if value not in FIXED[key]:
                wanted = " or ".join(repr(own) for own in FIXED[key])
                raise DataFileError(f"{key} in {file} must be {wanted}, not {value!r}")
        elif not (key in READ or key.startswith(NEUTRAL) or _names_token(key)):
            shown = f"a list of {len(value)}" if isinstance(value, list) else repr(value)
            raise DataFileError(
                f"{file} has {key} = {shown}, which the accelerators do not implement"
            )
    if "general.architecture" not in fields:
        raise DataFileError(f"general.architecture in {file} must be 'llama' but is not set")


def _names_token(key: str) -> bool:
    """Whether a key contains the number of a special token, such as the padding token."""
    return key.startswith("tokenizer.ggml.") and key.endswith("_token_id")


def _shape_of(file: Path, fields: Mapping[str, Any]) -> ModelShape:
    """Return the dimensions that the metadata sets."""

    def size(name: str, default: int | None = None) -> int:
        key = f"llama.{name}"
        return count(file, key, fields.get(key, default))

    def require(name: str, wanted: int) -> None:
        if (found := size(name, wanted)) != wanted:
            raise DataFileError(f"llama.{name} in {file} must be {wanted}, not {found}")

    hidden_size, heads = size("embedding_length"), size("attention.head_count")
    head_size = size("attention.key_length", hidden_size // heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        require(name, head_size)
    tokens = fields.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list):
        raise DataFileError(f"{file} must contain a tokenizer in tokenizer.ggml.tokens")
    require("vocab_size", len(tokens))
    return checked_shape(
        file,
        hidden_size=hidden_size,
        intermediate_size=size("feed_forward_length"),
        heads=heads,
        kv_heads=size("attention.head_count_kv", heads),
        head_size=head_size,
        layers=size("block_count"),
        vocabulary_size=len(tokens),
        context_length=size("context_length"),
        rope_base=positive(
            file, "llama.rope.freq_base", fields.get("llama.rope.freq_base", 10_000.0)
        ),
        norm_epsilon=positive(
            file,
            "llama.attention.layer_norm_rms_epsilon",
            fields.get("llama.attention.layer_norm_rms_epsilon"),
        ),
    )
