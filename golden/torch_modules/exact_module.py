"""Base class of the modules, and the checks of the tensors that they take."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from golden.arith.float_values import LARGEST, codes, values
from hdl.parameters import require

REALS = (torch.float16, torch.float32)
"""Types of real tensors; both are exact in float64."""


class ExactModule(torch.nn.Module):
    """A module that calls a numpy model: on the CPU, without gradients and without parameters.

    What a module stores are buffers, whose number formats belong to the accelerator. A cast of the
    model that contains it (`half`, `to`) therefore does not change them.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Refuse another device, and ignore a cast."""
        device = fn(torch.zeros(1)).device
        require(device.type == "cpu", f"the device of {type(self).__name__} must be cpu", device)
        return self

    def _given(
        self,
        name: str,
        tensor: Any,
        types: Sequence[torch.dtype] = REALS,
        dimensions: int | None = None,
    ) -> NDArray[Any]:
        """Return a tensor as an array.

        Raises
        ------
        ValueError
            If it has another device, type or number of dimensions, or needs a gradient.
        """
        what = f"{name} of {type(self).__name__}"
        require(isinstance(tensor, Tensor), f"{what} must be a tensor", type(tensor).__name__)
        require(tensor.device.type == "cpu", f"{what} must be on the device cpu", tensor.device)
        listed = ", ".join(map(str, types))
        require(tensor.dtype in types, f"{what} must have one of the types {listed}", tensor.dtype)
        shape = tuple(tensor.shape)
        if dimensions is not None:
            require(len(shape) == dimensions, f"{what} must have {dimensions} dimensions", shape)
        if tensor.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{what} must not require a gradient, which {type(self).__name__} does not have: "
                "call it within torch.no_grad(), or detach the tensor"
            )
        return tensor.detach().numpy()

    def _finite(self, name: str, tensor: Any, dimensions: int | None = None) -> NDArray[Any]:
        """Return a real tensor of finite numbers as float64."""
        array = self._given(name, tensor, dimensions=dimensions).astype(np.float64)
        finite = np.isfinite(array)
        rule = f"{name} of {type(self).__name__} must be finite"
        require(bool(finite.all()), rule, array[~finite][:1].tolist())
        return array

    def _halves(self, name: str, array: NDArray[np.floating]) -> NDArray[np.uint16]:
        """Return the nearest FP16 codes of finite numbers, ties to even."""
        with np.errstate(over="ignore"):
            found = codes(array)
        beyond = (found & 0x7FFF) > LARGEST
        rule = f"{name} of {type(self).__name__} must fit FP16, up to 65504"
        require(not beyond.any(), rule, np.asarray(array)[beyond][:1].tolist())
        return found


def halves_as(found: NDArray[np.uint16], dtype: torch.dtype) -> Tensor:
    """Return FP16 codes as a real tensor; exact."""
    return torch.from_numpy(values(found)).to(dtype)
