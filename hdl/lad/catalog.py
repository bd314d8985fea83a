"""Catalog of LAD's units and their presets."""

from hdl.arith.float_format import BINARY16
from hdl.entry import Entry
from hdl.lad import presets
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.ac.attention_computation_module import AttentionComputationModule
from hdl.lad.apid.active_position_module import (
    ActivePositionModule,
    ActivePositionModuleParameters,
)
from hdl.lad.control.shared_reads import SharedReads, SharedReadsParameters
from hdl.lad.control.slice_walk import SliceWalk, SliceWalkParameters
from hdl.lad.control.sum_slices import SumSlices, SumSlicesParameters
from hdl.lad.eas.attention_score_module import AttentionScoreModule
from hdl.lad.eas.eas_parameters import AttentionScoreModuleParameters
from hdl.lad.interval_table import EIGHT
from hdl.lad.lad import Lad
from hdl.lad.lad_tile import LadTile
from hdl.lad.lad_tiles import LadTiles
from hdl.lad.linear.linear_module import LinearModule, LinearModuleParameters
from hdl.lad.md.md_parameters import ModeDiscrepancyModuleParameters
from hdl.lad.md.mode_discrepancy_module import ModeDiscrepancyModule
from hdl.lad.piecewise_linear_exp import PiecewiseLinearExp, PiecewiseLinearExpParameters
from hdl.lad.sfm.sfm_parameters import SpecialFunctionModuleParameters
from hdl.lad.sfm.special_function_module import SpecialFunctionModule
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnit, VectorProcessingUnitParameters

UNITS: tuple[Entry, ...] = (
    Entry(
        summary="piecewise linear exp: the interval of each score, and its line",
        source="Section III-A, IV-B (3) and (4)",
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
        unit=VectorProcessingUnit,
        presets={
            "tiny": presets.TINY_VECTOR,
            "tiny_odd": VectorProcessingUnitParameters(head_size=5),
            "smollm2": presets.SMOLLM2_VECTOR,
            "paper": VectorProcessingUnitParameters(),
        },
        long=("paper",),
    ),
    Entry(
        summary="nested-loop address generator of slices, with three loops",
        source="not in the paper; decoder layers of Section IV",
        unit=SliceWalk,
        presets={
            "tiny": SliceWalkParameters(bits=6),
            "smollm2": SliceWalkParameters(bits=7),
            "paper": SliceWalkParameters(),
        },
    ),
    Entry(
        summary="shares a memory's requests and answers between tiles, without deadlock",
        source="not in the paper; memory of several tiles in Figures 4 and 6",
        unit=SharedReads,
        presets={
            "tiny": SharedReadsParameters(
                request_bits=6, answer_bits=8, tiles=3, waiting=3, parts=4, step=2
            ),
            "smollm2": SharedReadsParameters(request_bits=15, tiles=2, parts=171),
            "paper": SharedReadsParameters(),
        },
    ),
    Entry(
        summary="collects the sums of linear layers into slices, for each sample",
        source="not in the paper; decoder layers of Section IV",
        unit=SumSlices,
        presets={
            "tiny": presets.TINY.sum_slices,
            "tiny_few": SumSlicesParameters(units=3, head_size=4, batch=3, groups=6),
            "tiny_even": SumSlicesParameters(units=6, head_size=4, batch=1, groups=5),
            "tiny_whole": SumSlicesParameters(units=2, head_size=8, batch=1, groups=16),
            "smollm2": presets.SMOLLM2.sum_slices,
            "paper": presets.PAPER.sum_slices,
        },
        long=("paper",),
    ),
    Entry(
        summary="norms, rotary embedding, SiLU gate and residual addition, in passes over a row",
        source="Section IV-B (6)",
        unit=SpecialFunctionModule,
        presets={
            "tiny": presets.TINY_SFM,
            "tiny_one_slice": SpecialFunctionModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=6), hidden_size=6, lanes=1
            ),
            "smollm2": presets.SMOLLM2_SFM,
            "paper": SpecialFunctionModuleParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="scores of all positions by key centres, and the centre of the new key",
        source="Section IV-B (2), Algorithm 1",
        unit=AttentionScoreModule,
        presets={
            "tiny": presets.TINY_EAS,
            "tiny_one_lane": AttentionScoreModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=5),
                apid=ActivePositionModuleParameters(lanes=1, slots=9, recent=2),
            ),
            "smollm2": presets.SMOLLM2_EAS,
            "paper": AttentionScoreModuleParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="finds active positions, whose scores are outside the interval of their mode",
        source="Section IV-B (3), Figure 5",
        unit=ActivePositionModule,
        presets={
            "tiny": presets.TINY_APID,
            "tiny_one_lane": ActivePositionModuleParameters(lanes=1, slots=9, recent=2),
            "smollm2": presets.SMOLLM2_APID,
            "paper": ActivePositionModuleParameters(),
        },
    ),
    Entry(
        summary="exact scores of active positions, new modes, coefficients of corrections",
        source="Section IV-B (4), Figure 5",
        unit=ModeDiscrepancyModule,
        presets={
            "tiny": presets.TINY_MD,
            "tiny_three_lanes": ModeDiscrepancyModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=3), lanes=3, table=EIGHT
            ),
            "smollm2": presets.SMOLLM2_MD,
            "paper": ModeDiscrepancyModuleParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="attention from intermediate caches and corrections, and the update of the caches",
        source="Section IV-B (5), Algorithm 2",
        unit=AttentionComputationModule,
        presets={
            "tiny": presets.TINY_AC,
            "tiny_half": AttentionComputationModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=6),
                updates=8,
                cache_format=BINARY16,
                cache_stages=1,
            ),
            "smollm2": presets.SMOLLM2_AC,
            "paper": presets.PAPER_AC,
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="linear layers of a batch on all vector units, each weight fetched once",
        source="Section IV-B, IV-C",
        unit=LinearModule,
        presets={
            "tiny": presets.TINY_LINEAR,
            "tiny_alone": LinearModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=5),
                units=2,
                samples=1,
                slices=1,
                groups=2,
            ),
            "smollm2": presets.SMOLLM2_LINEAR,
            "paper": LinearModuleParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="pipeline of attention steps, with linear layers on its vector units",
        source="Section IV-C, Figures 4 to 6",
        unit=LadTile,
        presets={
            "tiny": presets.TINY_TILE,
            "tiny_groups": presets.TINY_GROUPS,
            "smollm2": presets.SMOLLM2_TILE,
            "paper": presets.PAPER_TILE,
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="several tiles that share a memory; heads and rows of matrices are distributed",
        source="Section IV, Figures 4 and 6",
        unit=LadTiles,
        presets={
            "tiny": presets.TINY_TILES,
            "tiny_three": presets.TINY_THREE,
            "smollm2": presets.SMOLLM2_TILES,
            "paper": presets.PAPER_TILES,
        },
        long=("tiny", "tiny_three", "smollm2", "paper"),
    ),
    Entry(
        summary="decoder layers of a batch, token by token, with locality-aware attention",
        source="Section IV, Figures 4 to 6",
        unit=Lad,
        presets={
            "tiny": presets.TINY,
            "tiny_turns": presets.TINY_TURNS,
            "tiny_pairs": presets.TINY_PAIRS,
            "smollm2": presets.SMOLLM2,
            "paper": presets.PAPER,
        },
        long=("tiny_turns", "tiny_pairs", "smollm2", "paper"),
    ),
)
"""All units of the paper."""
