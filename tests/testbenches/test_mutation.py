"""Mutants are proven equivalent if and only if no input distinguishes them."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_add import FloatAdd
from hdl.catalog import entry_named
from hdl.emit import Emission, Port
from hdl.unit import Unit
from testbenches import mutant_proof
from testbenches.mutant_proof import compare
from testbenches.mutation import Mutant, MutationResult, Outcome, mutate, random_mutations
from testbenches.operator_mutant import found_by_trial, operators_among


class Redundant(Unit):
    """A register of ``a | (a & b)``, which equals ``a``; its payload has a valid bit."""

    def __init__(self) -> None:
        super().__init__({"a": In(1), "b": In(1), "held": Out(stream.Signature(1))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        both = Signal()
        m.d.comb += both.eq(self.a & self.b)
        m.d.sync += [self.held.payload.eq(self.a | both), self.held.valid.eq(self.a)]
        return m


def only_mutant(
    unit: Unit, name: str, cell: str, mode: str, folder: Path
) -> tuple[str, Sequence[Port], str]:
    """Write a design, and return the result of `compare` for a mutant of its only such cell."""
    emission = Emission(top=unit, name=name)
    random_mutations(emission, folder, count=1, seed=1)
    (place,) = re.findall(cell, (folder / "flat.il").read_text())
    command = f"mutate -mode {mode} -module {name} -cell {place} -port Y -portbit 0"
    return name, emission.modules[-1].ports, command


@pytest.mark.parametrize(
    ("kind", "mode", "equal"),
    [
        ("and", "const0", True),
        # Without `a` the register is not valid, and its payload is don't-care.
        ("and", "const1", True),
        ("or", "const1", True),
        ("or", "const0", False),
        ("or", "inv", False),
    ],
)
def test_equal_mutants_are_proven(
    kind: str, mode: str, equal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutant_proof, "BUILD", tmp_path)
    mutant = only_mutant(Redundant(), "redundant", rf"cell \${kind} (\S+)", mode, tmp_path)
    proven, words = compare(*mutant, tmp_path, 1)
    assert proven is equal
    # The cached result is used the second time.
    monkeypatch.delattr(mutant_proof, "lower")
    again = compare(*mutant, tmp_path, 2)
    assert again == (proven, words)
    assert ("no input" if equal else "some input shows a difference after 1 cycles") in words


class Around(Unit):
    """A `Redundant` whose payload is used even while it is not valid."""

    def __init__(self) -> None:
        super().__init__({"a": In(1), "b": In(1), "held": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = Redundant()
        m.d.comb += [inner.a.eq(self.a), inner.b.eq(self.b), self.held.eq(inner.held.payload)]
        return m


class Between(Around):
    """An `Around` that outputs only valid payloads."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = Redundant()
        m.d.comb += [inner.a.eq(self.a), inner.b.eq(self.b)]
        m.d.comb += self.held.eq(inner.held.payload & inner.held.valid)
        return m


class Covered(Around):
    """A `Between` in an additional module."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.between = between = Between()
        m.d.comb += [between.a.eq(self.a), between.b.eq(self.b), self.held.eq(between.held)]
        return m


class Square(Unit):
    """The square of 16 input bits, which has far more gates than the enclosing modules."""

    def __init__(self) -> None:
        super().__init__({"a": In(1), "odd": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shifted = Signal(16)
        m.d.sync += shifted.eq(Cat(self.a, shifted[:-1]))
        m.d.comb += self.odd.eq((shifted * shifted).xor())
        return m


class Adjacent(Around):
    """A `Redundant` next to a submodule that uses its output."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = Redundant()
        m.submodules.square = square = Square()
        m.d.comb += [inner.a.eq(self.a), inner.b.eq(self.b)]
        m.d.comb += square.a.eq(inner.held.payload & inner.held.valid)
        m.d.comb += self.held.eq(square.odd)
        return m


class Masked(Around):
    """A `Redundant` next to a submodule that uses its payload while it is valid."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = Redundant()
        m.submodules.mask = mask = Mask()
        m.d.comb += [inner.a.eq(self.a), inner.b.eq(self.b), mask.valid.eq(inner.held.valid)]
        m.d.comb += [mask.payload.eq(inner.held.payload), self.held.eq(mask.held)]
        return m


class Mask(Unit):
    """The payload while it is valid."""

    def __init__(self) -> None:
        super().__init__({"payload": In(1), "valid": In(1), "held": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.held.eq(self.payload & self.valid)
        return m


@pytest.mark.parametrize(
    ("unit", "mode", "equal"),
    [
        (Adjacent(), "const1", True),
        (Adjacent(), "const0", False),
        # A small submodule is kept, which masks its input.
        (Masked(), "const1", True),
        (Masked(), "const0", False),
    ],
)
def test_other_submodules_are_removed(
    unit: Unit, mode: str, equal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutant_proof, "BUILD", tmp_path)
    monkeypatch.setattr(mutant_proof, "LARGEST", 100)
    mutant = only_mutant(unit, "adjacent", r"cell \$or (\S+inner\S+)", mode, tmp_path)
    proven, words = compare(*mutant, tmp_path, 1)
    assert (proven, "of a module around it" in words) == (equal, equal), words


@pytest.mark.parametrize(
    ("unit", "kind", "mode", "equal"),
    [
        (Around(), "and", "const0", True),
        # An unused payload bit is no difference in the module, but one in the whole design.
        (Around(), "and", "const1", False),
        # The module alone shows a difference; the enclosing module does not.
        (Covered(), "or", "const1", True),
        (Covered(), "or", "const0", False),
    ],
)
def test_modules_are_compared_alone(
    unit: Unit, kind: str, mode: str, equal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutant_proof, "BUILD", tmp_path)
    mutant = only_mutant(unit, "around", rf"cell \${kind} (\S+inner\S+)", mode, tmp_path)
    proven, words = compare(*mutant, tmp_path, 1)
    assert (proven, "of a module around it" in words) == (equal, equal), words


def test_parts_with_testbenches_are_excluded(tmp_path: Path) -> None:
    entry = entry_named("special_function_unit")
    emission = Emission(top=entry.unit(parameters=entry.parameters("tiny")), name=entry.top)
    mutations = random_mutations(emission, tmp_path, count=40, seed=1)
    flat = (tmp_path / "flat.il").read_text()
    cells = [command.split("-cell ")[1].split()[0] for command in mutations]
    assert len(mutations) == 40
    assert all(f" {cell}\n" in flat for cell in cells)
    # The layer norm, most of the unit, has its own testbench, and so have three other parts. The
    # logic that marks the ends of heads for several softmax lanes has none.
    for spared in ("layernorm.", "activation.", "rotary.", "softmax.\\lane_0."):
        assert f"$flatten\\{spared}" in flat
        assert not any(cell.startswith(f"$flatten\\{spared}") for cell in cells)


def test_score_excludes_equivalent_mutants() -> None:
    mutant: dict[str, Any] = {"number": 1, "change": "inv", "place": "", "source": ()}
    counts = {"killed": 3, "timed out": 1, "by its operator's trial": 2, "survived": 2, "equal": 1}
    outcomes = [Outcome(name) for name, count in counts.items() for _mutant in range(count)]
    mutants = tuple(Mutant(**mutant, outcome=outcome) for outcome in outcomes)
    result = MutationResult(top="x", preset="tiny", seed=1, verilog_digest="0", mutants=mutants)
    assert result.values["outcomes"] == counts
    assert (result.found, result.score) == (6, 0.75)


class Doubled(Unit):
    """The sum of a number and itself: the adder's operands are always equal."""

    def __init__(self) -> None:
        super().__init__({"a": In(16), "sum": Out(16)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.add = add = FloatAdd()
        m.d.comb += [add.a.eq(self.a), add.b.eq(self.a), self.sum.eq(add.result)]
        return m


def test_operator_trial_detects_mutants_that_the_unit_masks(tmp_path: Path) -> None:
    emission = Emission(top=Doubled(), name="doubled", sources=True)
    commands = random_mutations(emission, tmp_path, count=200, seed=1)
    operators = operators_among(emission.modules)
    assert [kind for kind, *_configuration in operators.values()] == [FloatAdd]
    # Alignment of different operands, which do not occur here.
    shifts = [command for command in commands if "float_shift.py" in command]
    outcome = found_by_trial("doubled", shifts[0], tmp_path, 1, operators)
    assert outcome.startswith("FloatAdd alone: result of a 0x")
    assert found_by_trial("doubled", shifts[0], tmp_path, 1, {}) == ""
    # An equivalent mutant is not detected.
    nothing = re.sub(r"-mode \S+", "-mode none", shifts[0])
    assert found_by_trial("doubled", nothing, tmp_path, 2, operators) == ""


@pytest.mark.full
def test_testbench_of_the_evictor_detects_mutants() -> None:
    result = mutate(entry_named("systolic_evictor"), "tiny", count=8, seed=1)
    assert len(result.mutants) == 8
    assert result.found >= 6
    assert all(mutant.found_by for mutant in result.mutants)
