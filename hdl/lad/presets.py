"""Dimensions of LAD's units in the presets; the tile and its modules use the same ones."""

from dataclasses import replace

from hdl.arith.float_format import BINARY16
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.apid.active_position_module import ActivePositionModuleParameters
from hdl.lad.eas.eas_parameters import AttentionScoreModuleParameters
from hdl.lad.interval_table import EIGHT, TWELVE
from hdl.lad.linear.linear_module import LinearModuleParameters
from hdl.lad.md.md_parameters import ModeDiscrepancyModuleParameters
from hdl.lad.parameters import LadParameters, LadTileParameters, LadTilesParameters
from hdl.lad.sfm.sfm_parameters import SpecialFunctionModuleParameters
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnitParameters

TINY_VECTOR = VectorProcessingUnitParameters(head_size=4, multiply_stages=1, add_stages=1)
TINY_APID = ActivePositionModuleParameters(lanes=3, slots=20, recent=4, add_stages=1)
TINY_EAS = AttentionScoreModuleParameters(
    vector=TINY_VECTOR, apid=TINY_APID, multiply_stages=1, root_stages=1, divide_stages=2
)
TINY_MD = ModeDiscrepancyModuleParameters(
    vector=TINY_VECTOR, slots=20, add_stages=1, multiply_stages=1
)
TINY_AC = AttentionComputationModuleParameters(
    vector=TINY_VECTOR, updates=4, cache_stages=2, add_stages=1, reciprocal_stages=1
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
    heads=9,
    eas=replace(TINY_EAS, apid=replace(TINY_APID, slots=40)),
    md=replace(TINY_MD, slots=40),
    ac=replace(TINY_AC, updates=14),
    linear=replace(TINY_LINEAR, units=7, groups=3),
    sfm=TINY_SFM,
    waiting=6,
    prefetched=5,
)
"""More heads than slots, and less room on chip than a step has active positions."""
TINY_GROUPS = replace(TINY_TILE, heads=6, shared=3, kept=7)
"""Groups of three heads, whose union sometimes exceeds its room."""
TINY_TILES = LadTilesParameters(tile=TINY_TILE, tiles=2)
TINY_THREE = LadTilesParameters(tile=replace(TINY_TILE, heads=4, shared=2, kept=5), tiles=3)

TINY = LadParameters(
    tile=replace(
        TINY_TILE,
        heads=8,
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
        heads=6,
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
    tile=replace(TINY.tile, heads=4, linear=replace(TINY.tile.linear, groups=2)),
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
SMOLLM2_AC = AttentionComputationModuleParameters(vector=SMOLLM2_VECTOR, updates=683)
SMOLLM2_LINEAR = LinearModuleParameters(vector=SMOLLM2_VECTOR, slices=24, groups=220)
SMOLLM2_SFM = SpecialFunctionModuleParameters(vector=SMOLLM2_VECTOR, hidden_size=576, lanes=4)
SMOLLM2_TILE = LadTileParameters(
    heads=9,
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
    tile=replace(SMOLLM2_TILE, heads=3 * 9, linear=replace(SMOLLM2_LINEAR, groups=439)),
    layers=3,
    heads=9,
    kv_heads=3,
    intermediate_size=1536,
)
"""Three of the model's thirty layers."""
SMOLLM2_TILES = LadTilesParameters(tile=replace(SMOLLM2_TILE, heads=6), tiles=2)

PAPER_AC = AttentionComputationModuleParameters(cache_format=BINARY16, cache_stages=2)
PAPER_TILE = LadTileParameters(ac=PAPER_AC, prefetched=2048)
PAPER_TILES = LadTilesParameters(tile=replace(PAPER_TILE, heads=22))
PAPER = LadParameters(
    tile=replace(PAPER_TILE, heads=128, linear=LinearModuleParameters(groups=3146)), batch=4
)
"""One layer of LLaMA2-7B with four samples."""
