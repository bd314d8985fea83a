"""ROUGE scores between texts, computed by Google's `rouge-score`."""

from collections.abc import Sequence

import numpy as np
from rouge_score.rouge_scorer import RougeScorer

MEASURES = ("rouge1", "rouge2", "rougeL", "rougeLsum")


def rouge(original: Sequence[str], other: Sequence[str]) -> np.ndarray:
    """Return the F-measures [texts, len(MEASURES)] of texts against the originals, 0 to 1.

    As in the `evaluate` library, there is no stemming, and rougeLsum splits sentences at line ends.
    """
    scorer = RougeScorer(list(MEASURES), use_stemmer=False)
    scores = [scorer.score(target, text) for target, text in zip(original, other, strict=True)]
    return np.array([[score[name].fmeasure for name in MEASURES] for score in scores])
