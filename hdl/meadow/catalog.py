"""Catalog entries of MEADOW's units and their presets."""

from dataclasses import replace

from hdl.entry import Entry
from hdl.meadow.control.combiner import Combiner, CombinerParameters
from hdl.meadow.meadow import Meadow
from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.broadcasting_processing_element import BroadcastingProcessingElement
from hdl.meadow.tile.element_parameters import ElementParameters
from hdl.meadow.tile.hybrid_tile import HybridTile
from hdl.meadow.tile.parallel_processing_element import ParallelProcessingElement
from hdl.meadow.tile.pipelined_softmax import PipelinedSoftmax, PipelinedSoftmaxParameters
from hdl.meadow.tile.tile_parameters import TileParameters
from hdl.meadow.wilu.mode_aware_unpacker import ModeAwareUnpacker
from hdl.meadow.wilu.unpacker_parameters import UnpackerParameters
from hdl.meadow.wilu.weight_unpacker import WeightUnpacker
from hdl.meadow.wilu.weight_unpacker_parameters import WeightUnpackerParameters
from hdl.nonlinear.activation_functions import Activation

ELEMENTS = {
    "tiny": ElementParameters(
        multipliers=4, input_file=8, weight_file=8, output_file=16, scalar_bits=9
    ),
    "smollm2": ElementParameters(),
    "paper": ElementParameters(scalar_bits=17),
}
"""Presets of both kinds of processing elements."""

TINY = MeadowParameters(
    hidden_size=24,
    heads=6,
    kv_heads=2,
    intermediate_size=40,
    lanes=3,
    slices=2,
    slots=16,
    tokens=14,
    probability_bits=8,
    rope_base=10_000,
    element=ELEMENTS["tiny"],
    unpacker=WeightUnpackerParameters(
        unpacker=UnpackerParameters(lanes=3, packet_bits=64, classes=False),
        entries=512,
    ),
    vocabulary_size=45,
    words=512,
)

TINY_OPT = MeadowParameters(
    hidden_size=24,
    heads=6,
    kv_heads=6,
    intermediate_size=48,
    lanes=3,
    slots=16,
    tokens=14,
    probability_bits=8,
    rotary=False,
    layer_norm=True,
    biases=True,
    activation=Activation.RELU,
    gated=False,
    element=ELEMENTS["tiny"],
    unpacker=WeightUnpackerParameters(
        unpacker=UnpackerParameters(lanes=3, packet_bits=64, classes=False),
        entries=1024,
        rows=2,
    ),
    vocabulary_size=45,
    words=512,
)

TINY_TILE = TileParameters(
    lanes=3,
    slices=2,
    slice_words=2,
    slots=16,
    tokens=14,
    heads=4,
    lane_words=12,
    probability_bits=8,
    rotary=True,
    element=ELEMENTS["tiny"],
)

UNITS: tuple[Entry, ...] = (
    Entry(
        summary="computes dot products: 64 multipliers and an adder tree",
        source="Section 3, Figure 2 (b, c): parallel MAC PE",
        unit=ParallelProcessingElement,
        presets=ELEMENTS,
        long=("paper",),
    ),
    Entry(
        summary="broadcasts one input to 64 accumulators",
        source="Section 3, Figure 2 (b, c): broadcasting MAC PE",
        unit=BroadcastingProcessingElement,
        presets=ELEMENTS,
        long=("paper",),
    ),
    Entry(
        summary="computes probabilities from INT8 scores, three tokens in three stages",
        source="Section 3, Figure 2 (d): pipelined softmax module",
        unit=PipelinedSoftmax,
        presets={
            "tiny": PipelinedSoftmaxParameters(scores=24, probability_bits=8),
            "smollm2": PipelinedSoftmaxParameters(scores=512, probability_bits=12),
            "paper": PipelinedSoftmaxParameters(scores=512, probability_bits=16),
        },
        long=("paper",),
    ),
    Entry(
        summary="runs linear layers in GEMM mode and attention by TPHS, one token per lane",
        source="Sections 3 and 4, Figures 2 (a) and 3: tile of hybrid PEs, TPHS dataflow",
        unit=HybridTile,
        presets={
            "tiny": TINY_TILE,
            "tiny_exponents": replace(
                TINY_TILE, biases=True, tile_scales=True, token_exponents=True, weight_words=4
            ),
            "tiny_shared": replace(TINY_TILE, biases=True, shared_multipliers=True),
            "smollm2": TileParameters(
                slice_words=8, heads=24, rotary=True, rope_base=100_000, element=ElementParameters()
            ),
            "smollm2_short": TileParameters(
                slice_words=8, heads=24, rotary=True, rope_base=100_000, slots=64, tokens=64
            ),
            "paper": TileParameters(slice_words=16, heads=48, biases=True, shared_multipliers=True),
        },
        long=("smollm2", "smollm2_short", "paper"),
    ),
    Entry(
        summary="extracts weight IDs from packets, several per cycle",
        source="Section 5.4, Figure 5 (b)",
        unit=ModeAwareUnpacker,
        presets={
            "tiny": UnpackerParameters(lanes=3, packet_bits=64, id_bits=9),
            "tiny_paper_levels": UnpackerParameters(
                lanes=4, packet_bits=64, id_bits=12, classes=False
            ),
            "smollm2": UnpackerParameters(),
            "paper": UnpackerParameters(id_bits=11, classes=False),
            "paper_51": UnpackerParameters(lanes=48, packet_bits=512, id_bits=11, classes=False),
        },
        long=("paper_51",),
    ),
    Entry(
        summary="unpacks weights, several chunks per cycle",
        source="Section 5.4, Figure 5 (a)",
        unit=WeightUnpacker,
        presets={
            "tiny": WeightUnpackerParameters(
                unpacker=UnpackerParameters(lanes=3, packet_bits=64, id_bits=10),
                chunk=1,
                entries=1024,
            ),
            "tiny_pairs": WeightUnpackerParameters(
                unpacker=UnpackerParameters(lanes=4, packet_bits=64), entries=256, rows=4
            ),
            "smollm2": WeightUnpackerParameters(),
            "paper": WeightUnpackerParameters(
                unpacker=UnpackerParameters(classes=False), entries=2048
            ),
        },
    ),
    Entry(
        summary="adds results to hidden states, or multiplies them by an activation",
        source="Figure 2 (a): ReLU and GeLU modules; LN, residual and MLP of Section 2",
        unit=Combiner,
        presets={
            "tiny": CombinerParameters(size=2, units=1),
            "tiny_relu": CombinerParameters(
                size=2, units=1, activation=Activation.RELU, gated=False
            ),
            "tiny_gelu": CombinerParameters(
                size=2, units=2, activation=Activation.GELU, gated=False
            ),
            "tiny_wide": CombinerParameters(size=2, units=1, wide=True),
            "smollm2": CombinerParameters(),
            "paper": CombinerParameters(activation=Activation.RELU, gated=False),
        },
        long=("paper",),
    ),
    Entry(
        summary="runs decoder layers from packed weights, by GEMM and TPHS",
        source="Sections 3 to 5, Figure 2",
        unit=Meadow,
        presets={
            "tiny": TINY,
            "tiny_exponents": replace(
                TINY, tile_scales=True, token_exponents=True, unpackers=2, weights_ahead=8
            ),
            "tiny_opt": TINY_OPT,
            "tiny_deit": replace(TINY_OPT, activation=Activation.GELU, causal=False),
            "tiny_shared": replace(TINY_OPT, shared_multipliers=True, norm_lanes=2),
            "smollm2": MeadowParameters(
                unpacker=WeightUnpackerParameters(
                    unpacker=UnpackerParameters(lanes=32, packet_bits=512, classes=False),
                    entries=8192,
                    rows=4,
                ),
            ),
            "paper": MeadowParameters(
                hidden_size=768,
                heads=12,
                kv_heads=12,
                intermediate_size=3072,
                tokens=256,
                rotary=False,
                layer_norm=True,
                biases=True,
                activation=Activation.RELU,
                gated=False,
                unpacker=WeightUnpackerParameters(
                    unpacker=UnpackerParameters(classes=False), entries=2048
                ),
                vocabulary_size=50_272,
                words=1 << 15,
                shared_multipliers=True,
                norm_lanes=8,
            ),
        },
        long=("smollm2", "paper"),
    ),
)
"""Every unit of the paper."""
