"""A decode step of a layer at limited bandwidth, with packed and with raw weights.

``python -m testbenches.meadow.bandwidth [PRESET [SETTINGS [BITS...]]]`` compiles the accelerator
with one lane, since a decode step has one token, and with settings such as ``"unpackers=6"``. It
prints one row per bandwidth: those of the paper at 100 MHz, or the given ones in bits/cycle, where
0 is no limit.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from golden.meadow.layer_quantisation import IntegerLayer
from golden.meadow.meadow import run_layer
from golden.meadow.packing.weight_packer import Level
from golden.meadow.tile.requantisation import Integers
from hdl.catalog import entry_named
from hdl.meadow.parameters import MeadowParameters
from hdl.settings import parse_settings, with_settings
from testbenches.harness import Harness
from testbenches.meadow.checked_program import LayerProgram
from testbenches.meadow.long_program import ProgramRun, run_program
from testbenches.meadow.tb_meadow import real_layers

GIGABITS = (1, 6, 12)
"""Bandwidths of the paper in Gb/s."""

CYCLES = 10
"""Bits per cycle at 100 MHz for each Gb/s."""


def decode_step(
    p: MeadowParameters, layer: IntegerLayer, states: Integers, level: Level
) -> LayerProgram:
    """Return a decode step of the last token; the golden model fills the cache with the others."""
    none = np.zeros((p.kv_heads, 0, p.head_size), np.int64)
    before = run_layer(layer, states[:-1], (none, none), p)
    program = LayerProgram(p, [layer], level=level)
    program.fill_cache([(before.keys, before.values)])
    program.add_block(states[-1:], [0])
    program.end()
    return program


def run(p: MeadowParameters, number: int, bandwidths: Sequence[int]) -> None:
    """Print a row for each bandwidth in bits/cycle: cycles and bytes, raw and packed."""
    harness = Harness.compiled(entry_named("meadow"), p)
    (layer,), states = real_layers(p, (number,))
    level = Level.CLASSES if p.unpacker.unpacker.classes else Level.REINDEXED
    print("bits/cycle; raw: cycles, bytes, bound over cycles; packed; raw over packed of both")
    for bits in bandwidths:
        runs: list[ProgramRun] = []
        least: list[float] = []
        for packing in (Level.RAW, level):
            program = decode_step(p, layer, states[: p.slots], packing)
            with tempfile.TemporaryDirectory() as folder:
                runs.append(run_program(program, harness, Path(folder), bits=bits))
            # The ideal cycles of the instructions, or all bytes at the rate of the memory.
            ideal = sum(program.traffic.ideal)
            least.append(max(ideal, 8 * runs[-1].moved_bytes / bits if bits else 0))
        used = [bound / one.cycles[0] for bound, one in zip(least, runs, strict=True)]
        parts = [
            f"{one.cycles[0]:,}, {one.moved_bytes:,}, {share:.1%}"
            for one, share in zip(runs, used, strict=True)
        ]
        raw, packed = runs
        gains = (
            f"{raw.cycles[0] / packed.cycles[0]:.3f}, {raw.moved_bytes / packed.moved_bytes:.3f}"
        )
        print(f"{bits}; {'; '.join(parts)}; {gains}", flush=True)


if __name__ == "__main__":
    preset, settings, *given = [*sys.argv[1:], *("smollm2", "")[len(sys.argv) - 1 :]]
    own = replace(entry_named("meadow").parameters(preset), lanes=1)
    run(
        with_settings(f"meadow {preset}", own, parse_settings(settings)),
        14,
        [int(bits) for bits in given] or [CYCLES * gigabits for gigabits in GIGABITS],
    )
