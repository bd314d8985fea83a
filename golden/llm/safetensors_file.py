"""Reader of a decoder in safetensors files, with the configuration in the same folder."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from golden.llm.configuration import configured
from golden.llm.layers import rotary_angles
from golden.llm.model_files import DataFileError, ModelFiles
from golden.llm.stored_tensors import Contents, Names, Singles, Stored, reader_of
from hdl.model_shape import ModelShape

NAMES = Names(
    whole={
        "embedding": "model.embed_tokens",
        "final_norm": "model.norm",
        "projection": "lm_head",
    },
    layer="model.layers.{}.",
    parts={
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "output": "self_attn.o_proj",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
        "input_norm": "input_layernorm",
        "feed_forward_norm": "post_attention_layernorm",
    },
)
FORMATS = {"F32": 2.0**-23, "F16": 2.0**-10, "BF16": 2.0**-7}
"""The supported formats, and the distance from 1 to the next representable number."""

FREQUENCIES = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
"""Frequencies of the rotary embedding, which files of 2023 store and which follow from its base."""


def open_safetensors(files: ModelFiles) -> Contents:
    """Read a decoder's configuration and the headers of its safetensors files.

    Raises
    ------
    DataFileError
        A part is missing, corrupted, or not implemented.
    """
    shape, tied, stop = configured(files)
    stored: dict[str, Stored] = {}
    for file in files.weights:
        for name, found in _stored(file, shape).items():
            if name in stored:
                raise DataFileError(f"{name} must be in one part of {files.named}, not in two")
            stored[name] = found
    read = reader_of(files.named, shape, NAMES, stored, tied=tied)

    def tensor(layer: int | None, name: str) -> Singles:
        matrix = read(layer, name)
        if name not in ("query", "key"):
            return matrix
        # In these files rotary pairs are half a head apart; make them adjacent.
        halves = matrix.reshape(-1, 2, shape.head_size // 2, matrix.shape[1])
        return halves.swapaxes(1, 2).reshape(matrix.shape)

    return Contents(shape=shape, stop=stop, tensor=tensor)


def _stored(file: Path, shape: ModelShape) -> Mapping[str, Stored]:
    """Return the tensors of one file, without the frequencies of the rotary embedding."""
    from safetensors import safe_open

    opened: Any = safe_open(file, framework="pt")

    def read(name: str) -> Singles:
        return opened.get_tensor(name).float().numpy()

    stored = {}
    for name in sorted(opened.keys()):
        header = opened.get_slice(name)
        kind = header.get_dtype()
        if kind not in FORMATS:
            raise DataFileError(
                f"{name} in {file} must be stored as {', '.join(FORMATS)}, not {kind}: quantised "
                "weights are supported only in GGUF files"
            )
        if not FREQUENCIES.fullmatch(name):
            own = lambda name=name: read(name)  # noqa: E731
            stored[name] = Stored(tuple(header.get_shape()), own)
            continue
        wanted = rotary_angles(np.array(1), shape.head_size, shape.rope_base)
        found = read(name)
        # float16 has reduced precision below 2**-14, hence the absolute tolerance.
        if found.shape != wanted.shape or not np.allclose(found, wanted, FORMATS[kind], 2.0**-25):
            raise DataFileError(f"{name} in {file} must follow from rope_theta, {shape.rope_base}")
    return stored
