"""Linear layers as modules: MEADOW's packed INT8 matrix, P3-LLM's W4A8, Kelle's integers.

Each takes the place of a `torch.nn.Linear` without bias, with inputs [..., in_features] and outputs
[..., out_features].
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from golden.arith.int_symmetric import quantise
from golden.arith.requantiser import requantised, scale_and_shift
from golden.kelle.decoder_layer import integers
from golden.meadow.packing.model_file import quantised
from golden.meadow.packing.weight_packer import Level, PackedMatrix, pack_matrix, unpack_matrix
from golden.meadow.tile.hybrid_tile import exact_products
from golden.p3llm.p3llm import Matrix
from golden.p3llm.whole_model import FastMatrix
from golden.torch_modules.exact_module import ExactModule
from hdl.parameters import require

LARGEST_INPUT = 127
PACKED = ("layout", "widths", "unique", "packets", "scales", "input_step")
"""Buffers of a packed linear layer."""


class ExactLinear(ExactModule):
    """Base class: rows of inputs to rows of outputs.

    Members
    -------
    in_features, out_features : int
        Elements of an input and of an output.
    """

    in_features: int
    out_features: int

    def product(self, rows: NDArray[np.float64]) -> NDArray[np.floating]:
        """Return the outputs [rows, out_features] of finite inputs [rows, in_features]."""
        raise NotImplementedError(f"{type(self).__name__} must define product")

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs in the type of the inputs, float16 or float32.

        Raises
        ------
        ValueError
            If the inputs have another device, type or number of features, or need a gradient.
        """
        rows = self._finite("inputs", inputs)
        features = rows.shape[-1] if rows.ndim else None
        rule = f"inputs of {type(self).__name__} must have {self.in_features} features"
        require(features == self.in_features, rule, features)
        outputs = self.product(rows.reshape(-1, self.in_features))
        shape = (*inputs.shape[:-1], self.out_features)
        return torch.from_numpy(np.asarray(outputs)).reshape(shape).to(inputs.dtype)

    def extra_repr(self) -> str:
        """Return the dimensions, as `torch.nn.Linear` does."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


def matrix_of(linear: torch.nn.Linear) -> NDArray[np.float32]:
    """Return the weights [out_features, in_features] of a linear layer without bias."""
    require(linear.bias is None, "the linear layer must have no bias", linear)
    device = linear.weight.device
    require(device.type == "cpu", "the linear layer must be on the device cpu", device)
    return linear.weight.detach().float().numpy()


class PackedLinear(ExactLinear):
    """MEADOW's linear layer: INT8 weights in lossless packets, INT8 inputs with one fixed scale.

    Models: `golden.meadow.packing` and the sums of `golden.meadow.tile`. An output is an exact
    integer sum times ``input_step * scale``; the product of the two is a float64, and the output is
    rounded once to the type of the inputs. MEADOW itself requantises the sums to integers.

    The packets are the state: the weights are unpacked at the first use. `state_dict` has
    `unique`, int8 [chunks, C]; `packets`, int64 [packets, bits / 64]; `widths`; `layout` (level,
    chunk, class bits, rows, columns); `scales`, float32; `input_step`, float64.

    Parameters
    ----------
    matrix : PackedMatrix
        Packed weights [out_features, in_features].
    scales : numpy.ndarray
        Factors of the weights, float32 [1] or [out_features].
    input_step : float
        Value of the integer 1 in the inputs, above 0.
    """

    layout: Tensor
    widths: Tensor
    unique: Tensor
    packets: Tensor
    scales: Tensor
    input_step: Tensor

    def __init__(
        self, matrix: PackedMatrix, scales: NDArray[np.float32], input_step: float
    ) -> None:
        super().__init__()
        layout = (matrix.level.value, matrix.chunk, matrix.class_bits, *matrix.shape)
        state = {
            "layout": np.array(layout, np.int64),
            "widths": np.array(matrix.widths, np.int64),
            "unique": matrix.unique,
            "packets": matrix.packets.view(np.int64),
            "scales": np.asarray(scales, np.float32),
            "input_step": np.array(input_step, np.float64),
        }
        for name in PACKED:
            self.register_buffer(name, torch.from_numpy(state[name].copy()))
        self._check()

    @classmethod
    def from_linear(
        cls,
        linear: torch.nn.Linear,
        *,
        largest_input: float,
        scale: str = "tensor",
        level: Level = Level.CLASSES,
        chunk: int = 2,
        packet_bits: int = 128,
    ) -> Self:
        """Quantise and pack the weights of a linear layer.

        Parameters
        ----------
        linear : torch.nn.Linear
            The layer, without bias.
        largest_input : float
            Magnitude of the inputs that becomes 127; larger ones saturate.
        scale : str
            ``"tensor"`` or ``"channel"``: granularity of the weights' scales.
        level, chunk, packet_bits
            As in `golden.meadow.packing.weight_packer.pack_matrix`.
        """
        weights, scales = quantised(matrix_of(linear), scale)
        packed = pack_matrix(weights, level, chunk=chunk, packet_bits=packet_bits)
        return cls(packed, scales, largest_input / LARGEST_INPUT)

    def packed(self) -> PackedMatrix:
        """Return the packed weights."""
        level, chunk, class_bits, rows, columns = self.layout.tolist()
        return PackedMatrix(
            shape=(rows, columns),
            level=Level(level),
            chunk=chunk,
            unique=self.unique.numpy(),
            widths=tuple(self.widths.tolist()),
            class_bits=class_bits,
            packets=self.packets.numpy().view(np.uint64),
        )

    @property
    def weight(self) -> Tensor:
        """The unpacked weights, int8 [out_features, in_features]."""
        if self._weights is None:
            self._weights = unpack_matrix(self.packed())
        return torch.from_numpy(self._weights)

    def quantise(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return inputs in INT8: to nearest, ties to even, saturated at 127."""
        steps = np.rint(rows / float(self.input_step))
        return np.clip(steps, -LARGEST_INPUT, LARGEST_INPUT).astype(np.int64)

    def sums(self, inputs: Tensor) -> Tensor:
        """Return the exact sums, int64 [..., out_features], of int8 inputs [..., in_features]."""
        rows = self._given("inputs", inputs, (torch.int8,))
        rule = f"inputs of {type(self).__name__} must have {self.in_features} features"
        require(rows.shape[-1] == self.in_features, rule, rows.shape[-1])
        return torch.from_numpy(exact_products(rows.astype(np.int64), self._transposed()))

    def product(self, rows: NDArray[np.float64]) -> NDArray[np.floating]:
        """Return the sums of the quantised inputs times both scales, float64."""
        factors = float(self.input_step) * self.scales.numpy().astype(np.float64)
        return exact_products(self.quantise(rows), self._transposed()) * factors

    def _transposed(self) -> NDArray[np.int64]:
        return self.weight.numpy().T.astype(np.int64)

    def _check(self) -> None:
        """Derive the dimensions from the state, and check it."""
        _level, _chunk, _bits, self.out_features, self.in_features = self.layout.tolist()
        self._weights: NDArray[np.int8] | None = None
        lengths = (1, self.out_features)
        rule = f"scales must be 1 or {self.out_features} numbers"
        require(tuple(self.scales.shape) in [(n,) for n in lengths], rule, tuple(self.scales.shape))
        step = float(self.input_step)
        require(0 < step < np.inf, "input_step must be above 0 and finite", step)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """Take buffers of other sizes, since each matrix has its own number of packets."""
        for name in PACKED:
            if isinstance(given := state_dict.get(prefix + name), Tensor):
                setattr(self, name, torch.empty(given.shape, dtype=getattr(self, name).dtype))
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._check()
        # Corrupted packets are refused here and not at the first use.
        self._weights = unpack_matrix(self.packed())


class BitmodLinear(ExactLinear):
    """P3-LLM's linear layer W4A8: BitMoD FP4 weights, E4M3 inputs with a scale per row.

    Models: `golden.p3llm.p3llm.Matrix`, and `golden.p3llm.whole_model.FastMatrix`, which has the
    same results for whole blocks. Inputs are rounded to FP16, sums are integers, and outputs are
    float32 before they are rounded to the type of the inputs. `state_dict` has the bytes of the
    DRAM columns, selects, 8-bit group scales (uint8) and FP16 row scales.

    Parameters
    ----------
    matrix : Matrix
        Stored weights.
    """

    columns: Tensor
    selects: Tensor
    steps: Tensor
    scales: Tensor

    def __init__(self, matrix: Matrix) -> None:
        super().__init__()
        for name in ("columns", "selects", "steps"):
            self.register_buffer(name, torch.from_numpy(getattr(matrix, name).copy()))
        scales = matrix.scales.view(np.float16).copy()
        self.register_buffer("scales", torch.from_numpy(scales))
        self._convert()

    @classmethod
    def from_linear(cls, linear: torch.nn.Linear, *, group_size: int = 128) -> Self:
        """Quantise the weights of a linear layer; groups are halved until they divide a row."""
        return cls(Matrix.quantised(matrix_of(linear), group_size))

    def stored(self) -> Matrix:
        """Return the stored weights."""
        columns, selects, steps = (
            getattr(self, name).numpy() for name in ("columns", "selects", "steps")
        )
        scales = self.scales.numpy().view(np.uint16)
        return Matrix(columns=columns, selects=selects, steps=steps, scales=scales)

    def product(self, rows: NDArray[np.float64]) -> NDArray[np.floating]:
        """Return the outputs, float32."""
        return self._matrix.product(self._halves("inputs", rows))

    def _convert(self) -> None:
        self._matrix = FastMatrix(self.stored())
        self.in_features, self.out_features = self._matrix.integers.shape

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._convert()


class KelleLinear(ExactLinear):
    """Kelle's linear layer: 8-bit weights with a scale per output, 16-bit inputs and outputs.

    Model: `golden.kelle.kelle.KelleModel.project` with 16-bit activations. Inputs are rounded to
    integers of `input_step`, saturated; sums are exact, and requantised to integers of
    `output_step`, ties to even, saturated at 16 bits. `state_dict` has `weights`, int8; `factors`,
    int64 scale and shift of each output; both steps, float64.

    Parameters
    ----------
    matrix : numpy.ndarray
        Real weights [out_features, in_features].
    input_step, output_step : float
        Values of the integer 1 in inputs and outputs, above 0.
    """

    weights: Tensor
    factors: Tensor
    input_step: Tensor
    output_step: Tensor

    def __init__(
        self, matrix: NDArray[np.floating], *, input_step: float, output_step: float
    ) -> None:
        super().__init__()
        for name, step in (("input_step", input_step), ("output_step", output_step)):
            require(0 < step < np.inf, f"{name} must be above 0 and finite", step)
        weights, scales = quantise(np.asarray(matrix, np.float32), axis=1)
        ratio = input_step / output_step
        factors = [scale_and_shift(ratio * scale) for scale in scales[:, 0].astype(np.float64)]
        state: dict[str, NDArray[Any]] = {
            "weights": weights,
            "factors": np.array(factors, np.int64),
            "input_step": np.array(input_step, np.float64),
            "output_step": np.array(output_step, np.float64),
        }
        for name, array in state.items():
            self.register_buffer(name, torch.from_numpy(array))
        self.out_features, self.in_features = weights.shape

    @classmethod
    def from_linear(
        cls, linear: torch.nn.Linear, *, largest_input: float, largest_output: float
    ) -> Self:
        """Quantise the weights of a linear layer.

        Parameters
        ----------
        linear : torch.nn.Linear
            The layer, without bias.
        largest_input, largest_output : float
            Magnitudes that become the largest integer, 32767.
        """
        top = (1 << 15) - 1
        return cls(
            matrix_of(linear), input_step=largest_input / top, output_step=largest_output / top
        )

    def product(self, rows: NDArray[np.float64]) -> NDArray[np.floating]:
        """Return the outputs, float64."""
        given = integers(rows, float(self.input_step))
        # Products of 16 and 8 bits: exact in float64 for up to 2**30 inputs.
        sums = given.astype(np.float64) @ self.weights.numpy().T.astype(np.float64)
        scale, shift = self.factors.numpy().T
        return requantised(sums.astype(np.int64), scale, shift) * float(self.output_step)
