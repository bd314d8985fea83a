"""A prompt has the tokens that the model's users give it, and a text ends where theirs does."""

import json
from pathlib import Path
from typing import Any

import pytest

from golden.llm.language_model import open_language_model
from golden.llm.model_files import DataFileError
from systola.generation.continuation import reference
from tests.generation.small_model import VOCABULARY, write_gguf, write_small_model

PROMPT = "3 1 4"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_model(tmp_path_factory.mktemp("small"))


def with_files(folder: Path, small: Path, **changes: dict[str, Any]) -> Path:
    """Return a folder with the small model, and with other keys in its JSON files.

    The value None removes a key.
    """
    for own in small.glob("*.*"):
        (folder / own.name).write_bytes(own.read_bytes())
    for stem, keys in changes.items():
        file = folder / f"{stem}.json"
        content = (json.loads(file.read_text()) if file.exists() else {}) | keys
        file.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
    return folder


def template(*pieces: str) -> dict[str, Any]:
    """Return a post-processor that adds tokens, of which `A` is the text."""
    single = [
        {"Sequence": {"id": "A", "type_id": 0}}
        if piece == "A"
        else {"SpecialToken": {"id": piece, "type_id": 0}}
        for piece in pieces
    ]
    special = {
        piece: {"id": piece, "ids": [int(piece)], "tokens": [piece]}
        for piece in pieces
        if piece != "A"
    }
    own = {"type": "TemplateProcessing", "single": single, "pair": single}
    return {"post_processor": own | {"special_tokens": special}}


BOS = {"bos_token": "7"}


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({}, [3, 1, 4]),
        ({"tokenizer_config": BOS}, [3, 1, 4]),
        ({"tokenizer": template("7", "A")}, [7, 3, 1, 4]),
        ({"tokenizer_config": BOS, "tokenizer": template("7", "A")}, [7, 3, 1, 4]),
        ({"tokenizer_config": BOS | {"add_bos_token": True}}, [7, 3, 1, 4]),
        (
            {
                "tokenizer_config": BOS
                | {"add_bos_token": True, "tokenizer_class": "LlamaTokenizerFast"}
            },
            [7, 3, 1, 4],
        ),
        (
            {
                "tokenizer_config": BOS | {"add_bos_token": True},
                "tokenizer": template("7", "A"),
            },
            [7, 3, 1, 4],
        ),
        (
            {
                "tokenizer_config": BOS | {"add_bos_token": False},
                "tokenizer": template("7", "A"),
            },
            [3, 1, 4],
        ),
    ],
)
def test_prompt_begins_with_the_tokens_that_the_tokenizer_adds(
    small: Path, tmp_path: Path, changes: dict[str, Any], tokens: list[int]
) -> None:
    model = open_language_model(with_files(tmp_path, small, **changes))
    assert model.tokens_of(PROMPT) == tokens


def test_prompt_with_bos_gets_no_second_one(small: Path, tmp_path: Path) -> None:
    changes = {"tokenizer_config": BOS, "tokenizer": template("7", "A")}
    model = open_language_model(with_files(tmp_path, small, **changes))
    assert model.tokens_of("7 3 1 4") == [7, 3, 1, 4]
    assert model.tokens_of("7 7 3") == [7, 7, 3]


def test_calibration_begins_as_prompts_do(small: Path, tmp_path: Path) -> None:
    model = open_language_model(with_files(tmp_path, small, tokenizer=template("7", "A")))
    assert model.calibration(4) == [7] + [VOCABULARY - 1] * 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": template("7", "A", "8")}, "must add tokens only before a prompt"),
        ({"tokenizer_config": {"add_bos_token": True}}, "must have the BOS token that it adds"),
        ({"tokenizer_config": {"add_eos_token": True}}, "add_eos_token in .* must be false"),
    ],
)
def test_tokenizer_that_no_prompt_can_follow_is_refused(
    small: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    model = open_language_model(with_files(tmp_path, small, **changes))
    with pytest.raises(DataFileError, match=message):
        model.tokens_of(PROMPT)


SCORES = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.scores": [-float(number) for number in range(VOCABULARY)],
    "tokenizer.ggml.merges": None,
}


@pytest.mark.parametrize(
    ("fields", "bos"),
    [
        ({}, False),
        ({"add_bos_token": True}, True),
        ({"add_bos_token": None}, False),
        ({"pre": "gpt-2", "add_bos_token": None}, False),
        ({"pre": "llama-bpe", "add_bos_token": None}, True),
        ({"pre": "llama-bpe", "add_bos_token": False}, False),
    ],
)
def test_gguf_prompt_begins_as_in_llama_cpp(
    small: Path, tmp_path: Path, fields: dict[str, Any], bos: bool
) -> None:
    own = {f"tokenizer.ggml.{key}": value for key, value in fields.items()}
    own["tokenizer.ggml.bos_token_id"] = 7
    model = open_language_model(write_gguf(small, tmp_path / "small.gguf", fields=own))
    # SmolLM's rule cuts at each digit; elsewhere the first merge that applies is that of 1 and 4.
    assert model.tokens_of("314") == [7] * bos + ([3, 14] if "pre" in fields else [3, 1, 4])


@pytest.mark.parametrize(("pre", "tokens"), [("gpt-2", [3, 1]), ("llama-bpe", [31])])
def test_gguf_word_without_merges_is_a_token_of_llama_3(
    small: Path, tmp_path: Path, pre: str, tokens: list[int]
) -> None:
    fields = {"tokenizer.ggml.pre": pre, "tokenizer.ggml.merges": ["1 0"]}
    model = open_language_model(write_gguf(small, tmp_path / "small.gguf", fields=fields))
    assert model.tokens_of("31") == tokens


@pytest.mark.parametrize(("stated", "bos"), [(None, True), (True, True), (False, False)])
def test_gguf_prompt_of_scored_tokens_begins_with_bos(
    small: Path, tmp_path: Path, stated: bool | None, bos: bool
) -> None:
    fields = {"tokenizer.ggml.bos_token_id": 7, "tokenizer.ggml.add_bos_token": stated} | SCORES
    model = open_language_model(write_gguf(small, tmp_path / "small.gguf", fields=fields))
    assert (model.tokens_of("3")[:1] == [7]) is bos


@pytest.mark.parametrize("fields", [SCORES | {"tokenizer.ggml.add_bos_token": None}, {}])
def test_gguf_without_the_bos_that_it_adds_is_refused(
    small: Path, tmp_path: Path, fields: dict[str, Any]
) -> None:
    own = {"tokenizer.ggml.add_bos_token": True} | fields
    model = open_language_model(write_gguf(small, tmp_path / "small.gguf", fields=own))
    with pytest.raises(DataFileError, match="must have the BOS token that it adds"):
        model.tokens_of("3")


@pytest.mark.parametrize(
    ("changes", "stop"),
    [
        ({}, set()),
        ({"config": {"eos_token_id": 5}}, {5}),
        ({"config": {"eos_token_id": [5, 6]}}, {5, 6}),
        ({"generation_config": {"eos_token_id": [5, 6]}}, {5, 6}),
        ({"generation_config": {"eos_token_id": 0}, "config": {"eos_token_id": 5}}, {0}),
        ({"generation_config": {"eos_token_id": []}, "config": {"eos_token_id": 5}}, {5}),
    ],
)
def test_end_tokens_are_those_of_generation(
    small: Path, tmp_path: Path, changes: dict[str, Any], stop: set[int]
) -> None:
    folder = with_files(tmp_path, small, **changes)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"eos_token_id": None} | config))
    assert open_language_model(folder).stop == stop


def test_configuration_without_end_token_has_that_of_llama(small: Path, tmp_path: Path) -> None:
    assert open_language_model(with_files(tmp_path, small, config={})).stop == {2}


def test_text_ends_at_the_second_end_token(small: Path, tmp_path: Path) -> None:
    model = open_language_model(small)
    tokens = reference(model, [3, 1, 4], 8)
    end = next(place for place in range(1, 8) if tokens[place] not in tokens[:place])
    unused = next(token for token in range(VOCABULARY) if token not in tokens)
    ends = {"eos_token_id": [unused, tokens[end]]}
    ended = open_language_model(with_files(tmp_path, small, generation_config=ends))
    assert reference(ended, [3, 1, 4], 8) == tokens[: end + 1] and end < 7


@pytest.mark.parametrize(
    ("fields", "stop"),
    [
        ({}, set()),
        ({"eos_token_id": 3}, {3}),
        ({"eos_token_id": 3, "eot_token_id": 4, "eom_token_id": 0}, {0, 3, 4}),
    ],
)
def test_gguf_ends_are_of_sequence_turn_and_message(
    small: Path, tmp_path: Path, fields: dict[str, int], stop: set[int]
) -> None:
    own = {f"tokenizer.ggml.{key}": value for key, value in fields.items()}
    assert open_language_model(write_gguf(small, tmp_path / "own.gguf", fields=own)).stop == stop
