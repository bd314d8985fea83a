"""The newest token's keys and values, and those to be quantised: the model."""

import numpy as np


def residual_token(
    tokens: np.ndarray, first: np.ndarray, *, residual: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return what is to be quantised in each token's step.

    Parameters
    ----------
    tokens : numpy.ndarray
        Keys and values of tokens, FP16 codes, shape (tokens, elements).
    first : numpy.ndarray
        bool, which tokens have none before, shape (tokens,); the first of all is one.
    residual : bool
        Whether a token is quantised in the step behind its own.

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray]
        Codes of that shape, and whether they are to be quantised at all.
    """
    if not residual:
        return tokens, np.ones(len(tokens), bool)
    return np.roll(tokens, 1, axis=0), ~np.asarray(first, bool)
