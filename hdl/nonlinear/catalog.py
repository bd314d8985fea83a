"""The lane-parallel functions, with the dimensions that the papers' accelerators use."""

from hdl.entry import Entry
from hdl.nonlinear.activation_functions import ActivationFunctions, ActivationFunctionsParameters
from hdl.nonlinear.layer_norm import LayerNorm, LayerNormParameters
from hdl.nonlinear.rms_norm import RmsNorm, RmsNormParameters
from hdl.nonlinear.rotary_embedding import RotaryEmbedding, RotaryEmbeddingParameters
from hdl.nonlinear.softmax import Softmax, SoftmaxParameters

UNITS: tuple[Entry, ...] = (
    Entry(
        summary="turns rows of scores into probabilities with the maximum found online",
        source="Kelle, Section 5: special function units",
        latency="10 cycles from a row's last scores to its first probabilities",
        throughput="lanes scores a cycle",
        unit=Softmax,
        presets={
            "tiny": SoftmaxParameters(lanes=2, scores=16),
            "tiny_one_row": SoftmaxParameters(lanes=1, scores=8, rows=1),
            "smollm2": SoftmaxParameters(lanes=8),
            "paper": SoftmaxParameters(lanes=32),
        },
    ),
    Entry(
        summary="divides hidden states by their root mean square and weights them",
        source="Kelle, Section 5: special function units",
        latency="10 cycles from a row's last slice to its first result",
        throughput="lanes elements a cycle",
        unit=RmsNorm,
        presets={
            "tiny": RmsNormParameters(lanes=2, width=8, weight_fraction=10),
            "smollm2": RmsNormParameters(lanes=8, width=576),
            "paper": RmsNormParameters(lanes=32, width=4096),
        },
    ),
    Entry(
        summary="takes hidden states' means off, divides by their deviations, weights, biases",
        source="MEADOW, Section 3, Figure 2: LN modules",
        latency="13 cycles from a row's last slice to its first result",
        throughput="lanes elements a cycle",
        unit=LayerNorm,
        presets={
            "tiny": LayerNormParameters(lanes=2, width=8, weight_fraction=10),
            "smollm2": LayerNormParameters(lanes=8, width=576),
            "paper": LayerNormParameters(lanes=8, width=768),
        },
    ),
    Entry(
        summary="SiLU and GeLU by one table and linear interpolation",
        source="Kelle, Section 5: special function units",
        latency="4 cycles",
        throughput="lanes values a cycle",
        unit=ActivationFunctions,
        presets={
            "tiny": ActivationFunctionsParameters(lanes=2, pieces=16),
            "smollm2": ActivationFunctionsParameters(lanes=8),
            "paper": ActivationFunctionsParameters(lanes=32),
        },
    ),
    Entry(
        summary="turns queries and keys by their positions, with generated angles",
        source="Kelle, Section 5: special function units",
        latency="6 cycles",
        throughput="lanes elements a cycle",
        unit=RotaryEmbedding,
        presets={
            "tiny": RotaryEmbeddingParameters(lanes=2, head_size=4, position_bits=6),
            "smollm2": RotaryEmbeddingParameters(
                lanes=8, head_size=64, base=100_000, position_bits=13
            ),
            "paper": RotaryEmbeddingParameters(),
        },
    ),
)
"""Every unit of the floor."""
