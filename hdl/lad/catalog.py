"""The units of LAD, with the dimensions at which each is built."""

from hdl.arith.float_format import BINARY16
from hdl.entry import Entry
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.ac.attention_computation_module import AttentionComputationModule
from hdl.lad.apid.active_position_module import (
    ActivePositionModule,
    ActivePositionModuleParameters,
)
from hdl.lad.eas.attention_score_module import AttentionScoreModule
from hdl.lad.eas.eas_parameters import AttentionScoreModuleParameters
from hdl.lad.interval_table import EIGHT, TWELVE
from hdl.lad.lad import Lad
from hdl.lad.lad_parameters import LadParameters
from hdl.lad.linear.linear_module import LinearModule, LinearModuleParameters
from hdl.lad.md.md_parameters import ModeDiscrepancyModuleParameters
from hdl.lad.md.mode_discrepancy_module import ModeDiscrepancyModule
from hdl.lad.piecewise_linear_exp import PiecewiseLinearExp, PiecewiseLinearExpParameters
from hdl.lad.sfm.sfm_parameters import SpecialFunctionModuleParameters
from hdl.lad.sfm.special_function_module import SpecialFunctionModule
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnit, VectorProcessingUnitParameters

TINY_VECTOR = VectorProcessingUnitParameters(head_size=4, multiply_stages=1, add_stages=1)

UNITS: tuple[Entry, ...] = (
    Entry(
        summary="finds the interval of a score, and the line that stands for exp in it",
        source="Section III-A, IV-B (3) and (4)",
        latency="1 cycle",
        throughput="lanes scores a cycle",
        unit=PiecewiseLinearExp,
        presets={
            "tiny": PiecewiseLinearExpParameters(intervals=5, lanes=1),
            "smollm2": PiecewiseLinearExpParameters(intervals=12, lanes=2),
            "paper": PiecewiseLinearExpParameters(intervals=5, lanes=12),
        },
    ),
    Entry(
        summary="dot products, element-wise products and scaled vectors of a head's size",
        source="Section IV-B (1), Figure 5 (b)",
        latency="2 cycles to a vector, 23 to a dot product (paper)",
        throughput="one operation a cycle",
        unit=VectorProcessingUnit,
        presets={
            "tiny": VectorProcessingUnitParameters(head_size=4, multiply_stages=1, add_stages=1),
            "tiny_odd": VectorProcessingUnitParameters(head_size=5),
            "smollm2": VectorProcessingUnitParameters(head_size=64),
            "paper": VectorProcessingUnitParameters(),
        },
        long=("paper",),
    ),
    Entry(
        summary="norms, rotary embedding and gated SiLU, pass by pass over a row",
        source="Section IV-B (6)",
        latency="add_stages + 5 cycles a slice of an RMSNorm, and some 40 more",
        throughput="one row or vector at a time",
        unit=SpecialFunctionModule,
        presets={
            "tiny": SpecialFunctionModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=4, multiply_stages=1, add_stages=1),
                width=8,
                lanes=2,
                add_stages=1,
                exp_stages=1,
                reciprocal_stages=1,
                root_stages=1,
            ),
            "tiny_one_slice": SpecialFunctionModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=6), width=6, lanes=1
            ),
            "smollm2": SpecialFunctionModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=64), width=576, lanes=4
            ),
            "paper": SpecialFunctionModuleParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="scores all positions by key centres, and finds the centre of the new key",
        source="Section IV-B (2), Algorithm 1",
        latency="29 cycles from the last dot product to the new key's centre (paper)",
        throughput="one key a cycle, 12 positions a cycle beside it",
        unit=AttentionScoreModule,
        presets={
            "tiny": AttentionScoreModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=4, multiply_stages=1, add_stages=1),
                apid=ActivePositionModuleParameters(lanes=3, capacity=20, recent=4, add_stages=1),
                multiply_stages=1,
                root_stages=1,
                divide_stages=2,
            ),
            "tiny_one_lane": AttentionScoreModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=5),
                apid=ActivePositionModuleParameters(lanes=1, capacity=9, recent=2),
            ),
            "smollm2": AttentionScoreModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=64),
                apid=ActivePositionModuleParameters(capacity=2048, table=EIGHT),
            ),
            "paper": AttentionScoreModuleParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="finds the positions whose scores left their mode's interval",
        source="Section IV-B (3), Figure 5",
        latency="3 cycles to a group's counts, 5 to its first active position",
        throughput="12 positions a cycle in, one active position a cycle out",
        unit=ActivePositionModule,
        presets={
            "tiny": ActivePositionModuleParameters(lanes=3, capacity=20, recent=4, add_stages=1),
            "tiny_one_lane": ActivePositionModuleParameters(lanes=1, capacity=9, recent=2),
            "smollm2": ActivePositionModuleParameters(capacity=2048, table=EIGHT),
            "paper": ActivePositionModuleParameters(),
        },
    ),
    Entry(
        summary="updates modes by exact scores of active positions, and gives the corrections",
        source="Section IV-B (4), Figure 5",
        latency="32 cycles from a key to its coefficients (paper)",
        throughput="two active positions a cycle, and a cycle a step",
        unit=ModeDiscrepancyModule,
        presets={
            "tiny": ModeDiscrepancyModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=4, multiply_stages=1, add_stages=1),
                capacity=20,
                add_stages=1,
                multiply_stages=1,
            ),
            "tiny_three_lanes": ModeDiscrepancyModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=3), lanes=3, table=EIGHT
            ),
            "smollm2": ModeDiscrepancyModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=64), capacity=2048, table=EIGHT
            ),
            "paper": ModeDiscrepancyModuleParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="attention by intermediate caches and corrections, and the caches' update",
        source="Section IV-B (5), Algorithm 2",
        latency="(1 + updates) * ceil((d + 1) / 3) + ceil(active / 3) cycles, and 60 more (paper)",
        throughput="one step at a time",
        unit=AttentionComputationModule,
        presets={
            "tiny": AttentionComputationModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=4, multiply_stages=1, add_stages=1),
                updates=4,
                cache_stages=2,
                add_stages=1,
                reciprocal_stages=1,
            ),
            "tiny_half": AttentionComputationModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=6),
                updates=8,
                cache_format=BINARY16,
                cache_stages=1,
            ),
            "smollm2": AttentionComputationModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=64), updates=683
            ),
            "paper": AttentionComputationModuleParameters(cache_format=BINARY16, cache_stages=2),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="linear layers of a batch on all vector units, each weight fetched once",
        source="Section IV-B, IV-C",
        latency="29 cycles from the last weights to their sums (paper)",
        throughput="7 dot products a cycle",
        unit=LinearModule,
        presets={
            "tiny": LinearModuleParameters(
                vector=TINY_VECTOR, units=3, samples=3, slices=4, groups=6, add_stages=1
            ),
            "tiny_alone": LinearModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=5),
                units=2,
                samples=1,
                slices=1,
                groups=2,
            ),
            "smollm2": LinearModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=64), slices=24, groups=220
            ),
            "paper": LinearModuleParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="decode steps of attention with locality, stage after stage, heads in turns",
        source="Section IV-C, Figures 4 to 6",
        latency="that of the six stages, one after the other",
        throughput="a step in the cycles of its slowest stage, heads in turns",
        unit=Lad,
        presets={
            "tiny": LadParameters(
                heads=3,
                eas=AttentionScoreModuleParameters(
                    vector=TINY_VECTOR,
                    apid=ActivePositionModuleParameters(
                        lanes=3, capacity=40, recent=4, add_stages=1
                    ),
                    multiply_stages=1,
                    root_stages=1,
                    divide_stages=2,
                ),
                md=ModeDiscrepancyModuleParameters(
                    vector=TINY_VECTOR, capacity=40, add_stages=1, multiply_stages=1
                ),
                ac=AttentionComputationModuleParameters(
                    vector=TINY_VECTOR,
                    updates=14,
                    cache_stages=2,
                    add_stages=1,
                    reciprocal_stages=1,
                ),
                linear=LinearModuleParameters(
                    vector=TINY_VECTOR, samples=3, slices=4, groups=3, add_stages=1
                ),
                sfm=SpecialFunctionModuleParameters(
                    vector=TINY_VECTOR,
                    width=8,
                    lanes=2,
                    add_stages=1,
                    exp_stages=1,
                    reciprocal_stages=1,
                    root_stages=1,
                ),
                waiting=6,
            ),
            "smollm2": LadParameters(
                heads=9,
                eas=AttentionScoreModuleParameters(
                    vector=VectorProcessingUnitParameters(head_size=64),
                    apid=ActivePositionModuleParameters(capacity=2048, table=TWELVE),
                ),
                md=ModeDiscrepancyModuleParameters(
                    vector=VectorProcessingUnitParameters(head_size=64),
                    capacity=2048,
                    table=TWELVE,
                ),
                ac=AttentionComputationModuleParameters(
                    vector=VectorProcessingUnitParameters(head_size=64), updates=683
                ),
                linear=LinearModuleParameters(
                    vector=VectorProcessingUnitParameters(head_size=64), slices=24, groups=220
                ),
                sfm=SpecialFunctionModuleParameters(
                    vector=VectorProcessingUnitParameters(head_size=64), width=576, lanes=4
                ),
            ),
            "paper": LadParameters(
                ac=AttentionComputationModuleParameters(cache_format=BINARY16, cache_stages=2)
            ),
        },
        long=("smollm2", "paper"),
    ),
)
"""Every unit of the paper."""
