"""Model of MEADOW with the AXI shell: its output tokens."""

from collections.abc import Iterable

from hdl.shell.shell_parameters import TOKEN_BITS


def prediction_tokens(predictions: Iterable[tuple[int, int]]) -> list[int]:
    """Return the output tokens of predictions, each a token of the vocabulary and its sum."""
    return [one % (1 << TOKEN_BITS) for prediction in predictions for one in prediction]
