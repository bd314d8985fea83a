"""The units of VEDA."""

from dataclasses import replace

from hdl.entry import Entry
from hdl.veda.array.flexible_pe_array import FlexiblePeArray, FlexiblePeArrayParameters
from hdl.veda.functions.element_serial_activation import (
    ElementSerialActivation,
    ElementSerialActivationParameters,
)
from hdl.veda.functions.element_serial_layernorm import (
    ElementSerialLayernorm,
    ElementSerialLayernormParameters,
)
from hdl.veda.functions.element_serial_rotary import (
    ElementSerialRotary,
    ElementSerialRotaryParameters,
)
from hdl.veda.functions.element_serial_softmax import (
    ElementSerialSoftmax,
    ElementSerialSoftmaxParameters,
)
from hdl.veda.functions.special_function_unit import (
    SpecialFunctionUnit,
    SpecialFunctionUnitParameters,
)
from hdl.veda.parameters import VedaParameters
from hdl.veda.veda import Veda
from hdl.veda.voting.threshold_parameters import VoteThresholdParameters
from hdl.veda.voting.voting_engine import VotingEngine
from hdl.veda.voting.voting_parameters import VotingEngineParameters

SMOLLM2 = VedaParameters(
    head_size=64,
    heads=9,
    kv_heads=3,
    slots=512,
    scored_heads=2,
    hidden_size=576,
    intermediate_size=1536,
    context_length=8192,
    block=8,
)

UNITS: tuple[Entry, ...] = (
    Entry(
        summary="computes inner and outer products on the same processing elements",
        source="Section IV, Figure 5 (a)",
        unit=FlexiblePeArray,
        presets={
            "tiny": FlexiblePeArrayParameters(rows=2, columns=2, partial_sums=4),
            "smollm2": FlexiblePeArrayParameters(),
            "paper": FlexiblePeArrayParameters(),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="computes layernorm or RMSNorm, element by element",
        source="Section V, Figure 6 (reduction and normalisation)",
        unit=ElementSerialLayernorm,
        presets={
            "tiny": ElementSerialLayernormParameters(width=12),
            "tiny_mean": ElementSerialLayernormParameters(width=12, rms=False),
            "smollm2": ElementSerialLayernormParameters(width=576),
            "paper": ElementSerialLayernormParameters(rms=False),
        },
    ),
    Entry(
        summary="computes the SwiGLU activation, SiLU(gate) * up",
        source="not in the paper: LLaMA layers need it",
        unit=ElementSerialActivation,
        presets={
            "tiny": ElementSerialActivationParameters(
                exp_stages=2, step_stages=1, divide_stages=2, multiply_stages=1
            ),
            "tiny_serial": ElementSerialActivationParameters(
                exp_stages=2, step_stages=1, divide_digits=3, multiply_stages=1
            ),
            "smollm2": ElementSerialActivationParameters(),
            "paper": ElementSerialActivationParameters(),
        },
        # Equal to smollm2.
        long=("paper",),
    ),
    Entry(
        summary="applies the rotary position embedding to queries and keys",
        source="not in the paper: LLaMA layers need it",
        unit=ElementSerialRotary,
        presets={
            "tiny": ElementSerialRotaryParameters(multiply_stages=1, add_stages=1),
            "smollm2": ElementSerialRotaryParameters(),
            "paper": ElementSerialRotaryParameters(),
        },
        # Equal to smollm2.
        long=("paper",),
    ),
    Entry(
        summary="computes the softmax of heads of scores, element by element",
        source="Section V, Figure 6 (reduction and normalisation)",
        unit=ElementSerialSoftmax,
        presets={
            "tiny": ElementSerialSoftmaxParameters(scores=24, heads=2),
            "tiny_compact": ElementSerialSoftmaxParameters(
                scores=24, heads=2, exp_stages=1, multiply_stages=1
            ),
            "smollm2": ElementSerialSoftmaxParameters(scores=512),
            "paper": ElementSerialSoftmaxParameters(),
        },
    ),
    Entry(
        summary="softmax, norm, activation and rotary embedding on shared operators",
        source="Section V, Figures 6 and 7, Table I (special function unit)",
        unit=SpecialFunctionUnit,
        presets={
            "tiny": SpecialFunctionUnitParameters(
                scores=24,
                heads=2,
                width=12,
                rms=False,
                exp_stages=2,
                step_stages=1,
            ),
            # An OPT layer's functions: softmax and layernorm.
            "tiny_opt": SpecialFunctionUnitParameters(
                lanes=2, scores=24, heads=2, width=12, rms=False, swiglu=False, rotates=False
            ),
            "tiny_lanes": SpecialFunctionUnitParameters(
                lanes=2, scores=24, heads=2, width=12, divide_digits=0
            ),
            # As in the accelerator: one configuration has one figure.
            "smollm2": SpecialFunctionUnitParameters(
                lanes=2, scores=512, heads=2, width=576, vectors=1, divide_digits=0
            ),
            "paper": SpecialFunctionUnitParameters(heads=2, vectors=1, divide_digits=0),
        },
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="counts the heads' votes and selects the cached token to evict",
        source="Section III, Figure 3; Section V, Figure 7",
        unit=VotingEngine,
        presets={
            "tiny": VotingEngineParameters(
                threshold=VoteThresholdParameters(slots=40),
                heads=3,
                count_bits=4,
                reserved=4,
            ),
            # A head whose threshold is negative casts no vote.
            "tiny_without_fallback": VotingEngineParameters(
                threshold=VoteThresholdParameters(slots=40, fallback=False),
                heads=3,
                count_bits=4,
                reserved=4,
            ),
            "tiny_lanes": VotingEngineParameters(
                threshold=VoteThresholdParameters(slots=40),
                heads=3,
                lanes=2,
                count_bits=6,
                reserved=4,
                protect_sink=True,
            ),
            "smollm2": VotingEngineParameters(
                threshold=VoteThresholdParameters(slots=512), heads=9, lanes=2
            ),
            "paper": VotingEngineParameters(),
        },
    ),
    Entry(
        summary="executes decoder layers with a KV cache whose least important tokens are evicted",
        source="Sections IV and V, Figure 7",
        unit=Veda,
        presets={
            "tiny": VedaParameters(
                array=FlexiblePeArrayParameters(rows=2, columns=2, partial_sums=4),
                head_size=4,
                heads=5,
                kv_heads=5,
                layers=3,
                slots=16,
                scored_heads=2,
                hidden_size=18,
                intermediate_size=16,
                context_length=64,
                block=3,
            ),
            # A head as wide as the array: its planes process the same head.
            "tiny_wide": VedaParameters(
                array=FlexiblePeArrayParameters(rows=2, columns=2, partial_sums=4),
                head_size=8,
                heads=6,
                kv_heads=3,
                layers=3,
                slots=16,
                scored_heads=2,
                hidden_size=13,
                intermediate_size=8,
                context_length=64,
            ),
            # Two arrays, blocks of tokens, and a lane without a head in the last round.
            "tiny_two_copies": VedaParameters(
                array=FlexiblePeArrayParameters(rows=2, columns=2, partial_sums=4),
                copies=2,
                head_size=4,
                heads=6,
                kv_heads=3,
                layers=3,
                slots=16,
                scored_heads=1,
                hidden_size=22,
                intermediate_size=48,
                context_length=64,
                block=2,
            ),
            # A layer of OPT, in which a row of activated elements is several vectors.
            "tiny_opt": VedaParameters(
                array=FlexiblePeArrayParameters(rows=2, columns=2, partial_sums=4),
                copies=2,
                head_size=4,
                heads=6,
                kv_heads=6,
                layers=2,
                slots=16,
                scored_heads=2,
                hidden_size=18,
                intermediate_size=48,
                context_length=64,
                vocabulary_size=29,
                block=3,
                rotary=False,
                layer_norm=True,
                biases=True,
                gated=False,
            ),
            # The last row of the LM head is padded with zeros, and a row is computed faster than
            # its logits are compared.
            "tiny_vocabulary": VedaParameters(
                array=FlexiblePeArrayParameters(rows=2, columns=2, partial_sums=4),
                copies=2,
                head_size=4,
                heads=3,
                kv_heads=3,
                layers=3,
                slots=16,
                scored_heads=2,
                hidden_size=4,
                intermediate_size=16,
                context_length=64,
                vocabulary_size=45,
                block=3,
            ),
            "smollm2": SMOLLM2,
            # The whole model: with the final norm and the LM head.
            "smollm2_vocabulary": replace(SMOLLM2, vocabulary_size=49152),
            # Its memories fit into the paper's 256 KB; a weight buffer for blocks does not.
            "paper": VedaParameters(scored_heads=2),
        },
        long=("smollm2", "smollm2_vocabulary", "paper"),
    ),
)
"""Every unit of VEDA."""
