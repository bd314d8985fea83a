"""Copies of registers with many loads."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit
from synth import register_copies
from synth.liberty import Library
from synth.register_copies import copy_registers
from tests.synth.netlists import prove_equal, synthesise

BITS = 40


class Masked(Unit):
    """A flag in a register, which masks all bits of a word in another register."""

    flag: Signal
    word: Signal
    result: Signal

    def __init__(self) -> None:
        super().__init__({"flag": In(1), "word": In(BITS), "result": Out(BITS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal()
        m.d.sync += [held.eq(self.flag), self.result.eq(self.word ^ held.replicate(BITS))]
        return m


def test_copies_share_the_pins_and_the_function_stays(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A module that is absent makes the form `parts`, in which copies are made.
    options = {"recipe": "speed", "kept": ["absent"]}
    without = synthesise(Masked(), library, tmp_path / "without", **options)
    monkeypatch.setattr(register_copies, "PINS", 10)
    netlist = synthesise(Masked(), library, tmp_path / "with", **options)
    assert netlist.flops > without.flops
    assert prove_equal(netlist, tmp_path / "with")


def test_only_registers_with_many_pins_are_copied(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netlist = synthesise(Masked(), library, tmp_path, recipe="speed", kept=())
    mapped = json.loads((netlist.directory / f"{netlist.stem}.mapped.json").read_text())
    assert copy_registers(mapped, library) == 0
    before = register_pins(mapped, library)
    monkeypatch.setattr(register_copies, "PINS", 2)
    added = copy_registers(mapped, library)
    after = register_pins(mapped, library)
    assert max(before) > 2 == max(after)
    assert added == sum(-(-pins // 2) - 1 for pins in before if pins)
    assert sum(after) == sum(before)


def register_pins(design: dict[str, Any], library: Library) -> list[int]:
    """Return the number of pins on each output of a register."""
    (module,) = design["modules"].values()
    pins, outputs = Counter[int](), []
    for cell in module["cells"].values():
        kind, nets = library.cells[cell["type"]], cell["connections"]
        pins.update(nets[pin.name][0] for pin in kind.inputs if not pin.clock)
        if kind.state:
            outputs += [nets[pin.name][0] for pin in kind.outputs if pin.name in nets]
    return [pins[net] for net in outputs]
