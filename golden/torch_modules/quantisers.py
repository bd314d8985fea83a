"""Quantisers as modules: P3-LLM's formats, and the symmetric integers of Kelle's weights.

`forward` of each module returns the values of the codes, `codes` the codes themselves.
"""

import numpy as np
import torch
from torch import Tensor

from golden.arith import bitmod_fp4, fp8_e4m3, fp8_s0e4m4, int4_asym, int_symmetric
from golden.p3llm.quantisers.e4m3_quantiser import e4m3_quantiser
from golden.p3llm.quantisers.int4_quantiser import int4_quantiser
from golden.torch_modules.exact_module import ExactModule, halves_as
from hdl.arith.fp8_s0e4m4 import Round
from hdl.parameters import require, require_choice, require_range


class S0E4M4Quantiser(ExactModule):
    """FP8-S0E4M4 of probabilities (P3-LLM, Section IV-B); model: `golden.arith.fp8_s0e4m4`.

    Input: float16 or float32 [...], rounded to FP16. Numbers above 1.9375 become 1.9375, negative
    ones 0. Output: the same type and shape; the values are exact in FP16.

    Parameters
    ----------
    round : Round
        Rounding of the six bits of FP16 that are dropped.
    """

    def __init__(self, round: Round = Round.HALF_UP) -> None:
        super().__init__()
        require_choice("round", round, list(Round))
        self.round = round

    def codes(self, probabilities: Tensor) -> Tensor:
        """Return the codes, uint8 [...]."""
        given = self._finite("probabilities", probabilities)
        return torch.from_numpy(fp8_s0e4m4.encode(self._halves("probabilities", given), self.round))

    def forward(self, probabilities: Tensor) -> Tensor:
        """Return the values of the codes."""
        found = self.codes(probabilities).numpy()
        return halves_as(fp8_s0e4m4.decode(found), probabilities.dtype)


class E4M3Quantiser(ExactModule):
    """FP8-E4M3 with an FP16 scale per vector (P3-LLM's activations and queries).

    Model: `golden.p3llm.quantisers.e4m3_quantiser`. Input: float16 or float32 [..., elements],
    rounded to FP16. Output: float32 of the same shape, exact: codes times scales.
    """

    def codes(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return codes, uint8 [..., elements], and scales, float16 [..., 1]."""
        found, scales = e4m3_quantiser(self._halves("vectors", self._finite("vectors", vectors)))
        return torch.from_numpy(found), halves_as(scales, torch.float16)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the values of the codes."""
        found, scales = self.codes(vectors)
        return halves_as(fp8_e4m3.decode(found.numpy()), torch.float32) * scales.float()


class Int4Quantiser(ExactModule):
    """INT4 with zero point and FP16 scale per vector: P3-LLM's cached keys and values (KV4).

    Model: `golden.p3llm.quantisers.int4_quantiser`. Input: float16 or float32 [..., elements],
    rounded to FP16; one vector is a token's key or value of a head. Output: float32 of the same
    shape, exact: code minus zero point, times scale. Keys are smoothed before by P3-LLM, see
    `P3llmAttention`.
    """

    def codes(self, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return codes, uint8 [..., elements]; zero points, uint8 [..., 1]; scales, float16."""
        halves = self._halves("vectors", self._finite("vectors", vectors))
        found, zero_points, scales = int4_quantiser(halves)
        return (
            torch.from_numpy(found),
            torch.from_numpy(zero_points),
            halves_as(scales, torch.float16),
        )

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the values of the codes."""
        found, zero_points, scales = (part.numpy() for part in self.codes(vectors))
        operands = int4_asym.operand(found, zero_points).astype(np.float32)
        return torch.from_numpy(operands * scales.astype(np.float32))


class BitmodQuantiser(ExactModule):
    """BitMoD FP4 of weights (W4): 4-bit codes, a special value and a scale per group.

    Model: `golden.arith.bitmod_fp4.quantise`, and `quantise_scales` for the 8-bit group scales with
    an FP16 scale per row, as P3-LLM stores them. Input: float16 or float32 [outputs, inputs].
    Output: float32 of the same shape.

    Parameters
    ----------
    group_size : int
        Weights per group, a divisor of the inputs.
    """

    def __init__(self, group_size: int = 128) -> None:
        super().__init__()
        require_range("group_size", group_size, 1, 1 << 16)
        self.group_size = group_size

    def codes(self, weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return codes, selects, group scales and row scales.

        uint8 [outputs, groups, group_size], uint8 and uint8 [outputs, groups], and float16
        [outputs].
        """
        given = self._finite("weights", weights, 2)
        groups = bitmod_fp4.quantise(given, group_size=self.group_size)
        steps, rows = bitmod_fp4.quantise_scales(groups.scales)
        return (
            torch.from_numpy(groups.codes),
            torch.from_numpy(groups.selects),
            torch.from_numpy(steps),
            torch.from_numpy(rows[:, 0].astype(np.float16)),
        )

    def forward(self, weights: Tensor) -> Tensor:
        """Return the values of the codes."""
        found, selects, steps, rows = (part.numpy() for part in self.codes(weights))
        scales = steps * rows.astype(np.float32)[:, np.newaxis]
        groups = bitmod_fp4.BitmodFp4(codes=found, selects=selects, scales=scales)
        return torch.from_numpy(groups.values().reshape(weights.shape))


class SymmetricQuantiser(ExactModule):
    """Symmetric integers with one scale per vector: Kelle's 8-bit weights.

    Model: `golden.arith.int_symmetric`. Input: float16 or float32. Output: float32 of the same
    shape: integers times scales.

    Parameters
    ----------
    bits : int
        Bits of an integer, 2 to 16.
    axis : int or None
        Axis along which the elements share a scale: -1 for one scale per output of a matrix
        [outputs, inputs]; None for one scale.
    """

    def __init__(self, bits: int = 8, axis: int | None = -1) -> None:
        super().__init__()
        require_range("bits", bits, 2, 16)
        require(axis is None or isinstance(axis, int), "axis must be an integer or None", axis)
        self.bits, self.axis = bits, axis

    def codes(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return integers, int8 or int16, and scales, float32, with an axis of length 1."""
        given = self._finite("vectors", vectors)
        integers, scales = int_symmetric.quantise(given, bits=self.bits, axis=self.axis)
        return torch.from_numpy(integers), torch.from_numpy(scales)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the values of the integers."""
        integers, scales = self.codes(vectors)
        return integers.float() * scales
