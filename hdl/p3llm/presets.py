"""Presets of P3-LLM's system."""

from dataclasses import replace

from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.bank_timing import BankTimingParameters
from hdl.p3llm.pim.pim_channel import PimChannelParameters
from hdl.p3llm.pim.pim_compute_unit import PimComputeUnitParameters

TINY = P3llmParameters(
    channel=PimChannelParameters(
        unit=PimComputeUnitParameters(elements=4, steps=8),
        timing=BankTimingParameters(
            banks=8, rcd=3, rp=2, ras=6, rtp=2, wr=4, wtr=2, rrd=2, rfc=9, refi=200
        ),
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

PRESETS = {
    "tiny": TINY,
    # A batch of three: two requests share the weights, the third runs alone.
    "tiny_batch": replace(TINY, batch=3),
    # Two pseudo-channels, each with its own key/value head.
    "tiny_channels": replace(TINY, pseudo_channels=2),
    # Keys are quantised before the rotary embedding; the NPU multiplies queries by keys.
    "tiny_pre_rope": replace(TINY, pre_rope=True),
    "smollm2": P3llmParameters(),
    "paper": P3llmParameters(
        hidden_size=4096,
        intermediate_size=14336,
        heads=32,
        kv_heads=8,
        head_size=128,
        rope_base=500_000,
        layers=1,
    ),
}
