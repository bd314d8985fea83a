"""A decode step of a layer at limited bandwidth, with packed and with raw weights.

``python -m testbenches.meadow.bandwidth [PRESET [SETTINGS [BITS...]]]`` compiles the accelerator
with one lane, since a decode step has one token, and with settings such as ``"unpackers=6"``. It
prints two rows per bandwidth: those of the paper at 100 MHz, or the given ones in bits/cycle, where
0 is no limit. The first row has a step of one layer, with the load and the store of the hidden
state. The second row has a steady layer: what one more equal layer adds to the step.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from testbenches.meadow.long_program import run_program
from testbenches.meadow.tb_meadow import real_layers

GIGABITS = (1, 6, 12)
"""Bandwidths of the paper in Gb/s."""

CYCLES = 10
"""Bits per cycle at 100 MHz for each Gb/s."""


def decode_step(
    p: MeadowParameters, layers: Sequence[IntegerLayer], states: Integers, level: Level
) -> LayerProgram:
    """Return a decode step of the last token; the golden model fills the caches with the others."""
    none = np.zeros((p.kv_heads, 0, p.head_size), np.int64)
    caches, before = [], states[:-1]
    for layer in layers:
        result = run_layer(layer, before, (none, none), p)
        caches.append((result.keys, result.values))
        before = result.states
    program = LayerProgram(p, layers, level=level)
    program.fill_cache(caches)
    program.add_block(states[-1:], range(len(layers)))
    program.end()
    return program


@dataclass(frozen=True)
class Step:
    """A decode step, or the difference of two steps.

    Members
    -------
    cycles, ideal, moved_bytes : int
        Cycles, ideal cycles of the instructions, and bytes at all ports.
    """

    cycles: int
    ideal: int
    moved_bytes: int

    def __sub__(self, other: "Step") -> "Step":
        """Return what a step has more than another one."""
        return Step(
            self.cycles - other.cycles,
            self.ideal - other.ideal,
            self.moved_bytes - other.moved_bytes,
        )

    def bound(self, bits: int) -> float:
        """Return the larger one of the ideal cycles and the bytes at so many bits/cycle."""
        return max(self.ideal, 8 * self.moved_bytes / bits if bits else 0)


def measured_step(program: LayerProgram, harness: Harness, bits: int) -> Step:
    """Run a program of one decode step, and compare all results."""
    with tempfile.TemporaryDirectory() as folder:
        one = run_program(program, harness, Path(folder), bits=bits)
    return Step(one.cycles[0], sum(program.traffic.ideal), one.moved_bytes)


def run(p: MeadowParameters, number: int, bandwidths: Sequence[int]) -> None:
    """Print two rows for each bandwidth in bits/cycle: cycles and bytes, raw and packed."""
    harness = Harness.compiled(entry_named("meadow"), p)
    (layer,), states = real_layers(p, (number,))
    level = Level.CLASSES if p.unpacker.unpacker.classes else Level.REINDEXED
    print("bits/cycle; raw: cycles, bytes, bound over cycles; packed; raw over packed of both")
    programs = [
        [decode_step(p, [layer] * count, states[: p.slots], packing) for count in (1, 2)]
        for packing in (Level.RAW, level)
    ]
    for bits in bandwidths:
        single, double = zip(
            *([measured_step(one, harness, bits) for one in pair] for pair in programs), strict=True
        )
        steady = [two - one for one, two in zip(single, double, strict=True)]
        for name, steps in (("one layer", single), ("steady layer", steady)):
            parts = [
                f"{one.cycles:,}, {one.moved_bytes:,}, {one.bound(bits) / one.cycles:.1%}"
                for one in steps
            ]
            raw, packed = steps
            gains = f"{raw.cycles / packed.cycles:.3f}, {raw.moved_bytes / packed.moved_bytes:.3f}"
            print(f"{bits}, {name}; {'; '.join(parts)}; {gains}", flush=True)


if __name__ == "__main__":
    preset, settings, *given = [*sys.argv[1:], *("smollm2", "")[len(sys.argv) - 1 :]]
    own = replace(entry_named("meadow").parameters(preset), lanes=1)
    run(
        with_settings(f"meadow {preset}", own, parse_settings(settings)),
        14,
        [int(bits) for bits in given] or [CYCLES * gigabits for gigabits in GIGABITS],
    )
