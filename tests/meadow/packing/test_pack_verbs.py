"""`make pack` and `make unpack`: files of all kinds, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file

from golden.meadow.packing.model_file import open_model
from systola.cli import main


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def matrix(rows: int, columns: int, dtype: Any = np.int8) -> Any:
    return np.random.default_rng(1).integers(-5, 6, (rows, columns)).astype(dtype)


@pytest.mark.parametrize("level", ["naive", "packet", "reindexed", "classes", "raw"])
def test_a_model_comes_back(tmp_path: Path, level: str) -> None:
    tensors = {
        "a/b.weight": matrix(30, 50),
        "wide": matrix(3, 200, np.int32),
        "wide.scales": np.array([0.5], np.float32),
        "norm": np.ones(5, np.float32),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    out = tmp_path / "out"
    packed = run("pack", "--out", out, "--model", tmp_path / "model.safetensors", "--level", level)
    assert packed.exit_code == 0, packed.output
    assert "left out" in packed.output
    assert {file.name for file in out.iterdir()} == {"weights.packed", "systola.sha256"}
    again = run("unpack", "--out", tmp_path / "back", "--model", out)
    assert again.exit_code == 0, again.output
    back = load_file(tmp_path / "back" / "weights.safetensors")
    assert set(back) == {"a/b.weight", "wide", "wide.scales"}
    assert all(np.array_equal(back[name], tensors[name]) for name in back)
    assert back["wide"].dtype == np.int8
    # What was written may be packed and written again.
    again = run("pack", "--out", out, "--model", tmp_path / "back" / "weights.safetensors")
    assert again.exit_code == 0, again.output


def test_npy_is_one_matrix(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", matrix(9, 9))
    assert run("pack", "--out", tmp_path / "o", "--model", tmp_path / "m.npy").exit_code == 0


def test_real_weights_of_a_gguf_are_rounded(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    weights = np.random.default_rng(2).normal(0, 1, (8, 64)).astype(np.float32)
    writer.add_tensor("w", weights)
    writer.add_tensor("norm", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for scale, scales in (("tensor", 1), ("channel", 8)):
        model = open_model(tmp_path / "m.gguf", scale)
        ((_name, integers, found),) = model.matrices()
        assert found.shape == (scales,) and model.left_out == ["norm"]
        assert np.abs(integers * found.reshape(-1, 1) - weights).max() <= found.max() * 0.501


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("x.npy", matrix(3, 3, np.float32), "a matrix must have integers, not 'float32'"),
        ("x.npy", np.array([[200]]), "weights must be from -128 to 127, not (200, 200)"),
        ("x.npy", np.zeros((2, 2, 2), int), "a matrix must have rows and columns, not (2, 2, 2)"),
        ("x.npy", np.zeros((0, 4), int), "a matrix must have rows and columns, not (0, 4)"),
        ("x.npy", None, "MODEL cannot be read as npy"),
        ("x.safetensors", None, "MODEL cannot be read as safetensors"),
        ("x.gguf", None, "MODEL cannot be read as gguf"),
        ("x.pt", None, "must be a file whose name ends with one of .gguf, .safetensors, .npy"),
    ],
)
def test_what_cannot_be_packed_ends_with_2(
    tmp_path: Path, name: str, array: Any, message: str
) -> None:
    file, out = tmp_path / name, tmp_path / "out"
    if array is None:
        file.write_bytes(b"nothing of the kind")
    else:
        np.save(file, array)
    result = run("pack", "--out", out, "--model", file)
    assert result.exit_code == 2 and message in " ".join(result.output.split()), result.output
    assert not out.exists()


def test_a_model_without_matrices_ends_with_2(tmp_path: Path) -> None:
    save_file({"norm": np.ones(5, np.float32)}, tmp_path / "m.safetensors")
    result = run("pack", "--out", tmp_path / "out", "--model", tmp_path / "m.safetensors")
    assert result.exit_code == 2 and "MODEL must have a matrix" in result.output


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--level", "best", "LEVEL must be one of naive, packet"),
        ("--chunk", 3, "CHUNK must be one of 1, 2, 4, not 3"),
        ("--packet-bits", 96, "PACKET_BITS must be one of 64, 128, 256, 512, 1024, not 96"),
        ("--scale", "row", "SCALE must be one of 'tensor', 'channel', not 'row'"),
        ("--model", "absent.npy", "MODEL must be a file that exists, not absent.npy"),
    ],
)
def test_wrong_options_end_with_2(tmp_path: Path, option: str, value: Any, message: str) -> None:
    result = run("pack", "--out", tmp_path / "out", option, value)
    assert result.exit_code == 2 and message in " ".join(result.output.split()), result.output
    assert not (tmp_path / "out").exists()


def test_damage_and_foreign_folders_end_with_2(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", matrix(9, 9))
    out, model = tmp_path / "o", tmp_path / "m.npy"
    assert run("pack", "--out", out, "--model", model).exit_code == 0
    damaged = bytearray((out / "weights.packed").read_bytes())
    damaged[-40] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    result = run("unpack", "--out", tmp_path / "back", "--model", tmp_path / "damaged")
    assert result.exit_code == 2 and "the checksum must be" in result.output
    assert not (tmp_path / "back").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").write_text("kept")
    assert run("pack", "--out", tmp_path / "mine", "--model", model).exit_code == 2
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["note"]
