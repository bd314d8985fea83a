"""Hadamard matrices are orthogonal and have elements of one magnitude."""

import numpy as np
import pytest

from golden.arith.hadamard import hadamard


@pytest.mark.parametrize("size", (1, 2, 12, 32, 64, 576, 1536))
def test_matrix_is_orthogonal_with_elements_of_one_magnitude(size: int) -> None:
    matrix = hadamard(size)
    assert matrix.shape == (size, size)
    assert np.allclose(matrix @ matrix.T, np.eye(size), atol=1e-12)
    assert np.allclose(np.abs(matrix), size**-0.5, atol=1e-12)


@pytest.mark.parametrize("size", (0, -12, 3, 9, 36, 100))
def test_rejects_sizes_without_a_matrix(size: int) -> None:
    with pytest.raises(ValueError, match=rf"must be 12\*\*n \* 2\*\*m, not {size}"):
        hadamard(size)
