"""What a path names as a model: the files that decide, one digest of them, or a sentence."""

import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest

from golden.llm.model_files import NEIGHBOURS, DataFileError, model_files

SHARDS = tuple(f"model-{part:05}-of-00002.safetensors" for part in (1, 2))
INDEX = "model.safetensors.index.json"


def write_split(folder: Path) -> Path:
    """Write the names of a split model, with bytes that no tensor reader takes."""
    for name in (*SHARDS, *NEIGHBOURS):
        (folder / name).write_text(f"the bytes of {name}")
    map_ = {"first": SHARDS[0], "second": SHARDS[1], "third": SHARDS[1]}
    (folder / INDEX).write_text(json.dumps({"weight_map": map_}))
    return folder


@pytest.mark.parametrize("name", [INDEX, *SHARDS, *NEIGHBOURS])
def test_each_deciding_byte_changes_digest(tmp_path: Path, name: str) -> None:
    before = model_files(write_split(tmp_path)).digest
    (tmp_path / "README.md").write_text("no file of the model")
    assert model_files(tmp_path).digest == before
    changed = tmp_path / name
    changed.write_text(changed.read_text() + " ")
    assert model_files(tmp_path).digest != before


def test_missing_neighbour_changes_digest(tmp_path: Path) -> None:
    before = model_files(write_split(tmp_path)).digest
    (tmp_path / "generation_config.json").unlink()
    assert model_files(tmp_path).digest != before


def test_digest_is_that_of_the_listing_of_sha256sum(tmp_path: Path) -> None:
    names = sorted([INDEX, *SHARDS, *NEIGHBOURS])
    write_split(tmp_path)
    listing = subprocess.run(["sha256sum", *names], cwd=tmp_path, capture_output=True, check=True)
    assert model_files(tmp_path).digest == hashlib.sha256(listing.stdout).hexdigest()


@pytest.mark.parametrize("name", [".", INDEX, SHARDS[0], SHARDS[1]])
def test_folder_index_and_shard_name_the_split_model(tmp_path: Path, name: str) -> None:
    files = model_files(write_split(tmp_path) / name)
    assert files.named.name == INDEX
    assert [path.name for path in files.weights] == list(SHARDS)
    assert {path.name for path in files.neighbours} == set(NEIGHBOURS)


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_only_part_is_a_whole_model(tmp_path: Path, kind: str) -> None:
    """Some publishers number a model that has one part."""
    part = tmp_path / f"model-00001-of-00001.{kind}"
    part.touch()
    for path in (part, tmp_path):
        assert model_files(path).weights == (part,)


def test_folder_of_links_holds_the_named_weights_only(tmp_path: Path) -> None:
    write_split(tmp_path)
    for name in ("model.safetensors", "finetune.safetensors", "adapter_config.json"):
        (tmp_path / name).write_text(name)
    with model_files(tmp_path / "finetune.safetensors").alone() as folder:
        assert {path.name for path in folder.iterdir()} == {"model.safetensors", *NEIGHBOURS}
        assert (folder / "model.safetensors").read_text() == "finetune.safetensors"
    with model_files(tmp_path / INDEX).alone() as folder:
        assert {path.name for path in folder.iterdir()} == {INDEX, *SHARDS, *NEIGHBOURS}
    assert not folder.exists()


def test_folder_with_standard_name_takes_it(tmp_path: Path) -> None:
    for name in ("model.safetensors", "other.safetensors", "third.gguf"):
        (tmp_path / name).touch()
    assert model_files(tmp_path).named.name == "model.safetensors"


def test_folder_with_one_file_takes_it(tmp_path: Path) -> None:
    (tmp_path / "only.gguf").touch()
    assert model_files(tmp_path).named.name == "only.gguf"


@pytest.mark.parametrize(
    ("names", "path", "message"),
    [
        (["a.gguf", "b.safetensors"], "", "must name one of the model files in .*: a.gguf, b.saf"),
        ([], "", r"model\.safetensors does not exist"),
        (["model.bin"], "model.bin", "must end in .gguf, .safetensors or .* not 'model.bin'"),
        (["m-00001-of-00002.gguf"], "m-00001-of-00002.gguf", "part of a split model"),
        (["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"], "", "part of a split model"),
        (list(SHARDS), "", r"part of a split model, whose model\.safetensors\.index\.json is"),
        (list(SHARDS), SHARDS[1], r"part of a split model, whose model\.safetensors\.index"),
    ],
)
def test_paths_that_name_no_model_are_refused(
    tmp_path: Path, names: list[str], path: str, message: str
) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(DataFileError, match=message):
        model_files(tmp_path / path)


def test_missing_shard_is_named(tmp_path: Path) -> None:
    (write_split(tmp_path) / SHARDS[1]).unlink()
    message = f"{SHARDS[1]}, a part of the split model {tmp_path / INDEX}, does not exist"
    with pytest.raises(DataFileError, match=re.escape(message)):
        model_files(tmp_path / INDEX)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": {"a": 1}}', '{"weight_map": {"a": "b/c"}}']
)
def test_corrupted_index_is_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(DataFileError, match="may be corrupted"):
        model_files(tmp_path)
