"""LAD-1.5, LAD-2.5 and LAD-3.5: SRAM against rows on chip, latency and energy of a token.

``python -m golden.study.lad_configurations`` prints three tables for LLaMA2-7B on six tiles, as in
the paper's Section V and its Figures 8 (right) and 10. Words and cycles of an attention step are
those that the simulated tile reports in the paper's regime; all other figures follow from them and
from the constants of this module.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hdl.lad.catalog import LAD_1_5, LAD_2_5, LAD_3_5
from hdl.model_shape import ModelShape

TILES = 6
UNITS = 7
HBM_BYTES_PER_CYCLE = 1536
"""Five cubes of 16 channels with 19.2 GB/s each, at 1 GHz."""
HBM_BYTES = 40 << 30
"""Capacity: 8 GB per cube."""
WORD_BYTES = 2
HBM_PJ_PER_BIT = 3.9
"""The paper's constant, from O'Connor et al., MICRO-50, 2017."""
LOGIC_PJ_PER_CYCLE = 2 * 3583.0
"""One busy cycle of a tile. The netlist in 45 nm with heads of 64 takes 3,583 pJ/cycle while it
generates text; its vector units, adders and caches are proportional to the head size."""
HEAD_SIZE = 128

LLAMA2_7B = ModelShape(
    hidden_size=4096,
    intermediate_size=11008,
    heads=32,
    kv_heads=32,
    head_size=HEAD_SIZE,
    layers=32,
    vocabulary_size=32000,
    context_length=4096,
    rope_base=10000.0,
    norm_epsilon=1e-5,
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """Means of an attention step of one head, of `docs/lad/lad_tile.md`.

    Members
    -------
    length : int
        Number of positions.
    cycles : float
        Cycles from one step to the next if the memory always delivers.
    words : float
        16-bit words that the step moves, with all rows of J.
    active : float
        Number of active positions.
    hit_ratio : float
        Share of J that was active in the last step.
    """

    length: int
    cycles: float
    words: float
    active: float
    hit_ratio: float

    @property
    def full_words(self) -> int:
        """Words of full attention: it reads all keys and values, and writes the new ones."""
        return 2 * HEAD_SIZE * (self.length + 1)


STEPS = (
    Step(length=512, cycles=164.5, words=71_766, active=70.5, hit_ratio=0.916),
    Step(length=1024, cycles=206.4, words=90_610, active=109.4, hit_ratio=0.892),
    Step(length=2048, cycles=475.4, words=194_939, active=460.7, hit_ratio=0.903),
    Step(length=4096, cycles=548.4, words=222_981, active=471.6, hit_ratio=0.922),
)
"""Words and sets are those of the simulation with heads of 128. Cycles are the schedule's bound of
these sets, times the share above the bound that the simulation with heads of 8 measures."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One of the paper's configurations.

    Members
    -------
    name : str
        Its name.
    megabytes : float
        SRAM of a tile.
    rows : int
        Rows of K and V that are fetched ahead, the tile's `prefetched`.
    dynamic_mw, static_mw : float
        Power of the SRAM at 1 GHz by the paper's Table III (CACTI, 22 nm).
    """

    name: str
    megabytes: float
    rows: int
    dynamic_mw: float
    static_mw: float

    @property
    def sram_pj_per_cycle(self) -> float:
        """Energy of the SRAM of a busy tile; 1 mW at 1 GHz is 1 pJ/cycle."""
        return self.dynamic_mw + self.static_mw


CONFIGURATIONS = (
    Configuration(
        name="LAD-1.5",
        megabytes=1.5,
        rows=LAD_1_5.prefetched,
        dynamic_mw=733.33,
        static_mw=118.25,
    ),
    Configuration(
        name="LAD-2.5",
        megabytes=2.5,
        rows=LAD_2_5.prefetched,
        dynamic_mw=841.97,
        static_mw=193.58,
    ),
    Configuration(
        name="LAD-3.5",
        megabytes=3.5,
        rows=LAD_3_5.prefetched,
        dynamic_mw=1202.82,
        static_mw=276.55,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token of each sample of a batch, all layers and the LM head, on six tiles.

    Members
    -------
    batch : int
        Number of samples.
    linear, attention : float
        Cycles of linear layers, and of attention.
    words : float
        16-bit words of attention, all samples together.
    rows : float
        Rows per step that are on chip and needed when the attention of a head begins.
    """

    batch: int
    linear: float
    attention: float
    words: float
    rows: float

    @property
    def cycles(self) -> float:
        """All cycles."""
        return self.linear + self.attention


def weights(shape: ModelShape = LLAMA2_7B) -> int:
    """Return the number of weights of all layers and the LM head."""
    hidden = shape.hidden_size
    attention = 2 * (shape.heads + shape.kv_heads) * shape.head_size * hidden
    layer = attention + 3 * hidden * shape.intermediate_size
    return shape.layers * layer + hidden * shape.vocabulary_size


def largest_batch(length: int, shape: ModelShape = LLAMA2_7B) -> int:
    """Return the largest multiple of the number of tiles whose keys and values fit the HBM."""
    sample = 2 * shape.layers * shape.kv_heads * shape.head_size * length * WORD_BYTES
    return (HBM_BYTES - WORD_BYTES * weights(shape)) // sample // TILES * TILES


def matrix_cycles(elements: int, batch: int) -> float:
    """Return the cycles of a matrix: the products of all samples, or its bytes."""
    products = elements * batch / (TILES * UNITS * HEAD_SIZE)
    return max(products, elements * WORD_BYTES / HBM_BYTES_PER_CYCLE)


def locality_aware(
    step: Step, batch: int, configuration: Configuration, shape: ModelShape = LLAMA2_7B
) -> Token:
    """Return a token with LAD's attention: each head is projected, then attended (Figure 6).

    While a head is projected, the memory is free for the part of the time that the weights do not
    need; rows of the last J are fetched ahead in it, as far as the SRAM has room.
    """
    tile_words = HBM_BYTES_PER_CYCLE / TILES / WORD_BYTES
    own = batch / TILES
    projection = 3 * shape.hidden_size * shape.head_size
    period = matrix_cycles(projection, batch)
    free = period - projection * WORD_BYTES / HBM_BYTES_PER_CYCLE
    row_words = 2 * shape.head_size
    fetched = min(configuration.rows, own * step.active, free * tile_words / row_words) / own
    needed = fetched * step.hit_ratio
    # Rows fetched ahead and not needed are part of the step's words, and already transferred.
    left = step.words - fetched * row_words
    interval = max(step.cycles, left / tile_words)
    steps = shape.layers * shape.heads
    return Token(
        batch=batch,
        linear=matrix_cycles(weights(shape), batch),
        attention=steps * own * interval,
        words=steps * batch * step.words,
        rows=needed,
    )


def full_attention(step: Step, batch: int, shape: ModelShape = LLAMA2_7B) -> Token:
    """Return a token on the paper's ideal accelerator: the same units and memory, peak rates."""
    tile_words = HBM_BYTES_PER_CYCLE / TILES / WORD_BYTES
    interval = max(2 * step.length / UNITS, step.full_words / tile_words)
    steps = shape.layers * shape.heads
    return Token(
        batch=batch,
        linear=matrix_cycles(weights(shape), batch),
        attention=steps * batch / TILES * interval,
        words=steps * batch * step.full_words,
        rows=0,
    )


def energy(token: Token, configuration: Configuration, *, whole: bool) -> Mapping[str, float]:
    """Return the energy of a sample's token by consumer in mJ; of attention alone, or `whole`."""
    cycles = token.cycles if whole else token.attention
    words = token.words + (weights() if whole else 0)
    parts = {
        "HBM": words * WORD_BYTES * 8 * HBM_PJ_PER_BIT,
        "SRAM": cycles * TILES * configuration.sram_pj_per_cycle,
        "logic": cycles * TILES * LOGIC_PJ_PER_CYCLE,
    }
    return {name: picojoules / token.batch * 1e-9 for name, picojoules in parts.items()}


def main() -> None:
    """Print rows on chip, latency and energy of each length and configuration."""
    print("length; batch; configuration; rows; hit ratio; attention; of ideal; token; of ideal")
    for step in STEPS:
        batch = largest_batch(step.length)
        ideal = full_attention(step, batch)
        print(
            f"{step.length}; {batch}; ideal; 0; ; {ideal.attention / 1e6:.2f}; ; "
            f"{ideal.cycles / 1e6:.2f}; ; attention {ideal.attention / ideal.cycles:.0%}"
        )
        for one in CONFIGURATIONS:
            token = locality_aware(step, batch, one)
            print(
                f"{step.length}; {batch}; {one.name}; {token.rows:.1f}; "
                f"{token.rows / step.active:.1%}; {token.attention / 1e6:.2f}; "
                f"{token.attention / ideal.attention:.3f}; {token.cycles / 1e6:.2f}; "
                f"{token.cycles / ideal.cycles:.3f}; attention "
                f"{token.attention / token.cycles:.0%}"
            )
    print("length; configuration; part; HBM; SRAM; logic; all in mJ/token; all of ideal")
    for step in STEPS:
        batch = largest_batch(step.length)
        ideal = full_attention(step, batch)
        for one in CONFIGURATIONS:
            token = locality_aware(step, batch, one)
            for name, whole in (("attention", False), ("token", True)):
                parts = energy(token, one, whole=whole)
                base = sum(energy(ideal, one, whole=whole).values())
                shown = "; ".join(f"{part:.1f}" for part in parts.values())
                total = sum(parts.values())
                print(
                    f"{step.length}; {one.name}; {name}; {shown}; {total:.1f}; {total / base:.3f}"
                )


if __name__ == "__main__":
    main()
