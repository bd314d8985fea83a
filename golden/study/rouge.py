"""ROUGE between texts, as Google's `rouge-score` computes it."""

from collections.abc import Sequence
from importlib import import_module

import numpy as np

from golden.llm.model import DataFileError

MEASURES = ("rouge1", "rouge2", "rougeL", "rougeLsum")


def rouge(original: Sequence[str], other: Sequence[str]) -> np.ndarray:
    """Return the F-measures [texts, len(MEASURES)] of texts against the originals, 0 to 1.

    No stemming, as in the `evaluate` library; sentences of rougeLsum end at line ends.

    Raises
    ------
    DataFileError
        `rouge-score` is not installed.
    """
    try:
        scorers = import_module("rouge_score.rouge_scorer")
    except ImportError as error:
        raise DataFileError(
            "the Python package rouge-score must be installed, and is not"
        ) from error
    scorer = scorers.RougeScorer(list(MEASURES), use_stemmer=False)
    scores = [scorer.score(target, text) for target, text in zip(original, other, strict=True)]
    return np.array([[score[name].fmeasure for name in MEASURES] for score in scores])
