"""Real English texts as inputs for the model."""

from pathlib import Path

from golden.llm.model import DataFileError, package_folder

TEXTS = ("news", "prose")


def text_named(name: str) -> str:
    """Return one of the two texts.

    Parameters
    ----------
    name
        ``"prose"``: a short story with narrative, dialogue, explanation and a list of facts,
        about 1400 tokens, written for this project.
        ``"news"``: 300 news articles, one per line, about 75 000 tokens, from the `gensim` wheel.

    Raises
    ------
    ValueError
        No text has this name.
    DataFileError
        `gensim` is not installed, or its file is missing.
    """
    if name not in TEXTS:
        raise ValueError(f"text must be one of {', '.join(TEXTS)}, not {name}")
    if name == "prose":
        path = Path(__file__).with_name("prose.txt")
    else:
        path = package_folder("gensim") / "test/test_data/lee_background.cor"
    if not path.is_file():
        raise DataFileError(f"the text file {path} does not exist")
    return path.read_text(encoding="utf-8")
