"""The quantisation schemes that P3-LLM's tables and figures compare."""

from dataclasses import replace

from golden.p3llm.scheme import PUBLISHED, Fusion, Rope, Scheme
from golden.p3llm.tensor_formats import Probabilities

BASELINE = Scheme()
KV4 = Scheme(cache_bits=4, smoothing=True)
"""Only keys and values quantised: the upper rows of Table IV."""

ABLATION: dict[str, Scheme] = {
    "baseline": BASELINE,
    "pre-RoPE INT4 KV": Scheme(cache_bits=4, rope=Rope.PRE),
    "post-RoPE INT4 KV": Scheme(cache_bits=4),
    "+ key smoothing": KV4,
    "+ INT4 weights": replace(KV4, weights="INT4"),
    "+ BitMoD weights": replace(KV4, weights="BitMoD"),
    "+ E4M3 probabilities": replace(
        KV4, weights="BitMoD", query=True, probabilities=Probabilities.E4M3
    ),
    "+ S0E4M4 probabilities": replace(
        KV4, weights="BitMoD", query=True, probabilities=Probabilities.S0E4M4
    ),
    "+ INT8 activations": replace(PUBLISHED, activations="INT8"),
    "+ E4M3 activations": PUBLISHED,
}
"""Table VI; each step replaces an earlier one that is another format of the same tensor."""

ROPE: dict[str, Scheme] = {
    "pre-RoPE": Scheme(cache_bits=4, rope=Rope.PRE),
    "post-RoPE": Scheme(cache_bits=4),
    "pre-RoPE, smoothed": Scheme(cache_bits=4, rope=Rope.PRE, smoothing=True),
    "post-RoPE, smoothed": KV4,
}

PROBABILITIES: dict[str, Scheme] = {
    target.value: replace(KV4, probabilities=target)
    for target in (
        Probabilities.FP16,
        Probabilities.INT8,
        Probabilities.E4M3,
        Probabilities.S0E4M4,
        Probabilities.S0E4M4_RNE,
        Probabilities.S0E4M4_TRUNC,
    )
}
"""Table II, and the other roundings."""

SATURATION: dict[str, Scheme] = {
    "over the largest": PROBABILITIES[Probabilities.S0E4M4.value],
    "as they are, saturated": replace(
        KV4, probabilities=Probabilities.S0E4M4, fusion=Fusion.DIRECT
    ),
    "as they are, fifth exponent bit": replace(
        KV4, probabilities=Probabilities.S1E5M4, fusion=Fusion.DIRECT
    ),
}
"""Variants of folding the scales of values into the probabilities."""

LINEAR: dict[str, Scheme] = {
    f"W{'4' if weights == 'BitMoD' else '16'}, {activations}": Scheme(
        weights=weights, activations=activations
    )
    for weights in ("FP16", "BitMoD")
    for activations in ("INT8-SQ", "E4M3")
}
"""Table III, without its first row."""

OPERAND_BITS = (8, 6, 4)
OPERANDS: dict[str, Scheme] = {
    f"{operand}{bits}": scheme
    for bits in OPERAND_BITS
    for operand, scheme in (
        ("W", Scheme(weights=f"INT{bits}")),
        ("A", Scheme(activations=f"INT{bits}")),
        ("KV", Scheme(cache_bits=bits)),
        ("P", Scheme(probabilities=Probabilities(f"INT{bits}"))),
    )
}
"""Figure 3 (b): one operand at a time, in plain integers."""


def decoding(prompt: int) -> dict[str, Scheme]:
    """Return the schemes for decoding with the factors of a prompt, and the same for prefill."""
    return {
        "prefill": PUBLISHED,
        "decode": replace(PUBLISHED, prompt=prompt),
        "decode, own token in FP16": replace(PUBLISHED, prompt=prompt, residual=True),
    }
