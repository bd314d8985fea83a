"""Catalog of LAD's units and their presets; the tile and its modules use the same dimensions."""

from dataclasses import replace

from hdl.arith.float_format import BINARY16
from hdl.entry import Entry
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.ac.attention_computation_module import AttentionComputationModule
from hdl.lad.apid.active_position_module import ActivePositionModule
from hdl.lad.apid.apid_parameters import ActivePositionModuleParameters
from hdl.lad.control.shared_reads import SharedReads, SharedReadsParameters
from hdl.lad.control.slice_walk import SliceWalk, SliceWalkParameters
from hdl.lad.eas.attention_score_module import AttentionScoreModule
from hdl.lad.eas.eas_parameters import AttentionScoreModuleParameters
from hdl.lad.interval_table import EIGHT, TWELVE
from hdl.lad.lad import Lad
from hdl.lad.lad_tile import LadTile
from hdl.lad.lad_tiles import LadTiles
from hdl.lad.linear.linear_module import LinearModule, LinearModuleParameters
from hdl.lad.linear.sum_slices import SumSlices, SumSlicesParameters
from hdl.lad.md.md_parameters import ModeDiscrepancyModuleParameters
from hdl.lad.md.mode_discrepancy_module import ModeDiscrepancyModule
from hdl.lad.parameters import LadParameters, LadTileParameters, LadTilesParameters
from hdl.lad.piecewise_linear_exp import PiecewiseLinearExp, PiecewiseLinearExpParameters
from hdl.lad.sfm.sfm_parameters import SpecialFunctionModuleParameters
from hdl.lad.sfm.special_function_module import SpecialFunctionModule
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnit, VectorProcessingUnitParameters

TINY_VECTOR = VectorProcessingUnitParameters(head_size=4, multiply_stages=1, add_stages=1)
TINY_APID = ActivePositionModuleParameters(lanes=3, slots=20, recent=4, add_stages=1)
TINY_EAS = AttentionScoreModuleParameters(
    vector=TINY_VECTOR, apid=TINY_APID, multiply_stages=1, root_stages=1, divide_stages=2
)
TINY_MD = ModeDiscrepancyModuleParameters(
    vector=TINY_VECTOR, slots=20, add_stages=1, multiply_stages=1
)
TINY_AC = AttentionComputationModuleParameters(
    vector=TINY_VECTOR, updates=2, cache_stages=2, add_stages=1, reciprocal_stages=1
)
TINY_LINEAR = LinearModuleParameters(
    vector=TINY_VECTOR, units=3, samples=3, slices=4, groups=6, add_stages=1
)
TINY_SFM = SpecialFunctionModuleParameters(
    vector=TINY_VECTOR,
    hidden_size=8,
    lanes=2,
    add_stages=1,
    exp_stages=1,
    reciprocal_stages=1,
    root_stages=1,
)
TINY_TILE = LadTileParameters(
    stored_heads=9,
    eas=replace(TINY_EAS, apid=replace(TINY_APID, slots=40)),
    md=replace(TINY_MD, slots=40),
    ac=TINY_AC,
    linear=replace(TINY_LINEAR, units=7, groups=3),
    sfm=TINY_SFM,
    waiting=6,
    prefetched=5,
)
"""More heads than slots, and less room on chip than a step has active positions."""
TINY_GROUPS = replace(TINY_TILE, stored_heads=6, shared=3, kept=7)
"""Groups of three heads, whose union sometimes exceeds its room."""
TINY_TILES = LadTilesParameters(tile=TINY_TILE, tiles=2)
TINY_THREE = LadTilesParameters(tile=replace(TINY_TILE, stored_heads=4, shared=2, kept=5), tiles=3)

TINY = LadParameters(
    tile=replace(
        TINY_TILE,
        stored_heads=8,
        prefetched=40,
        shared=2,
        kept=9,
        linear=replace(TINY_TILE.linear, groups=4),
    ),
    layers=2,
    heads=2,
    kv_heads=1,
    intermediate_size=12,
    batch=2,
    vocabulary_size=45,
)
"""Two query heads share the keys and values of each sample. The last group of sums is not full, and
the last piece of the LM head has a group without tokens."""
TINY_TURNS = replace(
    TINY,
    tile=replace(
        TINY.tile,
        stored_heads=6,
        shared=1,
        kept=0,
        linear=replace(TINY.tile.linear, samples=4, groups=2),
    ),
    tiles=2,
    layers=1,
    heads=3,
    kv_heads=3,
    batch=4,
    periods=3,
    vocabulary_size=0,
)
"""The paper's Figure 6: four samples, three heads, two tiles."""
TINY_PAIRS = replace(
    TINY,
    tile=replace(TINY.tile, stored_heads=4, linear=replace(TINY.tile.linear, groups=2)),
    tiles=2,
    layers=1,
    heads=4,
    kv_heads=2,
    periods=2,
    vocabulary_size=0,
)
"""Pairs of query heads, each pair in one of two tiles."""

SMOLLM2_VECTOR = VectorProcessingUnitParameters(head_size=64)
SMOLLM2_APID = ActivePositionModuleParameters(slots=2048, table=EIGHT)
SMOLLM2_EAS = AttentionScoreModuleParameters(vector=SMOLLM2_VECTOR, apid=SMOLLM2_APID)
SMOLLM2_MD = ModeDiscrepancyModuleParameters(vector=SMOLLM2_VECTOR, slots=2048, table=EIGHT)
SMOLLM2_AC = AttentionComputationModuleParameters(vector=SMOLLM2_VECTOR)
SMOLLM2_LINEAR = LinearModuleParameters(vector=SMOLLM2_VECTOR, slices=24, groups=220)
SMOLLM2_SFM = SpecialFunctionModuleParameters(vector=SMOLLM2_VECTOR, hidden_size=576)
SMOLLM2_TILE = LadTileParameters(
    stored_heads=9,
    eas=replace(SMOLLM2_EAS, apid=replace(SMOLLM2_APID, table=TWELVE)),
    md=replace(SMOLLM2_MD, table=TWELVE),
    ac=SMOLLM2_AC,
    linear=SMOLLM2_LINEAR,
    sfm=SMOLLM2_SFM,
    prefetched=2048,
    shared=3,
    kept=2048,
)
SMOLLM2 = LadParameters(
    tile=replace(SMOLLM2_TILE, stored_heads=3 * 9, linear=replace(SMOLLM2_LINEAR, groups=439)),
    layers=3,
    heads=9,
    kv_heads=3,
    intermediate_size=1536,
)
"""Three of the model's thirty layers."""
SMOLLM2_TILES = LadTilesParameters(tile=replace(SMOLLM2_TILE, stored_heads=6), tiles=2)

PAPER_AC = AttentionComputationModuleParameters(cache_format=BINARY16, cache_stages=2)
PAPER_TILE = LadTileParameters(ac=PAPER_AC, prefetched=2048)
LAD_1_5 = replace(PAPER_TILE, waiting=512, prefetched=1200)
"""LAD-1.5, one of the paper's three configurations: memories of at most 1.5 MB in a tile."""
LAD_2_5 = replace(PAPER_TILE, waiting=512, prefetched=3200)
"""LAD-2.5: at most 2.5 MB."""
LAD_3_5 = replace(PAPER_TILE, waiting=512, prefetched=5200)
"""LAD-3.5: at most 3.5 MB."""
PAPER_TILES = LadTilesParameters(tile=replace(PAPER_TILE, stored_heads=22))
PAPER = LadParameters(
    tile=replace(PAPER_TILE, stored_heads=128, linear=LinearModuleParameters(groups=3146)), batch=4
)
"""One layer of LLaMA2-7B with four samples."""

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
            "tiny": TINY_VECTOR,
            "tiny_odd": VectorProcessingUnitParameters(head_size=5),
            "smollm2": SMOLLM2_VECTOR,
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
            "tiny": TINY.sum_slices,
            "tiny_few": SumSlicesParameters(units=3, head_size=4, batch=3, groups=6),
            "tiny_even": SumSlicesParameters(units=6, head_size=4, batch=1, groups=5),
            "tiny_whole": SumSlicesParameters(units=2, head_size=8, batch=1, groups=16),
            "smollm2": SMOLLM2.sum_slices,
            "paper": PAPER.sum_slices,
        },
        long=("paper",),
    ),
    Entry(
        summary="norms, rotary embedding, SiLU gate and residual addition, in passes over a row",
        source="Section IV-B (6)",
        unit=SpecialFunctionModule,
        presets={
            "tiny": TINY_SFM,
            "tiny_one_slice": SpecialFunctionModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=6), hidden_size=6, lanes=1
            ),
            "smollm2": SMOLLM2_SFM,
            "paper": SpecialFunctionModuleParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="scores of all positions by key centres, and the centre of the new key",
        source="Section IV-B (2), Algorithm 1",
        unit=AttentionScoreModule,
        presets={
            "tiny": TINY_EAS,
            "tiny_one_lane": AttentionScoreModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=5),
                apid=ActivePositionModuleParameters(lanes=1, slots=9, recent=2),
            ),
            "smollm2": SMOLLM2_EAS,
            "paper": AttentionScoreModuleParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="finds active positions, whose scores are outside the interval of their mode",
        source="Section IV-B (3), Figure 5",
        unit=ActivePositionModule,
        presets={
            "tiny": TINY_APID,
            "tiny_one_lane": ActivePositionModuleParameters(lanes=1, slots=9, recent=2),
            "smollm2": SMOLLM2_APID,
            "paper": ActivePositionModuleParameters(),
        },
    ),
    Entry(
        summary="exact scores of active positions, new modes, coefficients of corrections",
        source="Section IV-B (4), Figure 5",
        unit=ModeDiscrepancyModule,
        presets={
            "tiny": TINY_MD,
            "tiny_three_lanes": ModeDiscrepancyModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=3), lanes=3, table=EIGHT
            ),
            "smollm2": SMOLLM2_MD,
            "paper": ModeDiscrepancyModuleParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="attention from intermediate caches and corrections, and the update of the caches",
        source="Section IV-B (5), Algorithm 2",
        unit=AttentionComputationModule,
        presets={
            "tiny": TINY_AC,
            "tiny_half": AttentionComputationModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=6),
                updates=2,
                cache_format=BINARY16,
                cache_stages=1,
            ),
            "smollm2": SMOLLM2_AC,
            "paper": PAPER_AC,
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="linear layers of a batch on all vector units, each weight fetched once",
        source="Section IV-B, IV-C",
        unit=LinearModule,
        presets={
            "tiny": TINY_LINEAR,
            "tiny_alone": LinearModuleParameters(
                vector=VectorProcessingUnitParameters(head_size=5),
                units=2,
                samples=1,
                slices=1,
                groups=2,
            ),
            "smollm2": SMOLLM2_LINEAR,
            "paper": LinearModuleParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="pipeline of attention steps, with linear layers on its vector units",
        source="Section IV-C, Figures 4 to 6",
        unit=LadTile,
        presets={
            "tiny": TINY_TILE,
            "tiny_groups": TINY_GROUPS,
            "smollm2": SMOLLM2_TILE,
            "paper": PAPER_TILE,
            "lad_1_5": LAD_1_5,
            "lad_2_5": LAD_2_5,
            "lad_3_5": LAD_3_5,
        },
        long=("smollm2", "paper", "lad_1_5", "lad_2_5", "lad_3_5"),
    ),
    Entry(
        summary="several tiles that share a memory; heads and rows of matrices are distributed",
        source="Section IV, Figures 4 and 6",
        unit=LadTiles,
        presets={
            "tiny": TINY_TILES,
            "tiny_three": TINY_THREE,
            "smollm2": SMOLLM2_TILES,
            "paper": PAPER_TILES,
        },
        long=("tiny", "tiny_three", "smollm2", "paper"),
    ),
    Entry(
        summary="decoder layers of a batch, token by token, with locality-aware attention",
        source="Section IV, Figures 4 to 6",
        unit=Lad,
        presets={
            "tiny": TINY,
            "tiny_turns": TINY_TURNS,
            "tiny_pairs": TINY_PAIRS,
            "smollm2": SMOLLM2,
            "paper": PAPER,
        },
        long=("tiny_turns", "tiny_pairs", "smollm2", "paper"),
    ),
)
"""All units of the paper."""
