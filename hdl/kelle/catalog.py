"""The units of Kelle."""

from dataclasses import replace

from hdl.entry import Entry
from hdl.kelle.array.evicting_array import EvictingArray, EvictingArrayParameters
from hdl.kelle.array.systolic_array import Moving, SystolicArray, SystolicArrayParameters
from hdl.kelle.edram.kv_edram import KvEdram, KvEdramParameters
from hdl.kelle.edram.refresh_controller import RefreshController
from hdl.kelle.edram.refresh_walker import RefreshParameters
from hdl.kelle.eviction.eviction_controller import EvictionController
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.prefill_parameters import PrefillSelectorParameters
from hdl.kelle.eviction.prefill_selector import PrefillSelector
from hdl.kelle.eviction.systolic_evictor import (
    OnSaturation,
    ScoreSource,
    SystolicEvictor,
    SystolicEvictorParameters,
)
from hdl.kelle.kelle import Kelle
from hdl.kelle.parameters import KelleParameters
from hdl.kelle.sfu import Sfu, SfuParameters
from hdl.nonlinear.activation_functions import Activation, ActivationFunctionsParameters
from hdl.nonlinear.rms_norm import RmsNormParameters
from hdl.nonlinear.rotary_embedding import RotaryEmbeddingParameters
from hdl.nonlinear.softmax import SoftmaxParameters

TINY_EVICTION = EvictionParameters(
    evictor=SystolicEvictorParameters(
        rows=4, slots=8, index_width=3, input_width=6, score_width=6, shift=2
    ),
    kv_heads=3,
    window=3,
    sinks=1,
    position_bits=8,
    vectors=2,
    vector_entries=2,
)
SMOLLM2_EVICTION = EvictionParameters(
    evictor=SystolicEvictorParameters(slots=128, index_width=7, shift=2, score_width=26),
    kv_heads=3,
    window=64,
    vectors=8,
    vector_entries=5,
)
PAPER_EVICTION = EvictionParameters(
    evictor=SystolicEvictorParameters(slots=128, index_width=12, shift=2, score_width=28),
    window=64,
)
"""Dimensions of the eviction policy, shared by the presets of all units that use them.

Shift and width hold the sums of a whole prefill: of 1,024 tokens with smollm2, of 4,096 with paper,
each with three query heads.
"""

TINY_KELLE = KelleParameters(
    rows=4,
    bands=2,
    banks=2,
    word_bytes=4,
    words=64,
    head_size=8,
    heads=4,
    kv_heads=2,
    intermediate_size=48,
    vocabulary_size=20,
    slots=8,
    window=3,
    sinks=1,
    prefill_tokens=32,
    vectors=2,
    score_shift=6,
    score_width=16,
    context_length=256,
    rope_base=10000,
    tick_bits=16,
)
"""The parameters that the small presets share, apart from those that each of them names."""

UNITS = (
    Entry(
        summary="multiplies vectors by a stationary tile or by its transpose",
        source="Section 5.2, Figure 11 (a, b)",
        unit=SystolicArray,
        presets={
            "tiny": SystolicArrayParameters(rows=4, bands=2, tag_width=4),
            "tiny_mode8": SystolicArrayParameters(
                rows=4, bands=1, moving=Moving.MODE8, tag_width=4
            ),
            "tiny_two_pass": SystolicArrayParameters(
                rows=4, bands=4, moving=Moving.TWO_PASS, tag_width=4
            ),
            "smollm2": SystolicArrayParameters(),
            "paper": SystolicArrayParameters(),
            "mode8": SystolicArrayParameters(rows=8, bands=2, moving=Moving.MODE8),
            "two_pass": SystolicArrayParameters(rows=8, bands=2, moving=Moving.TWO_PASS),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="multiplies, requantises the sums, and finds the victim among the scores",
        source="Section 5.3, Figure 11 (c, d)",
        unit=EvictingArray,
        presets={
            "tiny": EvictingArrayParameters(
                rows=4,
                bands=2,
                vectors=3,
                evictor=SystolicEvictorParameters(
                    rows=4, slots=16, index_width=4, score_width=16, shift=8, victims=2
                ),
            ),
            "smollm2": EvictingArrayParameters(
                evictor=SystolicEvictorParameters(slots=128, index_width=7, shift=6)
            ),
            "paper": EvictingArrayParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="finds the least important cached token while its scores are computed",
        source="Section 5.3, Figure 11 (c, d)",
        unit=SystolicEvictor,
        presets={
            "tiny": SystolicEvictorParameters(
                rows=4, slots=8, index_width=3, input_width=6, score_width=4, shift=2, victims=2
            ),
            "tiny_halve": SystolicEvictorParameters(
                rows=4,
                slots=16,
                index_width=4,
                input_width=16,
                score_width=4,
                shift=12,
                on_saturation=OnSaturation.HALVE,
                victims=1,
            ),
            "smollm2": SystolicEvictorParameters(slots=128, index_width=7, shift=6),
            "smollm2_prob": SystolicEvictorParameters(
                slots=128, index_width=7, shift=4, source=ScoreSource.PROB
            ),
            "paper": SystolicEvictorParameters(),
        },
    ),
    Entry(
        summary="computes softmax, SiLU, GeLU, RMSNorm and rotary embedding in parallel",
        source="Section 5, special function units",
        unit=Sfu,
        presets={
            "tiny": SfuParameters(
                softmax=SoftmaxParameters(lanes=2, scores=16),
                activation=ActivationFunctionsParameters(lanes=2, pieces=16),
                norm=RmsNormParameters(lanes=2, width=8),
                rotary=RotaryEmbeddingParameters(lanes=2, head_size=4, position_bits=6),
            ),
            "smollm2": SfuParameters(
                softmax=SoftmaxParameters(lanes=8),
                activation=ActivationFunctionsParameters(lanes=8),
                norm=RmsNormParameters(lanes=8, width=576),
                rotary=RotaryEmbeddingParameters(
                    lanes=8, head_size=64, base=100_000, position_bits=13
                ),
            ),
            "paper": SfuParameters(
                softmax=SoftmaxParameters(),
                activation=ActivationFunctionsParameters(),
                norm=RmsNormParameters(),
                rotary=RotaryEmbeddingParameters(),
            ),
        },
        # The units of the SFU are simulated separately at these dimensions.
        long=("paper",),
    ),
    Entry(
        summary="assigns slots to arriving tokens and decides which tokens are recomputed",
        source="Sections 4.1, 5.1 and 5.3",
        unit=EvictionController,
        presets={
            # Slots and vectors are no powers of two, so that no counter of them wraps by itself.
            "tiny": replace(
                TINY_EVICTION,
                evictor=replace(TINY_EVICTION.evictor, slots=12, index_width=4),
                layers=2,
                vectors=3,
            ),
            "tiny_before": EvictionParameters(
                evictor=SystolicEvictorParameters(
                    rows=4, slots=8, index_width=3, input_width=6, score_width=6, shift=2
                ),
                kv_heads=2,
                window=3,
                sinks=1,
                position_bits=8,
                vectors=3,
                vector_entries=1,
                evict_before=True,
            ),
            # Arriving tokens start at the median of their head.
            "tiny_centred": replace(TINY_EVICTION, layers=2, centred=True),
            "smollm2": SMOLLM2_EVICTION,
            "paper": PAPER_EVICTION,
        },
    ),
    Entry(
        summary="sums a prefill's scores and selects the tokens that each head keeps",
        source="Section 4.1",
        unit=PrefillSelector,
        presets={
            # More vectors than sinks, so that some vectors are assigned by popularity.
            "tiny": PrefillSelectorParameters(
                eviction=replace(TINY_EVICTION, vectors=8), prefill_tokens=32
            ),
            "smollm2": PrefillSelectorParameters(eviction=SMOLLM2_EVICTION, prefill_tokens=1024),
            "paper": PrefillSelectorParameters(eviction=PAPER_EVICTION),
        },
    ),
    Entry(
        summary="stores keys and values in 32 banks, split by bytes, with refresh ports",
        source="Section 5.1, Figure 10",
        unit=KvEdram,
        presets={
            "tiny": KvEdramParameters(
                banks=2,
                word_bytes=4,
                words=32,
                head_size=16,
                slots=4,
                kv_heads=2,
                vector_size=20,
                vectors=2,
            ),
            "smollm2": KvEdramParameters(
                words=512, head_size=64, slots=128, kv_heads=3, vector_size=576, vectors=8
            ),
            "paper": KvEdramParameters(),
        },
    ),
    Entry(
        summary="refreshes eDRAM by the significance of bits and the importance of tokens",
        source="Sections 4.2 and 5.1, Figure 7 (b, c)",
        unit=RefreshController,
        presets={
            "tiny": RefreshParameters(
                entries=5, words=2, score_bits=2, tick_bits=8, interval_bits=2, count_bits=8
            ),
            "smollm2": RefreshParameters(entries=424, words=1),
            "paper": RefreshParameters(),
        },
    ),
    Entry(
        summary="decodes layers with a cache that evicts, recomputes and refreshes",
        source="Sections 5 and 6, Figures 9 and 12 (b)",
        unit=Kelle,
        presets={
            # Layers, heads, slots and vectors are no powers of two, so that no counter of them
            # wraps by itself.
            "tiny": replace(
                TINY_KELLE,
                words=160,
                layers=3,
                heads=6,
                intermediate_size=40,
                slots=12,
                vectors=3,
                context_length=64,
                score_width=17,
            ),
            "tiny_batch": replace(
                TINY_KELLE,
                words=256,
                layers=2,
                batch=3,
                intermediate_size=24,
                vocabulary_size=0,
            ),
            # Steps with blocks of a text, of one sequence or of both.
            "tiny_block": replace(
                TINY_KELLE, words=128, layers=2, batch=2, block=6, intermediate_size=24
            ),
            # With a weight memory, whose words arrive at half the rate of the loads.
            "tiny_memory": replace(
                TINY_KELLE,
                weight_memory=48,
                channel_bytes=4,
                words=128,
                batch=2,
                intermediate_size=24,
                slots=16,
                window=4,
                vocabulary_size=0,
            ),
            # Arriving tokens start at the median of their head.
            "tiny_centred": replace(TINY_KELLE, centred=True),
            # The loads of a tile take fewer cycles than the evictor has rows.
            "tiny_w4a8": replace(
                TINY_KELLE,
                rows=8,
                weight_bits=4,
                activation_bits=8,
                slots=16,
                window=4,
            ),
            # A layer of OPT.
            "tiny_opt": replace(
                TINY_KELLE,
                heads=4,
                kv_heads=4,
                intermediate_size=64,
                rotary=False,
                layer_norm=True,
                biases=True,
                activation=Activation.RELU,
                gated=False,
                vocabulary_size=0,
            ),
            # Five of eight heads are in off-chip memory, with keys of two rows.
            "tiny_overflow": replace(
                TINY_KELLE,
                word_bytes=2,
                words=104,
                overflow=True,
                layers=2,
                batch=2,
                intermediate_size=24,
                slots=12,
                vocabulary_size=0,
            ),
            "tiny_words": replace(
                TINY_KELLE,
                bands=1,
                word_bytes=2,
                words=128,
                layers=2,
                heads=3,
                kv_heads=1,
                intermediate_size=32,
                slots=12,
                window=4,
                sinks=2,
                vectors=3,
                score_width=17,
                vocabulary_size=0,
            ),
            "smollm2": KelleParameters(
                words=512,
                slots=128,
                window=64,
                prefill_tokens=1024,
                context_length=8192,
                score_width=26,
            ),
            "paper": KelleParameters(),
            # The published machine: 16 sequences, 32 layers, and their cache in 4 MB and off-chip.
            "published": KelleParameters(overflow=True, batch=16, layers=32, vectors=2),
            # The attention of LLaMA-2-7B at a published token budget. Its full feed-forward block
            # would add a hundred times as many of the same tiles.
            "llama2_attention": KelleParameters(
                head_size=128,
                heads=32,
                kv_heads=32,
                intermediate_size=256,
                rope_base=10_000,
                slots=128,
                window=64,
            ),
        },
        long=(
            "tiny_centred",
            "tiny_words",
            "tiny_batch",
            "tiny_overflow",
            "smollm2",
            "paper",
            "llama2_attention",
        ),
        # Simulated with two layers, whose first is the same.
        emitted=("published",),
    ),
)
"""Every unit of Kelle."""
