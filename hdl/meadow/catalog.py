"""The units of MEADOW, with the dimensions at which each is built."""

from hdl.entry import Entry
from hdl.meadow.tile.pipelined_softmax import PipelinedSoftmax, PipelinedSoftmaxParameters

UNITS: tuple[Entry, ...] = (
    Entry(
        summary="turns INT8 scores into probabilities, three tokens in three stages",
        source="Section 3, Figure 2 (d): pipelined softmax module",
        latency="F + features.bit_length() / 2 + 26 cycles from a token's last of F scores",
        throughput="one score a cycle, a token of F scores in F cycles",
        unit=PipelinedSoftmax,
        presets={
            "tiny": PipelinedSoftmaxParameters(features=24, probability_bits=8),
            "smollm2": PipelinedSoftmaxParameters(features=512, probability_bits=12),
            "paper": PipelinedSoftmaxParameters(features=512, probability_bits=16),
        },
    ),
)
"""Every unit of the paper."""
