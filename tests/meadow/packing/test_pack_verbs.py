"""Tests of `make pack` and `make unpack`: files of all kinds, and rejected files."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch

from golden.meadow.packing.model_file import Unusable, open_model, quantised
from systola.cli import main
from tests.meadow.packing.test_packed_file import resealed


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def matrix(rows: int, columns: int, dtype: Any = np.int8) -> Any:
    return np.random.default_rng(1).integers(-5, 6, (rows, columns)).astype(dtype)


@pytest.mark.parametrize("level", ["naive", "packet", "reindexed", "classes", "raw"])
def test_unpacked_model_equals_original(tmp_path: Path, level: str) -> None:
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
    assert "omitted" in packed.output
    assert {file.name for file in out.iterdir()} == {"weights.packed", "systola.sha256"}
    again = run("unpack", "--out", tmp_path / "back", "--model", out)
    assert again.exit_code == 0, again.output
    back = load_file(tmp_path / "back" / "weights.safetensors")
    assert set(back) == {"a/b.weight", "wide", "wide.scales"}
    assert all(np.array_equal(back[name], tensors[name]) for name in back)
    assert back["wide"].dtype == np.int8
    # The unpacked file can be packed again, into the same folder.
    again = run("pack", "--out", out, "--model", tmp_path / "back" / "weights.safetensors")
    assert again.exit_code == 0, again.output


REAL = torch.randn(200, 300, generator=torch.Generator().manual_seed(1))
KINDS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@pytest.mark.parametrize("scale", ["tensor", "channel"])
def test_real_weights_of_safetensors_are_rounded(tmp_path: Path, scale: str) -> None:
    tensors = {str(kind): REAL.to(kind) for kind in (*KINDS, *FP8)}
    save_torch(tensors, tmp_path / "m.safetensors")
    back = packed_and_unpacked(tmp_path, "--scale", scale)
    for name, weights in tensors.items():
        true = weights.double().numpy()
        largest = np.abs(true).max(None if scale == "tensor" else 1, keepdims=True)
        step = back[name + ".scales"].reshape(-1, 1).astype(np.float64)
        np.testing.assert_allclose(step, largest / 127, rtol=1e-6)
        # Rounding to nearest has an error of half a step. Quotient and scale each add a relative
        # error of 2**-24 of up to 127 steps.
        bound = 0.5 + 2 * 127 * 2.0**-24
        assert (np.abs(back[name] * step - true) <= bound * step).all()


@pytest.mark.parametrize("suffix", ["weight_scale", "weight_scale_inv"])
@pytest.mark.parametrize("shape", [(), (1,), (200,), (200, 1), (2, 3)])
def test_fp8_weights_are_multiplied_by_their_scales(
    tmp_path: Path, suffix: str, shape: tuple[int, ...]
) -> None:
    weights = REAL.to(torch.float8_e4m3fn)
    factors = torch.rand(shape, generator=torch.Generator().manual_seed(2)) + 0.5
    save_torch({"a.weight": weights, f"a.{suffix}": factors}, tmp_path / "m.safetensors")
    back = packed_and_unpacked(tmp_path, "--scale", "channel")
    assert set(back) == {"a.weight", "a.weight.scales"}
    each = factors.double().numpy()
    if shape == (2, 3):
        each = np.kron(each, np.ones((128, 128)))[:200, :300]
    elif shape:
        each = each.reshape(-1, 1)
    true = weights.double().numpy() * each
    step = back["a.weight.scales"].reshape(-1, 1)
    assert np.abs(back["a.weight"] * step - true).max() <= 0.501 * step.max()


def test_one_row_of_blocks_scales_its_blocks(tmp_path: Path) -> None:
    weights = REAL[:5].to(torch.float8_e4m3fn)
    blocks = torch.tensor([[1.0, 2.0, 4.0]])
    tensors = {"a.weight": weights, "a.weight_scale_inv": blocks}
    save_torch(tensors, tmp_path / "m.safetensors")
    back = packed_and_unpacked(tmp_path, "--scale", "channel")
    true = weights.double().numpy() * np.kron(blocks.numpy(), np.ones((128, 128)))[:5, :300]
    step = back["a.weight.scales"].reshape(-1, 1)
    assert np.abs(back["a.weight"] * step - true).max() <= 0.501 * step.max()


@pytest.mark.parametrize("kind", [torch.int8, torch.float8_e4m3fn])
def test_scales_of_columns_are_unusable_where_there_are_as_many_rows(
    tmp_path: Path, kind: torch.dtype
) -> None:
    square = torch.arange(36).reshape(6, 6).to(kind)
    tensors = {"a.weight": square, "a.weight_scale": torch.ones(1, 6), "b": REAL}
    save_torch(tensors, tmp_path / "m.safetensors")
    rule = "scales must be 1, 6 (a factor for each row), or 1 x 1 of blocks of 128, not (1, 6)"
    read = dict(open_model(tmp_path / "m.safetensors", "tensor").matrices())
    assert isinstance(read["a.weight"], Unusable) and read["a.weight"].reason == rule
    assert set(packed_and_unpacked(tmp_path, reasons={"a.weight": ""})) == {"b", "b.scales"}


@pytest.mark.parametrize("point", [0, 3])
def test_integers_with_zero_points_other_than_0_are_unusable(tmp_path: Path, point: int) -> None:
    points = torch.zeros(4, 1, dtype=torch.int8)
    points[2] = point
    tensors = {
        "a.weight": torch.tensor(matrix(4, 6)),
        "a.weight_scale": torch.ones(4, 1),
        "a.weight_zero_point": points,
    }
    save_torch(tensors, tmp_path / "m.safetensors")
    (read,) = dict(open_model(tmp_path / "m.safetensors", "tensor").matrices()).values()
    assert isinstance(read, Unusable) == bool(point)
    if isinstance(read, Unusable):
        assert read.reason == "zero points must be 0, not [3]"


def test_int8_weights_keep_their_integers_and_scales(tmp_path: Path) -> None:
    integers = np.random.default_rng(3).integers(-128, 128, (6, 9)).astype(np.int8)
    rows = torch.arange(1.0, 7.0)
    tensors = {
        "a.weight": torch.tensor(integers),
        "a.SCB": rows * 127,
        "b.weight": torch.tensor(integers),
        "b.weight_scale": rows.reshape(6, 1).bfloat16(),
        "c.weight": torch.tensor(integers),
        "c.weight.scales": torch.tensor([0.5]),
    }
    save_torch(tensors, tmp_path / "m.safetensors")
    back = packed_and_unpacked(tmp_path)
    assert set(back) == {f"{name}.weight{end}" for name in "abc" for end in ("", ".scales")}
    for name in "abc":
        assert np.array_equal(back[f"{name}.weight"], integers)
    assert back["a.weight.scales"].tolist() == back["b.weight.scales"].tolist() == rows.tolist()
    assert back["c.weight.scales"].tolist() == [0.5]


def test_an_unusable_matrix_is_listed_and_the_others_are_packed(tmp_path: Path) -> None:
    tensors = {
        "good": matrix(4, 6),
        "": matrix(2, 2),
        "wide": np.array([[195, 205]], np.int32),
        "empty": np.zeros((0, 4), np.int8),
        "infinite": np.full((2, 2), np.inf, np.float32),
        "five": matrix(4, 6),
        "five.scales": np.ones(5, np.float32),
        "own": matrix(4, 6),
        "own.scales": matrix(4, 6, np.float32),
        "w": matrix(4, 6, np.float32),
        "w.scales": matrix(4, 6, np.float32),
    }
    save_file(tensors, tmp_path / "m.safetensors")
    back = packed_and_unpacked(tmp_path, reasons=REASONS)
    matrices = {name for name in back if not name.endswith(".scales") or name == "own.scales"}
    assert matrices == {"good", "", "own", "own.scales", "w"}
    assert all(np.array_equal(back[name], tensors[name]) for name in ("good", "", "own"))


REASONS = {
    "wide": "weights must be from -128 to 127, not (195, 205)",
    "empty": "a matrix must have rows and columns, not (0, 4)",
    "infinite": "weights must be finite, not infinite or not a number",
    "five": "scales must be 1, 4 (a factor for each row), or 1 x 1 of blocks of 128, not (5,)",
    "w.scales": "its name must not be that of scales or metadata",
}


def test_a_matrix_whose_scales_have_the_name_of_another_is_unusable(tmp_path: Path) -> None:
    """A GGUF file may list names in any order."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for name in ("w.scales", "w", "__metadata__"):
        writer.add_tensor(name, matrix(8, 64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = dict(open_model(tmp_path / "m.gguf", "tensor").matrices())
    assert [name for name, item in read.items() if isinstance(item, Unusable)] == [
        "w",
        "__metadata__",
    ]
    back = packed_and_unpacked(tmp_path, file="m.gguf")
    assert set(back) == {"w.scales", "w.scales.scales"}


def test_subnormal_weights_have_a_scale_above_zero() -> None:
    integers, scales = quantised(np.full((1, 2), 1e-45, np.float32), "tensor")
    assert scales[0] > 0
    assert (integers * scales).tolist() == [[np.float32(1e-45)] * 2]


def packed_and_unpacked(
    folder: Path,
    *options: str,
    file: str = "m.safetensors",
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the tensors that `unpack` writes from the output of `pack`."""
    out = folder / "out"
    packed = run("pack", "--out", out, "--model", folder / file, *options)
    assert packed.exit_code == 0, packed.output
    assert ("reason" in packed.output) == (bool(reasons) or file.endswith("gguf"))
    words = " ".join(packed.output.replace("\u2502", " ").split())
    for name, reason in reasons.items():
        assert f" {name} {reason}" in words
    again = run("unpack", "--out", folder / "back", "--model", out)
    assert again.exit_code == 0, again.output
    return load_file(folder / "back" / "weights.safetensors")


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
        ((_name, read),) = model.matrices()
        assert not isinstance(read, Unusable)
        integers, found = read
        assert found.shape == (scales,) and model.left_out == ["norm"]
        assert np.abs(integers * found.reshape(-1, 1) - weights).max() <= found.max() * 0.501


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("x.npy", matrix(3, 3, np.complex64), "integers or real numbers, not 'complex64'"),
        ("x.npy", np.array([[np.inf]]), "weights must be finite"),
        ("x.npy", np.array([[1e300]]), "weights must be finite"),
        ("x.npy", np.array([[200]]), "weights must be from -128 to 127, not (200, 200)"),
        ("x.npy", np.zeros((2, 2, 2), int), "a matrix must have rows and columns, not (2, 2, 2)"),
        ("x.npy", np.zeros((0, 4), int), "a matrix must have rows and columns, not (0, 4)"),
        ("x.npy", None, "MODEL cannot be read as npy"),
        ("x.safetensors", None, "MODEL cannot be read as safetensors"),
        ("x.gguf", None, "MODEL cannot be read as gguf"),
        ("x.pt", None, "must be a file whose name ends with one of .gguf, .safetensors, .npy"),
    ],
)
def test_rejects_unpackable_files(tmp_path: Path, name: str, array: Any, message: str) -> None:
    file, out = tmp_path / name, tmp_path / "out"
    if array is None:
        file.write_bytes(b"no model")
    else:
        np.save(file, array)
    result = run("pack", "--out", out, "--model", file)
    assert result.exit_code == 2 and message in " ".join(result.output.split()), result.output
    assert not out.exists()


def test_rejects_model_without_matrices(tmp_path: Path) -> None:
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
def test_rejects_illegal_options(tmp_path: Path, option: str, value: Any, message: str) -> None:
    result = run("pack", "--out", tmp_path / "out", option, value)
    assert result.exit_code == 2 and message in " ".join(result.output.split()), result.output
    assert not (tmp_path / "out").exists()


def test_rejects_corrupted_files_and_foreign_folders(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", matrix(9, 9))
    out, model = tmp_path / "o", tmp_path / "m.npy"
    assert run("pack", "--out", out, "--model", model).exit_code == 0
    corrupted = bytearray((out / "weights.packed").read_bytes())
    corrupted[-40] ^= 1
    (tmp_path / "corrupted").write_bytes(corrupted)
    result = run("unpack", "--out", tmp_path / "back", "--model", tmp_path / "corrupted")
    assert result.exit_code == 2 and "the checksum must be" in result.output
    assert not (tmp_path / "back").exists()
    sealed = resealed(
        (out / "weights.packed").read_bytes(),
        lambda header: header["matrices"][0].update(shape=[1 << 31, 1 << 31]),
    )
    (tmp_path / "huge").write_bytes(sealed)
    result = run("unpack", "--out", tmp_path / "back", "--model", tmp_path / "huge")
    assert result.exit_code == 2 and "shape of 'm' must be of at most" in result.output
    assert not (tmp_path / "back").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").write_text("kept")
    assert run("pack", "--out", tmp_path / "mine", "--model", model).exit_code == 2
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["note"]
