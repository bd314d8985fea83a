"""Model of the buffer of the newest token's keys and values."""

import numpy as np


def residual_token(
    tokens: np.ndarray, first: np.ndarray, *, residual: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens to be quantised in each token's step.

    Parameters
    ----------
    tokens : numpy.ndarray
        Keys and values of tokens, FP16 codes, shape (tokens, elements).
    first : numpy.ndarray
        bool, which tokens have no predecessor, shape (tokens,); true for the first token.
    residual : bool
        A token is quantised in the step after its own.

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray]
        Codes of that shape, and whether each token has data to be quantised.
    """
    if not residual:
        return tokens, np.ones(len(tokens), bool)
    return np.roll(tokens, 1, axis=0), ~np.asarray(first, bool)
