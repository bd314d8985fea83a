"""The units of MEADOW, with the dimensions at which each is built."""

from hdl.entry import Entry
from hdl.meadow.attention_parameters import AttentionParameters
from hdl.meadow.attention_pipeline import AttentionPipeline
from hdl.meadow.tile.broadcasting_processing_element import BroadcastingProcessingElement
from hdl.meadow.tile.element_parameters import ElementParameters
from hdl.meadow.tile.parallel_processing_element import ParallelProcessingElement
from hdl.meadow.tile.pipelined_softmax import PipelinedSoftmax, PipelinedSoftmaxParameters

ELEMENTS = {
    "tiny": ElementParameters(
        multipliers=4, input_file=8, weight_file=8, output_file=16, scalar_bits=9
    ),
    "smollm2": ElementParameters(),
    "paper": ElementParameters(scalar_bits=17),
}
"""Elements of both kinds."""

UNITS: tuple[Entry, ...] = (
    Entry(
        summary="forms dot products: 64 products and an adder tree, an output at a time",
        source="Section 3, Figure 2 (b, c): parallel MAC PE",
        latency="10 cycles from an output's last weights, 12 by the output register file",
        throughput="one output in ceil(K / multipliers) cycles",
        unit=ParallelProcessingElement,
        presets=ELEMENTS,
    ),
    Entry(
        summary="broadcasts one input to 64 accumulators",
        source="Section 3, Figure 2 (b, c): broadcasting MAC PE",
        latency="10 cycles from a pass's last weights, 12 by the output register file",
        throughput="a pass over K inputs in K cycles, in multipliers cycles at least",
        unit=BroadcastingProcessingElement,
        presets=ELEMENTS,
    ),
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
    Entry(
        summary="attention of a block of tokens, head after head, a token a lane, in one pipeline",
        source="Section 4, Figure 3: token-parallel head-sequential dataflow",
        latency="three groups of tokens and some 60 cycles",
        throughput="max(F, Qc) cycles a group of lanes tokens and head",
        unit=AttentionPipeline,
        presets={
            "tiny": AttentionParameters(
                lanes=3,
                slices=2,
                chunks=2,
                features=16,
                tokens=14,
                heads=4,
                lane_words=12,
                probability_bits=8,
                rotary=True,
                element=ELEMENTS["tiny"],
            ),
            "smollm2": AttentionParameters(
                chunks=8, heads=24, rotary=True, base=100_000, element=ElementParameters()
            ),
            "smollm2_short": AttentionParameters(
                chunks=8, heads=24, rotary=True, base=100_000, features=64, tokens=64
            ),
            "paper": AttentionParameters(chunks=16, heads=48),
        },
        long=("smollm2", "paper"),
    ),
)
"""Every unit of the paper."""
