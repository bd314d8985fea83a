"""The composed design of `docs/composed.md`: its figures by arithmetic on measured ones.

Every row is VEDA with other weights, another array, or other memories, on which nothing was built
or run. Cycles, bytes, area and perplexity follow from `docs/comparison.json` and from the constants
of this module, each of which is on the page that its docstring names.
"""

from dataclasses import dataclass, replace
from typing import Any

from synth.comparison import System
from synth.normalised import (
    EDRAM_UM2_PER_BIT,
    SRAM_UM2_PER_BIT,
    area_mm2,
    computation_and_transfer,
    markdown,
    speed_or_banks,
)

LANES = 128
"""Elements of VEDA's array, and weights of a line."""
LINES = 30 * (5_184 + 2_880 + 13_824 + 6_912) + 49_152 * 576 // LANES
"""Lines of weights of a token: the beats of `docs/veda/veda.md`, and the LM head."""
OUTPUTS = LINES * LANES // 576
"""Scales of a token with one scale for 576 weights; a row of `down_proj` has 1,536, so that this is
an upper bound."""
FOLDS = 30 * 228
"""Cycles of a token for folds of partial sums (`docs/veda/veda.md`): twice with half an array."""
ARRAY_UM2 = 562_911
"""VEDA's array alone, delay-optimised (`docs/figures.md`)."""
CONVERT_UM2, MULTIPLY_UM2 = 409, 1_825
"""Conversion of binary32 to FP16, in each lane an upper bound of that of an 8-bit integer, and one
FP16 multiplier for the outputs' scales, delay-optimised (`docs/arith/floating_point.md`)."""
WEIGHT_BUFFER, BLOCK_BITS, BLOCK = 1_179_648, 147_456 + 81_920 + 196_608, 8
"""Bits of memories for blocks of a prompt (`docs/veda/veda.md`): the weight buffer, which blocks of
one token do not have, and states, queries and slices, which are in proportion to the block."""
UNPACKER_UM2, UNPACKED = 47_509, 16
"""MEADOW's unpacker, delay-optimised (`docs/figures.md`), and its weights per cycle."""
CLASSES_RATIO, HEAD_RATIO, TABLE_ROWS = 1.279, 1.38, 256
"""Packing with classes, a scale per 64 outputs, chunks of one weight, and of the LM head; rows of a
unique matrix (`docs/meadow/options.md`, `docs/meadow/meadow.md`)."""
WEIGHTS_LOSS, HEAD_LOSS = 26.83 / 26.78, 28.00 / 27.92
"""Perplexity with 8-bit weights of the layers, a scale per output (`docs/meadow/study.md`), and of
the LM head (`docs/generate.md`), over that without."""
GB_S = 64.0


@dataclass(frozen=True, kw_only=True)
class Design:
    """A variant of VEDA.

    Parameters
    ----------
    name : str
        What differs.
    weight_bits : int
        16 as in VEDA, or 8 as in Kelle.
    lanes : int
        Elements of the array, 128 or 64.
    prompts : bool
        Whether a prompt passes in blocks of 8 tokens, or token by token as in Kelle and P3-LLM.
    packed : bool
        Whether MEADOW's unpacker delivers the weights.
    edram_bits : int
        eDRAM for keys and values.
    """

    name: str
    weight_bits: int = 16
    lanes: int = LANES
    prompts: bool = True
    packed: bool = False
    edram_bits: int = 0

    def cycles(self, veda: System) -> float:
        """Return the cycles of a token."""
        passes = LANES // self.lanes
        figures = veda["figures"]
        return figures["cycles"] + (passes - 1) * (figures["bound"] + FOLDS)

    def bytes_per_token(self, veda: System) -> float:
        """Return the off-chip bytes of a token; all but weights are as in VEDA."""
        others = veda["figures"]["bytes_per_token"] - LINES * LANES * 2
        if self.weight_bits == 16:
            return others + LINES * LANES * 2
        head = 49_152 * 576
        layers = LINES * LANES - head
        if self.packed:
            return others + layers / CLASSES_RATIO + head / HEAD_RATIO
        return others + layers + head + OUTPUTS * 2

    def logic_mm2(self, veda: System) -> float:
        """Return the area of the logic."""
        area = veda["figures"]["fastest_um2"] - ARRAY_UM2 * (1 - self.lanes / LANES)
        if self.weight_bits == 8:
            area += self.lanes * CONVERT_UM2 + MULTIPLY_UM2
        if self.packed:
            area += UNPACKER_UM2 * self.lanes / UNPACKED
        return area / 1e6

    def memory_mm2(self, veda: System) -> float:
        """Return the area of the on-chip memories."""
        bits = veda["figures"]["memory_bits"]
        if not self.prompts:
            bits -= WEIGHT_BUFFER + BLOCK_BITS * (1 - 1 / BLOCK)
        elif self.weight_bits == 8:
            bits -= WEIGHT_BUFFER / 2
        if self.packed:
            # Each lane has two halves of a table.
            bits += self.lanes * 2 * TABLE_ROWS * self.weight_bits
        return (bits * SRAM_UM2_PER_BIT + self.edram_bits * EDRAM_UM2_PER_BIT) / 1e6

    def speed(self, veda: System, gb_s: float = GB_S) -> float:
        """Return the upper bound of tokens/s at VEDA's clock and a bandwidth."""
        mhz = veda["figures"]["fastest_mhz"]
        cycles, moved = self.cycles(veda), self.bytes_per_token(veda)
        return 1 / max(computation_and_transfer(cycles, mhz, moved, gb_s))

    def per_mm2(self, veda: System, gb_s: float = GB_S) -> float:
        """Return tokens/s per mm2 of logic and memories."""
        return self.speed(veda, gb_s) / (self.logic_mm2(veda) + self.memory_mm2(veda))

    def perplexity(self, veda: System, cached: str) -> float:
        """Return the perplexity: VEDA's times the losses of 8-bit weights."""
        loss = WEIGHTS_LOSS * HEAD_LOSS if self.weight_bits == 8 else 1.0
        return veda["figures"][cached] * loss


AS_COMPARED = Design(name="VEDA as compared")
COMPOSED = Design(
    name="**composed**: a prompt token by token, 64 elements, 8-bit weights",
    weight_bits=8,
    lanes=64,
    prompts=False,
)
DESIGNS = (
    AS_COMPARED,
    Design(name="8-bit weights", weight_bits=8),
    Design(name="a prompt token by token", prompts=False),
    Design(name="a prompt token by token, 64 elements", prompts=False, lanes=64),
    Design(name="a prompt token by token, 8-bit weights", prompts=False, weight_bits=8),
    COMPOSED,
    replace(COMPOSED, name="composed, packed weights", packed=True),
    replace(COMPOSED, name="composed, 128 elements, packed weights", packed=True, lanes=128),
    replace(COMPOSED, name="composed, Kelle's 4 MB of eDRAM", edram_bits=4 * 2**23),
)
"""The rows of the page, in their order."""


def tables(data: dict[str, Any]) -> dict[str, str]:
    """Return the page's tables: the variants, and the five systems as published and as compared."""
    veda = data["systems"]["veda"]
    head = ["variant of VEDA", "cycles/token", "MB/token", "logic, mm2", "memories, mm2"]
    head += ["tokens/s, at most", "tokens/s per mm2", "the same at 256 GB/s"]
    rows = [
        [
            design.name,
            f"{design.cycles(veda):,.0f}",
            f"{design.bytes_per_token(veda) / 1e6:.1f}",
            f"{design.logic_mm2(veda):.3f}",
            f"{design.memory_mm2(veda):.3f}",
            f"{design.speed(veda):.1f}",
            f"{design.per_mm2(veda):,.0f}",
            f"{design.per_mm2(veda, 256.0):,.0f}",
        ]
        for design in DESIGNS
    ]
    return {"variants": markdown([head, *rows]), "rivals": _rivals(data)}


def _rivals(data: dict[str, Any]) -> str:
    """Return the table of the composed design and the five systems."""
    float32 = data["systems"]["float32"]["figures"]["perplexity"]
    veda = data["systems"]["veda"]
    own = COMPOSED.perplexity(veda, "perplexity")
    area = COMPOSED.logic_mm2(veda) + COMPOSED.memory_mm2(veda)
    speed = COMPOSED.speed(veda)
    rows = [_rival("composed, predicted", speed, area, own / float32 - 1)]
    for system in data["systems"].values():
        if "memory" not in system:
            continue
        # P3-LLM's banks deliver at most 128 bytes/cycle at 500 MHz, which is this bandwidth.
        speed = speed_or_banks(system, GB_S)
        loss = system["figures"]["perplexity"] / float32 - 1
        rows.append(_rival(system["name"], speed, area_mm2(system), loss))
    head = ["", "tokens/s, at most", "mm2", "tokens/s per mm2", "perplexity over float32"]
    return markdown([head, *rows])


def _rival(name: str, speed: float, area: float, loss: float) -> list[str]:
    """Return a row of the second table."""
    return [name, f"{speed:.1f}", f"{area:.2f}", f"{speed / area:.0f}", f"{loss:+.1%}"]
