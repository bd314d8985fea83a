"""The files that determine a model's function, and one digest of all of them."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

INDEX = ".safetensors.index.json"
SHARD = re.compile(r"(.+)-\d{5}-of-(?!00001)\d{5}\.(gguf|safetensors)")
"""The names of the parts of a split model; a file that is the only part is a whole model."""

CONFIGURATION = "config.json"
GENERATION = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_SETTINGS = "tokenizer_config.json"
NEIGHBOURS = (
    CONFIGURATION,
    GENERATION,
    TOKENIZER,
    TOKENIZER_SETTINGS,
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.json",
    "chat_template.jinja",
)
"""Files in the folder of a safetensors file that `transformers` also reads."""


class DataFileError(RuntimeError):
    """A data file is missing, corrupted or not supported."""


@dataclass(frozen=True)
class ModelFiles:
    """The files that determine a model's function, without other files of their folder.

    Members
    -------
    named : Path
        The GGUF file, the safetensors file, or the index of a split safetensors file.
    weights : tuple of Path
        The files of the tensors, in the order of their names.
    neighbours : tuple of Path
        The existing files of configuration and tokenizer; empty for a GGUF file, which contains
        both.
    """

    named: Path
    weights: tuple[Path, ...]
    neighbours: tuple[Path, ...]

    @property
    def gguf(self) -> bool:
        """Whether the model is a GGUF file."""
        return self.named.suffix == ".gguf"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the files' listing by `sha256sum`, sorted by name."""
        listing = hashlib.sha256()
        for path in sorted({self.named, *self.weights, *self.neighbours}):
            with path.open("rb") as file:
                own = hashlib.file_digest(file, "sha256").hexdigest()
            listing.update(f"{own}  {path.name}\n".encode())
        return listing.hexdigest()

    def neighbour(self, name: str) -> Path | None:
        """Return the file of this name next to the weights, or None."""
        return next((path for path in self.neighbours if path.name == name), None)

    @contextmanager
    def alone(self) -> Iterator[Path]:
        """Yield a folder with links to these files only.

        `transformers` reads the weights of a folder from `model.safetensors` or its index, and
        applies other files, such as an adapter. The folder contains only the selected weights.
        """
        split = self.named.name.endswith(INDEX)
        standard = self.named.name if self.gguf else f"model{INDEX if split else '.safetensors'}"
        with TemporaryDirectory(prefix="systola-") as name:
            folder = Path(name)
            (folder / standard).symlink_to(self.named.resolve())
            for path in (*self.neighbours, *(self.weights if split else ())):
                (folder / path.name).symlink_to(path.resolve())
            yield folder


def model_files(path: Path) -> ModelFiles:
    """Return the files of the model at a path.

    Parameters
    ----------
    path : Path
        A GGUF file; a safetensors file; the index of a split model or one of its shards; or a
        folder that contains `model.safetensors`, `model.safetensors.index.json` or one model file.

    Raises
    ------
    DataFileError
        A file does not exist, the folder contains several models, or a GGUF file is split.
    """
    named = _in_folder(path) if path.is_dir() else path
    if not named.is_file():
        raise DataFileError(f"the model file {named} does not exist")
    if shard := SHARD.fullmatch(named.name):
        named = _whole(named, *shard.groups())
    if named.suffix == ".gguf":
        return ModelFiles(named, (named,), ())
    if named.name.endswith(INDEX):
        weights = _shards(named)
    elif named.suffix == ".safetensors":
        weights = (named,)
    else:
        raise DataFileError(
            f"a model file must end in .gguf, .safetensors or {INDEX}, not {named.name!r}"
        )
    neighbours = (named.with_name(name) for name in NEIGHBOURS)
    return ModelFiles(named, weights, tuple(path for path in neighbours if path.is_file()))


def _in_folder(folder: Path) -> Path:
    """Return a folder's model file: the one that `transformers` selects, or the only one."""
    standard = folder / "model.safetensors"
    for path in (standard, folder / f"model{INDEX}"):
        if path.exists():
            return path
    indices = sorted(folder.glob(f"*{INDEX}"))
    found = indices or sorted([*folder.glob("*.safetensors"), *folder.glob("*.gguf")])
    if len(found) > 1 and not all(SHARD.fullmatch(path.name) for path in found):
        names = ", ".join(path.name for path in found)
        raise DataFileError(f"MODEL must name one of the model files in {folder}: {names}")
    return found[0] if found else standard


def _whole(shard: Path, stem: str, kind: str) -> Path:
    """Return the index of the split model that a shard belongs to."""
    if kind == "gguf":
        raise DataFileError(
            f"{shard} is a part of a split model, which must be merged into one file first "
            "(llama-gguf-split --merge)"
        )
    index = shard.with_name(f"{stem}{INDEX}")
    if not index.is_file():
        raise DataFileError(f"{shard} is a part of a split model, whose {index.name} is missing")
    return index


def _shards(index: Path) -> tuple[Path, ...]:
    """Return the files that an index lists, after a check that all exist."""
    try:
        names = set(json.loads(index.read_bytes())["weight_map"].values())
        # A name with another folder raises ValueError: shards are in the folder of their index.
        shards = sorted(index.with_name(name) for name in names)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataFileError(f"{index} cannot be read and may be corrupted: {error}") from error
    for shard in shards:
        if not shard.is_file():
            raise DataFileError(f"{shard.name}, a part of the split model {index}, does not exist")
    return tuple(shards)
