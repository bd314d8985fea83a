"""`make pack TOP=meadow`: MEADOW's Verilog generates text from the file, or refuses it."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from golden.meadow.packing.weight_packer import Level
from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.meadow.parameters import MeadowParameters
from systola.cli import main
from systola.generation.meadow import MeadowSystem
from testbenches.meadow.accelerator_file import AcceleratorFile, levels_of, write_model
from testbenches.meadow.memory_images import MemoryImages
from testbenches.meadow.packed_model import IMAGES
from tests.generation.small_model import write_small_model
from tests.generation.test_meadow import PROMPT, SETTINGS, small_model
from tests.meadow.packing.test_packed_file import resealed

pytestmark = pytest.mark.depends("meadow")

TINY = ["--preset", "tiny"]


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dimensions: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32}
    dimensions["max_position_embeddings"] = 16
    return write_small_model(tmp_path_factory.mktemp("model"), **dimensions)


@pytest.fixture(scope="module")
def packed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the model, packed for preset `tiny`."""
    out = tmp_path_factory.mktemp("packed") / "out"
    result = run("pack", "--top", "meadow", *TINY, "--model", model, "--out", out)
    assert result.exit_code == 0, result.output
    return out


def generate(model: Path, *options: Any, top: str = "meadow") -> Result:
    fixed = ["--prompt", "3 1 4", "--tokens", "6", "--compare", "0", *TINY]
    return run("generate", "--top", top, "--model", model, *fixed, *options)


@pytest.fixture(scope="module")
def text(model: Path) -> str:
    """The text of a run that packs the model itself."""
    plain = generate(model)
    assert plain.exit_code == 0, plain.output
    return plain.output.splitlines()[0]


@pytest.mark.parametrize(
    "level",
    ["", "naive", *(pytest.param(one, marks=pytest.mark.full) for one in ("packet", "raw"))],
)
def test_text_equals_that_of_a_run_without_the_file(
    model: Path, packed: Path, text: str, tmp_path: Path, level: str
) -> None:
    """The run compares caches, sums and the bytes at every port with the golden model."""
    if level:
        packed = tmp_path / "out"
        options = [*TINY, "--model", model, "--out", packed, "--level", level]
        assert run("pack", "--top", "meadow", *options).exit_code == 0
    loaded = generate(model, "--packed", packed)
    assert loaded.exit_code == 0, loaded.output
    assert loaded.output.splitlines()[0] == text and len(text.split()) == 9
    assert re.search(r"golden model +│ tokens, their sums, caches", loaded.output)


def test_a_file_is_restored_by_unpack(packed: Path, tmp_path: Path) -> None:
    assert run("unpack", "--model", packed, "--out", tmp_path / "plain").exit_code == 0


EXPONENTS: MeadowParameters = entry_named("meadow").parameters("tiny_exponents")
CLASSES = replace(
    EXPONENTS,
    unpacker=replace(
        EXPONENTS.unpacker, chunk=1, unpacker=replace(EXPONENTS.unpacker.unpacker, classes=True)
    ),
)


@pytest.mark.parametrize("dimensions", [EXPONENTS, CLASSES], ids=["pairs", "classes"])
def test_memory_equals_that_of_a_run_without_the_file(
    tmp_path: Path, dimensions: MeadowParameters
) -> None:
    """With two unpackers, a scale per tile, and each level that the accelerator can read."""
    model = small_model()
    p = MeadowSystem.fitted(model, dimensions)
    system = MeadowSystem(model, p, SETTINGS, tmp_path)
    system.prepare_golden(lambda words: None)
    integers = system.packed.integers
    for level in levels_of(p):
        file = tmp_path / level
        write_model(file, integers, p, digest=model.digest, level=level)
        found = AcceleratorFile(file, p, model.digest).model()
        images = MemoryImages(p, Level[level.upper()])
        places = [images.add_layer(layer) for layer in integers.layers]
        head = images.add_vocabulary(integers.vocabulary)
        assert described(found.layers) == described(places)
        assert described([found.vocabulary]) == described([head])
        states = np.zeros((p.tokens, p.hidden_size), np.int64)
        assert found.states == images.add_vector(states)
        for name in IMAGES:
            assert np.array_equal(found.images[name], getattr(images, name).words), (level, name)
        given = replace(SETTINGS, packed=file)
        again = MeadowSystem(model, p, given, tmp_path)
        again.prepare_golden(lambda words: None)
        assert np.array_equal(again.logits(PROMPT), system.logits(PROMPT))
    assert ("classes" in levels_of(p)) == (dimensions is CLASSES)


def described(places: list[Any]) -> list[str]:
    """Return addresses and descriptions as text, since they contain short arrays."""
    return [repr(vars(place)) for place in places]


def refusal(packed: Path, tmp_path: Path, model: Path, change: Callable[[Any], None]) -> str:
    """Return the message for a file with a changed header and a correct checksum."""
    content = (packed / "weights.packed").read_bytes()
    (tmp_path / "changed").write_bytes(resealed(content, change))
    result = generate(model, "--packed", tmp_path / "changed")
    assert result.exit_code == 2 and "Traceback" not in result.output, result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda h: h["accelerator"].update(model="0" * 64),
            r"the SHA-256 of the model of PACKED must be \w{64}, not 0{64}: .*changed",
        ),
        (
            lambda h: h["accelerator"]["parameters"].update(lanes="7"),
            "the parameter lanes of PACKED must be 3, not 7",
        ),
        (
            lambda h: h["accelerator"]["parameters"].pop("slots"),
            "the parameter slots of PACKED must be 16, not None",
        ),
        (
            lambda h: h["accelerator"].update(order="heads"),
            "the order of rows of PACKED must be tile, not heads",
        ),
        (
            lambda h: h.pop("accelerator"),
            "the order of rows of PACKED must be tile, not that of a model file",
        ),
        (lambda h: h.update(accelerator=3), "accelerator must be a record, not 3"),
        (
            lambda h: h["accelerator"].update(level="classes"),
            "the level of PACKED must be one of naive, packet, reindexed, raw, not classes",
        ),
        (
            lambda h: h["accelerator"].update(level="naive"),
            "level of '0.query.0' must be naive, not reindexed",
        ),
        (
            lambda h: h["matrices"][3].update(name="0.output"),
            "it must have the matrices of the model, unlike '0.output'",
        ),
        (
            lambda h: h["matrices"][1].update(shape=[16, 4]),
            r"shape of '0.key.0' must be \(32, 4\), not \(16, 4\)",
        ),
        (
            lambda h: h["accelerator"].pop("numbers"),
            "it must have the numbers of all layers",
        ),
        (
            lambda h: h["accelerator"]["numbers"]["layers"].pop(),
            "it must have the matrices of the model, unlike '1.down.0'",
        ),
        (
            lambda h: h["accelerator"]["numbers"]["layers"][0].pop("norms"),
            "PACKED must be an intact file of packed weights: 'norms'",
        ),
    ],
)
def test_a_file_for_another_accelerator_is_refused(
    packed: Path, tmp_path: Path, model: Path, change: Any, message: str
) -> None:
    words = refusal(packed, tmp_path, model, change)
    assert re.search(message, words), words


def test_corrupted_packets_with_a_correct_checksum_are_refused(
    packed: Path, tmp_path: Path, model: Path
) -> None:
    """The packets of a matrix are those of another one, with other widths."""

    def swap(header: Any) -> None:
        first, last = header["matrices"][0], header["matrices"][6]
        first["packets"], last["packets"] = last["packets"], first["packets"]

    assert "PACKED must be an intact file of packed weights" in refusal(
        packed, tmp_path, model, swap
    )


def test_every_corrupted_byte_is_refused(packed: Path, tmp_path: Path) -> None:
    content = (packed / "weights.packed").read_bytes()
    rng, file = np.random.default_rng(1), tmp_path / "bad"
    p = entry_named("meadow").parameters("tiny")
    for place in [*rng.integers(len(content), size=100), 0, len(content) - 1]:
        bad = bytearray(content)
        bad[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(bad)
        with pytest.raises(UserError, match="PACKED must be an intact file of packed weights"):
            AcceleratorFile(file, p, "")
    file.write_bytes(content[:-100])
    with pytest.raises(UserError, match="the checksum must be that of the file"):
        AcceleratorFile(file, p, "")


def test_files_of_another_model_or_other_parameters_are_refused(
    packed: Path, model: Path, tmp_path: Path
) -> None:
    other = write_small_model(
        tmp_path / "other",
        hidden_size=16,
        intermediate_size=32,
        max_position_embeddings=16,
        initializer_range=0.4,
    )
    found = generate(other, "--packed", packed)
    assert found.exit_code == 2 and "the SHA-256 of the model of PACKED must be" in " ".join(
        found.output.split()
    )
    found = generate(model, "--packed", packed, "--set", "lanes=2")
    assert found.exit_code == 2 and "the parameter lanes of PACKED must be 2, not 3" in " ".join(
        found.output.split()
    )


def test_the_shell_loads_the_same_file(model: Path, packed: Path, text: str) -> None:
    shell: Any = entry_named("meadow_axi").parameters("tiny")
    assert shell.meadow == entry_named("meadow").parameters("tiny")
    found = generate(model, "--packed", packed, top="meadow_axi")
    assert found.exit_code == 0, found.output
    assert found.output.splitlines()[0] == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pack", "--top", "veda"], "TOP must be an accelerator with packed weights, not veda"),
        (["pack", "--top", "none"], "TOP must be one of"),
        (["pack", "--top", "meadow", "--chunk", "1"], "CHUNK, PACKET_BITS and SCALE are not for"),
        (["pack", "--set", "lanes=1"], "PRESET, PARAMETERS and SET need a TOP"),
        (
            ["generate", "--top", "veda", "--prompt", "1", "--packed", "x"],
            "PACKED is not for veda, whose weights are not packed",
        ),
        (
            ["generate", "--policy", "h2o", "--prompt", "1", "--packed", "x"],
            "WAVES and PACKED are not for h2o",
        ),
    ],
)
def test_illegal_options_are_one_sentence(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2 and message in " ".join(result.output.split()), result.output


def test_level_that_the_accelerator_cannot_read_is_refused(model: Path, tmp_path: Path) -> None:
    options = [*TINY, "--model", model, "--out", tmp_path / "out", "--level", "classes"]
    result = run("pack", "--top", "meadow", *options)
    words = " ".join(result.output.split())
    assert result.exit_code == 2, words
    assert "LEVEL for meadow / tiny must be one of naive, packet, reindexed, raw" in words
    assert not (tmp_path / "out").exists()
    result = generate(model, "--packed", tmp_path / "none")
    assert result.exit_code == 2 and "PACKED must be a file that exists" in result.output
