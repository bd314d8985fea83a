"""The residual token's model, and its parameters."""

import re
from typing import Any

import numpy as np
import pytest

from golden.p3llm.quantisers.residual_token import residual_token
from hdl.p3llm.quantisers.residual_token import ResidualTokenParameters


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 3}, "lanes must be a power of two between 1 and 64, not 3"),
        ({"head_size": 100}, "head_size must be a multiple of lanes, not 100"),
        ({"heads": 0}, "heads must be an integer from 1 to 1024, not 0"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ResidualTokenParameters(**change)


def test_every_token_but_a_text_s_last_is_quantised_once() -> None:
    tokens = np.arange(10).reshape(5, 2)
    first = np.array([True, False, False, True, False])
    later, some = residual_token(tokens, first, residual=True)
    assert later[some].tolist() == tokens[[0, 1, 3]].tolist()
    at_once, every = residual_token(tokens, first, residual=False)
    assert every.all() and np.array_equal(at_once, tokens)
