"""Latency of a layer of a published model at limited bandwidth: the paper's baseline and MEADOW.

``python -m testbenches.meadow.published_latency`` prints the tables of `docs/meadow/study.md` from
the instructions of both programs. With ``MODEL CACHED TOKENS SETTINGS [BITS...]`` it measures both
programs in the compiled Verilog, with random weights and random cached tokens, compares all
results, and prints the cycles of each instruction; ``BITS`` are bits/cycle of all ports together, 0
is no limit.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from golden.meadow.layer_quantisation import IntegerLayer, quantised_layer
from golden.meadow.packing.weight_packer import Level
from golden.meadow.tile.requantisation import Integers
from hdl.catalog import entry_named
from hdl.meadow.control.program import (
    LayerPlace,
    MatrixDescription,
    Program,
    RowsPlace,
)
from hdl.meadow.parameters import MeadowParameters
from hdl.parameters import require
from hdl.settings import parse_settings, with_settings
from testbenches.harness import Harness
from testbenches.meadow.accelerator_file import matrices_of
from testbenches.meadow.checked_program import LayerProgram
from testbenches.meadow.long_program import InstructionRun, run_program
from testbenches.meadow.published_models import model_parameters
from testbenches.meadow.random_layers import STATE_STEP, of_kind, random_weights
from testbenches.meadow.traffic import has_weights, traffic_of

CYCLES = 10
"""Bits per cycle for each Gb/s, at the paper's 100 MHz."""

CYCLES_PER_MS = 100_000

GIGABITS = (1, 6, 12)
LAYERS = {"OPT-125M": 12, "OPT-1.3B": 24}
PROMPT = 512
PHASES = {"TTFT": ((0, 64), (0, PROMPT)), "TBT": ((PROMPT + 63, 1), (2 * PROMPT - 1, 1))}
"""Cached tokens and tokens of a block, as in Figures 6 and 7."""

FREEDOM = 4.8
"""Degrees of freedom of random weights, which pack about as well as SmolLM2's INT8 weights."""

RATIOS = {"re-indexed": 1.36, "classes": 1.50}
"""Packing ratios with unique matrices of SmolLM2's INT8 weights, C = 2, packets of 128 bits."""

FASTEST = {"unpacker": {"lanes": 32, "packet_bits": 512}, "entries": 8192, "rows": 4}
"""Weight path of preset `smollm2`: one word of 64 weights per cycle, 6.4 GB/s at 100 MHz."""


def settings_of(model: str, **changes: Any) -> MeadowParameters:
    """Return the published accelerator for a model, with a weight path that is no limit at 12 Gb/s.

    Probabilities of the baseline have the paper's 8 bits, one byte each in external memory.
    """
    own = model_parameters(model, probability_bits=8, slots=2 * PROMPT, **changes)
    text = " ".join(
        [f"unpacker.unpacker.{name}={value}" for name, value in FASTEST["unpacker"].items()]
        + [f"unpacker.{name}={FASTEST[name]}" for name in ("entries", "rows")]
    )
    return with_settings(f"meadow {model}", own, parse_settings(text))


@dataclass(frozen=True)
class Work:
    """The work of an instruction.

    Members
    -------
    weights : int
        Bytes of its weights, unpacked.
    others : int
        Bytes of all else at the ports.
    cycles : int
        Ideal cycles: those of the lanes, or of the transfer of unpacked weights to the lanes.
    """

    weights: int
    others: int
    cycles: int

    def latency(self, bits: float, ratio: float) -> float:
        """Return the cycles at so many bits/cycle and with so well packed weights."""
        return max(self.cycles, 8 * (self.weights / ratio + self.others) / bits)


def layer_program(p: MeadowParameters, *, cached: int, tokens: int, gemm: bool) -> Program:
    """Return the program of a layer, with attention by TPHS or by GEMM; matrices have no packets.

    Its first and last instructions load and store the hidden states.
    """
    none = np.zeros(0, np.int64)
    layer = IntegerLayer(
        matrices={}, norms=(none, none), epsilon=0, factors={}, lifts={}, table=none, steps={}
    )
    places: dict[str, int] = dict.fromkeys(("first", "second", "table", "keys", "values"), 0)
    place = LayerPlace(places, {name: _raw(p, *own) for name, own in matrices_of(p).items()})
    program = Program(p, skip=True)
    program.load(tokens, 0)
    rows = RowsPlace(0, 0, _probability_bytes(p)) if gemm else None
    program.layer(layer, place, past=cached, tokens=tokens, rows=rows)
    program.store(tokens, 0)
    return program


def layer_work(p: MeadowParameters, *, cached: int, tokens: int, gemm: bool) -> list[Work]:
    """Return the work of each instruction of `layer_program`."""
    program = layer_program(p, cached=cached, tokens=tokens, gemm=gemm)
    traffic, described = traffic_of(program), iter(program.described)
    # The unpackers output at most so many weights per cycle, the tile takes a word of each.
    rate = p.unpackers * min(p.unpacker_items, p.head_size)
    work = []
    for one, (_packed, others), ideal in zip(
        program.issued, traffic.instructions, traffic.ideal, strict=True
    ):
        words = next(described)["words"] * p.unpackers if has_weights(one) else 0
        weights = words * p.head_size
        work.append(Work(weights, others, max(ideal, -(-weights // rate))))
    return work


def _raw(p: MeadowParameters, tiles: int, elements: int) -> MatrixDescription:
    """Return the description of a matrix without packets, whose bytes are counted separately."""
    words = tiles * elements // p.unpackers
    none = [0] * p.unpackers
    return {
        "packing": {},
        "table_address": 0,
        "table_words": 0,
        "packet_address": none,
        "packet_count": none,
        "words": words,
        "tile_words": elements // p.unpackers,
        "tiles": tiles,
    }


def _probability_bytes(p: MeadowParameters) -> int:
    return 1 if p.probability_bits == 8 else 2


def latency(work: Sequence[Work], bits: float, ratio: float = 1.0, layers: int = 1) -> float:
    """Return the cycles of layers; hidden states are loaded and stored once."""
    first, *layer, last = (one.latency(bits, ratio) for one in work)
    return first + layers * sum(layer) + last


def random_layer(p: MeadowParameters) -> tuple[IntegerLayer, Integers]:
    """Return a layer of random weights, and hidden states of as many tokens as a block has."""
    rng = np.random.default_rng(125)
    states = rng.normal(0, 3, (p.tokens, p.hidden_size))
    real = of_kind(random_weights(p, rng, FREEDOM), p, rng)
    layer = quantised_layer(real, states[:24], p, STATE_STEP)[0]
    return layer, np.rint(states / STATE_STEP).astype(np.int64)


def measure(p: MeadowParameters, *, cached: int, tokens: int, bandwidths: Sequence[int]) -> None:
    """Print a row for each bandwidth and program: cycles, calculated cycles, bytes, and values."""
    require(tokens <= p.most_tokens, f"TOKENS must be at most {p.most_tokens}", tokens)
    harness = Harness.compiled(entry_named("meadow"), p)
    layer, states = random_layer(p)
    rng = np.random.default_rng(cached)
    shape = (2, p.kv_heads, cached, p.head_size)
    keys, values = rng.integers(-127, 128, shape)
    for bits in bandwidths:
        for gemm, level in ((True, Level.RAW), (False, Level.REINDEXED)):
            program = LayerProgram(p, [layer], level=level, skip=True)
            if cached:
                program.fill_cache([(keys, values)])
            program.add_block(states[:tokens], [0], gemm=_probability_bytes(p) if gemm else 0)
            program.end()
            traffic = program.traffic
            ratio = traffic.weights / traffic.fetched
            work = layer_work(p, cached=cached, tokens=tokens, gemm=gemm)
            with tempfile.TemporaryDirectory() as folder:
                run = run_program(program, harness, Path(folder), bits=bits, progress=60)
            print(
                f"{bits} bits/cycle, {'GEMM, raw' if gemm else 'TPHS, packed'}: {run.cycles[0]:,}"
                f" cycles, calculated {latency(work, bits or np.inf, ratio):,.0f}, bytes"
                f" {run.moved_bytes:,}, packing {ratio:.3f}, {run.compared:,} values equal"
            )
            names = instruction_names(p, gemm=gemm)
            print_instructions(names, work, run.instructions, bits, ratio)


def instruction_names(p: MeadowParameters, *, gemm: bool) -> list[str]:
    """Return a name for each instruction of `layer_program`."""
    attention = ["queries", "scores", "softmax", "outputs"] if gemm else ["TPHS"]
    inner = ["gate_proj", "up_proj"] if p.gated else ["up_proj"]
    first = ["load", "first norm", "keys", "values", *attention, "o_proj"]
    return [*first, "second norm", *inner, "down_proj", "store"]


def print_instructions(
    names: Sequence[str],
    work: Sequence[Work],
    found: Sequence[InstructionRun],
    bits: int,
    ratio: float,
) -> None:
    """Print measured and calculated cycles of each instruction.

    Transfers are the cycles of the bytes in the time of an instruction, those of the next weights
    included. In the remaining cycles all ports are idle. Both are 0 without a limit.
    """
    print("| instruction | cycles | transfers | ports idle | lanes, ideal | calculated |")
    print(f"|{'---|' * 6}")
    # The prediction that ends the program has no work.
    for name, one, run in zip(names, work, found[:-1], strict=True):
        transfers = 8 * run.moved_bytes / bits if bits else 0.0
        cells = (run.cycles, transfers, run.cycles - transfers if bits else 0.0, one.cycles)
        cells += (one.latency(bits or np.inf, ratio),)
        print(f"| {name} | {' | '.join(f'{cell:,.0f}' for cell in cells)} |", flush=True)


def rows() -> Iterator[tuple[str, int, float, tuple[float, ...]]]:
    """Yield phase and model, Gb/s, ms of the baseline, and ms of MEADOW for each of `RATIOS`."""
    for phase, blocks in PHASES.items():
        for model, layers in LAYERS.items():
            p = settings_of(model)
            for cached, tokens in blocks:
                baseline, own = (
                    layer_work(p, cached=cached, tokens=tokens, gemm=gemm) for gemm in (True, False)
                )
                for gigabits in GIGABITS:
                    bits = CYCLES * gigabits
                    found = [latency(baseline, bits, layers=layers)]
                    found += [latency(own, bits, ratio, layers) for ratio in RATIOS.values()]
                    first, *others = (cycles / CYCLES_PER_MS for cycles in found)
                    yield f"{phase} {cached + tokens}, {model}", gigabits, first, tuple(others)


def print_tables() -> None:
    """Print the latency of all layers of both models, and the split of Figure 8."""
    head = ["phase, model", "Gb/s", "GEMM, raw, ms", *(f"MEADOW, {n}, ms; gain" for n in RATIOS)]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for what, gigabits, baseline, own in rows():
        cells = (f"{each:,.1f}; {baseline / each:.2f}" for each in own)
        print(f"| {what} | {gigabits} | {baseline:,.1f} | {' | '.join(cells)} |")
    print("\n| a layer of OPT-125M, 512 tokens, ms | fetch | compute | store |\n|---|---|---|---|")
    p = settings_of("OPT-125M")
    for gigabits in (GIGABITS[-1], GIGABITS[0]):
        for name, gemm, ratio in (
            ("GEMM, raw", True, 1.0),
            *((f"MEADOW, {name}", False, ratio) for name, ratio in RATIOS.items()),
        ):
            work = layer_work(p, cached=0, tokens=PROMPT, gemm=gemm)[1:-1]
            program = layer_program(p, cached=0, tokens=PROMPT, gemm=gemm)
            stored = traffic_of(program).moved["written"]
            fetched = sum(one.weights / ratio + one.others for one in work) - stored
            rate = CYCLES * gigabits * CYCLES_PER_MS / 8
            compute = sum(one.cycles for one in work) / CYCLES_PER_MS
            parts = (fetched / rate, compute, stored / rate)
            print(f"| {gigabits} Gb/s, {name} | {' | '.join(f'{one:.2f}' for one in parts)} |")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print_tables()
    else:
        model, cached, tokens, settings, *given = sys.argv[1:]
        own = with_settings(f"meadow {model}", settings_of(model), parse_settings(settings))
        measure(
            own,
            cached=int(cached),
            tokens=int(tokens),
            bandwidths=[int(bits) for bits in given] or [CYCLES * one for one in GIGABITS],
        )
