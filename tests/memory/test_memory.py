"""The memory is as wide as the widest word that a legal unit stores."""

import pytest

from hdl.emit import Emission
from hdl.memory.memory import Memory
from hdl.veda.array.array_parameters import FlexiblePeArrayParameters
from testbenches.lint import lint_unit


def test_the_widest_line_of_an_array_fits() -> None:
    width = FlexiblePeArrayParameters(rows=16, columns=16).vector_layout.size
    assert width == 8192
    assert not lint_unit("memory", Emission(top=Memory(depth=2, width=width), name="memory"))
    with pytest.raises(ValueError, match="width must be an integer from 1 to 65536, not 65537"):
        Memory(depth=2, width=1 + (1 << 16))
