"""The units of P3-LLM, with the dimensions at which each is built."""

from dataclasses import replace

from hdl.arith.fp8_s0e4m4 import Round
from hdl.entry import Entry
from hdl.p3llm.npu.block_fixed import BlockFixed, BlockFixedParameters
from hdl.p3llm.npu.fixed_lanes import FixedLanes, FixedLanesParameters
from hdl.p3llm.npu.half_lanes import HalfLanes, HalfLanesParameters
from hdl.p3llm.npu.result_scaler import ResultScaler, ResultScalerParameters
from hdl.p3llm.npu.single_lanes import SingleLanes, SingleLanesParameters
from hdl.p3llm.p3llm import P3llm
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.bank_timing import BankTiming, BankTimingParameters
from hdl.p3llm.pim.pim_channel import PimChannel, PimChannelParameters
from hdl.p3llm.pim.pim_compute_unit import PimComputeUnit, PimComputeUnitParameters
from hdl.p3llm.pim.pim_processing_element import (
    PimProcessingElement,
    PimProcessingElementParameters,
)
from hdl.p3llm.quantisers.e4m3_quantiser import E4m3Quantiser, E4m3QuantiserParameters
from hdl.p3llm.quantisers.int4_quantiser import Int4Quantiser, Int4QuantiserParameters
from hdl.p3llm.quantisers.key_smoothing import KeySmoothing, KeySmoothingParameters
from hdl.p3llm.quantisers.probability_quantiser import (
    ProbabilityQuantiser,
    ProbabilityQuantiserParameters,
)
from hdl.p3llm.quantisers.value_scaling import ValueScaling, ValueScalingParameters

SHORT_TIMES = BankTimingParameters(
    banks=8,
    rcd_ps=6_000,
    rp_ps=4_000,
    ras_ps=12_000,
    rtp_ps=4_000,
    wr_ps=8_000,
    wtr_ps=4_000,
    rrd_ps=4_000,
    rfc_ps=18_000,
    refi_ps=400_000,
    rfcsb_ps=12_000,
    rrefd_ps=6_000,
)
"""Banks whose times take few cycles, for the small presets."""

TINY = P3llmParameters(
    channel=PimChannelParameters(
        unit=PimComputeUnitParameters(elements=4, steps=8),
        timing=SHORT_TIMES,
    ),
    hidden_size=64,
    intermediate_size=80,
    heads=6,
    kv_heads=2,
    head_size=16,
    group_weights=16,
    slots=128,
    vocabulary_size=405,
    lanes=4,
)
"""The smallest system; the other small presets differ from it in one parameter."""

PAPER_LAYER = P3llmParameters(
    hidden_size=4096,
    intermediate_size=14336,
    heads=32,
    kv_heads=8,
    head_size=128,
    rope_base=500_000,
    layers=1,
)
"""A layer of Llama-3.1 8B."""

UNITS: tuple[Entry, ...] = (
    Entry(
        summary="multiplies four inputs by four 4-bit codes, and adds in fixed point",
        source="Section V-C, Figure 6 (c)",
        unit=PimProcessingElement,
        presets={
            "tiny": PimProcessingElementParameters(pumps=1),
            "tiny_three_inputs": PimProcessingElementParameters(pumps=3),
            "smollm2": PimProcessingElementParameters(),
            "paper": PimProcessingElementParameters(),
        },
        long=("paper",),
    ),
    Entry(
        summary="multiplies each DRAM column by two of the inputs that it holds",
        source="Sections V-C and V-D, Figures 6 (c) and 7",
        unit=PimComputeUnit,
        presets={
            "tiny": PimComputeUnitParameters(elements=4, steps=4),
            "tiny_one_input": PimComputeUnitParameters(elements=4, pumps=1, steps=8),
            "smollm2": PimComputeUnitParameters(),
            "paper": PimComputeUnitParameters(),
        },
        long=("paper",),
    ),
    Entry(
        summary="decides whether a cycle allows an HBM-like command, and reports violations",
        source="Section V-C, Figure 6 (c): the banks; the paper gives no timing",
        unit=BankTiming,
        presets={
            # Each time is the longest one in some case, so that none is masked by another.
            "tiny": BankTimingParameters(
                banks=8,
                rcd_ps=6_000,
                rp_ps=8_000,
                ras_ps=22_000,
                ccd_l_ps=8_000,
                rtp_ps=6_000,
                wr_ps=12_000,
                wtr_ps=14_000,
                rrd_ps=6_000,
                rfc_ps=26_000,
                refi_ps=32_000,
                rfcsb_ps=18_000,
                rrefd_ps=10_000,
            ),
            "smollm2": BankTimingParameters(),
            # Columns of different bank groups are two cycles apart.
            "smollm2_gigahertz": BankTimingParameters(clock_mhz=1000),
            "paper": BankTimingParameters(),
        },
        long=("paper",),
    ),
    Entry(
        summary="executes HBM-like commands on compute units between banks, and checks them",
        source="Section V-C, Figure 6 (c)",
        unit=PimChannel,
        presets={
            "tiny": PimChannelParameters(
                unit=PimComputeUnitParameters(elements=4, steps=8),
                timing=replace(SHORT_TIMES, banks=4, refi_ps=80_000),
            ),
            "tiny_gigahertz": PimChannelParameters(
                unit=PimComputeUnitParameters(elements=4, steps=8),
                timing=replace(SHORT_TIMES, banks=4, refi_ps=80_000, clock_mhz=1000),
            ),
            "smollm2": PimChannelParameters(),
            "paper": PimChannelParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="turns FP16 activations and queries into E4M3 codes with a scale",
        source="P3-LLM, Sections IV-D and V-B",
        unit=E4m3Quantiser,
        presets={
            "tiny": E4m3QuantiserParameters(
                lanes=2, width=8, vectors=2, scale_stages=2, quotient_stages=1
            ),
            "smollm2": E4m3QuantiserParameters(lanes=8, width=1536),
            "paper": E4m3QuantiserParameters(lanes=32, width=14336),
        },
    ),
    Entry(
        summary="turns FP16 keys and values into INT4 codes with a scale and a zero point",
        source="P3-LLM, Sections IV-A and V-B",
        unit=Int4Quantiser,
        presets={
            "tiny": Int4QuantiserParameters(
                lanes=2, width=8, vectors=2, scale_stages=2, quotient_stages=1
            ),
            "smollm2": Int4QuantiserParameters(lanes=8, width=64, vectors=8),
            "paper": Int4QuantiserParameters(lanes=32, width=128, vectors=16),
        },
    ),
    Entry(
        summary="rounds FP16 attention probabilities to FP8 S0E4M4 codes",
        source="P3-LLM, Section IV-B",
        unit=ProbabilityQuantiser,
        presets={
            "tiny": ProbabilityQuantiserParameters(lanes=2),
            "tiny_rne": ProbabilityQuantiserParameters(lanes=2, round=Round.RNE),
            "smollm2": ProbabilityQuantiserParameters(lanes=8),
            "paper": ProbabilityQuantiserParameters(lanes=32),
        },
    ),
    Entry(
        summary="puts the scales of values, over the largest, into attention probabilities",
        source="P3-LLM, Section V-B",
        unit=ValueScaling,
        presets={
            "tiny": ValueScalingParameters(lanes=2, tokens=8, divide_stages=1, multiply_stages=1),
            "smollm2": ValueScalingParameters(lanes=8, tokens=1024),
            "paper": ValueScalingParameters(lanes=32),
        },
    ),
    Entry(
        summary="divides keys by their channels' maxima over a prompt, and puts these into queries",
        source="P3-LLM, Sections IV-A and V-B, Equation 2",
        unit=KeySmoothing,
        presets={
            "tiny": KeySmoothingParameters(lanes=2, head_size=4, heads=2, stages=1),
            "tiny_one_slice": KeySmoothingParameters(lanes=2, head_size=2, heads=2, stages=2),
            "smollm2": KeySmoothingParameters(lanes=8, head_size=64, heads=3),
            "paper": KeySmoothingParameters(),
        },
    ),
    Entry(
        summary="turns integer sums of the compute units into binary32, with all their scales",
        source="Sections IV-A, IV-C and V-C",
        unit=ResultScaler,
        presets={
            "tiny": ResultScalerParameters(lanes=2),
            "smollm2": ResultScalerParameters(),
            "paper": ResultScalerParameters(),
        },
        long=("paper",),
    ),
    Entry(
        summary="gives vectors of binary32 one binary point: 16-bit integers for norm and rotary",
        source="Figure 6 (a): the NPU's vector unit",
        unit=BlockFixed,
        presets={
            "tiny": BlockFixedParameters(lanes=2, slices=6, vectors=2),
            "smollm2": BlockFixedParameters(),
            "paper": BlockFixedParameters(slices=256),
        },
        long=("paper",),
    ),
    Entry(
        summary="rounds integers with a binary point, and binary32, to FP16",
        source="Figure 6 (a): the NPU's vector unit",
        unit=HalfLanes,
        presets={
            "tiny": HalfLanesParameters(lanes=2),
            "smollm2": HalfLanesParameters(),
            "paper": HalfLanesParameters(),
        },
        long=("paper",),
    ),
    Entry(
        summary="rounds binary32 to the Q6.10 of softmax and SiLU",
        source="Figure 6 (a): the NPU's vector unit",
        unit=FixedLanes,
        presets={
            "tiny": FixedLanesParameters(lanes=2),
            "smollm2": FixedLanesParameters(),
            "paper": FixedLanesParameters(),
        },
        long=("paper",),
    ),
    Entry(
        summary="adds in binary32, and multiplies by Q6.10: residual and gated states",
        source="Figure 6 (a): the NPU's vector unit",
        unit=SingleLanes,
        presets={
            "tiny": SingleLanesParameters(lanes=2),
            "smollm2": SingleLanesParameters(),
            "paper": SingleLanesParameters(),
        },
        long=("paper",),
    ),
    Entry(
        summary="runs the layers of decode steps on compute units next to DRAM banks and on an NPU",
        source="Sections IV to VI, Figure 6",
        unit=P3llm,
        presets={
            "tiny": TINY,
            # Two requests share the weights, the third runs alone.
            "tiny_batch": replace(TINY, batch=3),
            # Each pseudo-channel has its own key/value head.
            "tiny_channels": replace(TINY, pseudo_channels=2),
            # Keys are quantised before the rotary embedding; the NPU multiplies queries by keys.
            "tiny_pre_rope": replace(TINY, pre_rope=True),
            # The pins of the memory move a column in two cycles.
            "tiny_gigahertz": replace(
                TINY,
                channel=replace(TINY.channel, timing=replace(SHORT_TIMES, clock_mhz=1000)),
            ),
            # A weight of the LM head is the sum of two 4-bit weights.
            "tiny_vocabulary_bits": replace(TINY, vocabulary_bits=8),
            "smollm2": P3llmParameters(),
            # Llama-3.1 8B: one layer in one pseudo-channel, and whole in those of an HBM2 stack.
            "paper_layer": PAPER_LAYER,
            "paper": replace(
                PAPER_LAYER,
                slots=4096,
                layers=32,
                vocabulary_size=128_256,
                vocabulary_bits=8,
                pseudo_channels=16,
            ),
        },
        long=("tiny_gigahertz", "smollm2", "paper_layer"),
        emitted=("paper",),
    ),
)
"""Every unit of the paper."""
