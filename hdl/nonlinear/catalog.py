"""Catalog of the lane-parallel functions, with the dimensions of the papers' accelerators."""

from hdl.arith.float_format import BINARY16, BINARY32
from hdl.entry import Entry
from hdl.nonlinear.activation_functions import ActivationFunctions, ActivationFunctionsParameters
from hdl.nonlinear.argmax import Argmax, ArgmaxParameters
from hdl.nonlinear.layer_norm import LayerNorm, LayerNormParameters
from hdl.nonlinear.rms_norm import RmsNorm, RmsNormParameters
from hdl.nonlinear.rotary_embedding import RotaryEmbedding, RotaryEmbeddingParameters
from hdl.nonlinear.softmax import Softmax, SoftmaxParameters

UNITS: tuple[Entry, ...] = (
    Entry(
        summary="converts rows of scores to probabilities, with an online maximum",
        source="Kelle, Section 5: special function units",
        unit=Softmax,
        presets={
            "tiny": SoftmaxParameters(lanes=2, scores=16),
            "tiny_one_row": SoftmaxParameters(lanes=1, scores=8, rows=1),
            "tiny_divided": SoftmaxParameters(lanes=4, scores=16, divided=True),
            "smollm2": SoftmaxParameters(lanes=8),
            "paper": SoftmaxParameters(lanes=32),
        },
    ),
    Entry(
        summary="divides hidden states by their root mean square, multiplies by weights",
        source="Kelle, Section 5: special function units",
        unit=RmsNorm,
        presets={
            "tiny": RmsNormParameters(lanes=2, width=8, weight_fraction=10),
            "tiny_divided": RmsNormParameters(lanes=4, width=16, rows=2, divided=True),
            "smollm2": RmsNormParameters(lanes=8, width=576),
            "paper": RmsNormParameters(lanes=32, width=4096),
        },
    ),
    Entry(
        summary="normalises hidden states by mean and deviation, applies weights and biases",
        source="MEADOW, Section 3, Figure 2: LN modules",
        unit=LayerNorm,
        presets={
            "tiny": LayerNormParameters(lanes=2, width=8, weight_fraction=10),
            "smollm2": LayerNormParameters(lanes=8, width=576),
            "paper": LayerNormParameters(lanes=8, width=768),
        },
    ),
    Entry(
        summary="computes SiLU and GeLU by linear interpolation in one table",
        source="Kelle, Section 5: special function units",
        unit=ActivationFunctions,
        presets={
            "tiny": ActivationFunctionsParameters(lanes=2, pieces=16),
            "smollm2": ActivationFunctionsParameters(lanes=8),
            "paper": ActivationFunctionsParameters(lanes=32),
        },
    ),
    Entry(
        summary="rotates queries and keys by their positions, with computed angles",
        source="Kelle, Section 5: special function units",
        unit=RotaryEmbedding,
        presets={
            "tiny": RotaryEmbeddingParameters(lanes=2, head_size=4, position_bits=6),
            "smollm2": RotaryEmbeddingParameters(
                lanes=8, head_size=64, base=100_000, position_bits=13
            ),
            "paper": RotaryEmbeddingParameters(),
        },
    ),
    Entry(
        summary="finds the largest value of each row and its index",
        source="not in the papers: the token that a decode step predicts",
        unit=Argmax,
        presets={
            "tiny": ArgmaxParameters(lanes=3, length=45, width=16, number_format=BINARY16),
            "tiny_contexts": ArgmaxParameters(
                lanes=4, length=64, number_format=BINARY32, contexts=3
            ),
            "tiny_lane": ArgmaxParameters(lanes=1, length=29, number_format=BINARY32, contexts=2),
            "tiny_integers": ArgmaxParameters(lanes=2, length=21, width=9),
            "tiny_skewed": ArgmaxParameters(lanes=4, length=40, width=12, skewed=True),
            "smollm2": ArgmaxParameters(number_format=BINARY32),
            "paper": ArgmaxParameters(length=128256, number_format=BINARY32, contexts=2),
        },
    ),
)
"""All units of this floor."""
