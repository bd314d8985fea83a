"""Each fault in the array, its accumulators and its evictor's link is found by the simulation."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, proof_finds, simulation_finds

ELEMENT = "hdl/kelle/processing_element.py"
ARRAY = "hdl/kelle/systolic_array.py"
ACCUMULATOR = "hdl/kelle/tile_accumulator.py"
EVICTING = "hdl/kelle/evicting_array.py"
FAULTS = [
    (
        "systolic_array",
        Fault(
            "a negative digit lacks its one",
            ELEMENT,
            "negative, Const(0, 1))",
            "Const(0, 1), Const(0, 1))",
        ),
    ),
    (
        "systolic_array",
        Fault(
            "unsigned weights are taken as signed",
            ELEMENT,
            "unsigned_weight & weight[-1])",
            "Const(0, 1))",
        ),
    ),
    (
        "systolic_array",
        Fault(
            "the digit minus two counts as minus one",
            ELEMENT,
            "Mux(high, ~(low | middle), low & middle)",
            "low & middle",
        ),
    ),
    (
        "systolic_array",
        Fault(
            "sums change their link a cycle early",
            ARRAY,
            "wave[i + j], wave[i + j + 2]",
            "wave[i + j], wave[i + j + 1]",
        ),
    ),
    (
        "systolic_array",
        Fault(
            "the swap does not travel with the wave",
            ARRAY,
            "element.swap.eq(takes_in.swap)",
            "element.swap.eq(wave[0].swap)",
        ),
    ),
    (
        "systolic_array",
        Fault(
            "a load may overwrite a tile that waits",
            ARRAY,
            "self.weights.ready.eq(~loaded | swap)",
            "self.weights.ready.eq(1)",
        ),
    ),
    (
        "systolic_array",
        Fault(
            "a swap does not wait for its tile",
            ARRAY,
            "ready = loaded | ~vector.swap",
            "ready = Const(1)",
        ),
    ),
    (
        "systolic_array",
        Fault(
            "all bands load at once",
            ARRAY,
            "Stagger(shape=link, lanes=p.bands, step=p.load_cycles)",
            "Stagger(shape=link, lanes=p.bands, step=1)",
        ),
    ),
    (
        "systolic_array",
        Fault(
            "a reset leaves vectors in the array",
            ARRAY,
            'Signal(name=f"valid_{distance}")',
            'Signal(name=f"valid_{distance}", reset_less=True)',
        ),
    ),
    (
        "evicting_array",
        Fault(
            "upper bytes count like lower ones",
            ACCUMULATOR,
            "Mux(self.step.high, self.sum << 8, self.sum)",
            "self.sum",
        ),
    ),
    (
        "evicting_array",
        Fault(
            "the evictor takes scores a cycle early",
            EVICTING,
            "for rank in range(1 + p.stages):",
            "for rank in range(p.stages):",
        ),
    ),
    (
        "evicting_array",
        Fault(
            "searches begin without room for their victims",
            EVICTING,
            "allowed = ~ends | (under_way != p.evictor.victims)",
            "allowed = ends | ~ends",
        ),
    ),
    (
        "evicting_array",
        Fault(
            "results wrap instead of saturating",
            "hdl/kelle/requantiser.py",
            "saturate(floor + up, signed(16))[0]",
            "(floor + up)[:16]",
        ),
    ),
]


BESIDE = Fault(
    "the accumulator held is read from the memory, which lacks it",
    ACCUMULATOR,
    "Mux(again, held, words.read_data.as_signed())",
    "words.read_data.as_signed()",
)
"""No array with a load of several cycles adds to one accumulator in cycles next to each other."""


@pytest.mark.full
def test_fault_beside_the_array_is_found(tmp_path: Path) -> None:
    copy = faulty_copy(BESIDE, tmp_path)
    assert proof_finds(copy, "tests/kelle/test_tile_accumulator.py")


@pytest.mark.full
@pytest.mark.parametrize(("top", "fault"), FAULTS, ids=lambda item: getattr(item, "meaning", item))
def test_fault_is_found(top: str, fault: Fault, tmp_path: Path) -> None:
    copy = faulty_copy(fault, tmp_path)
    assert simulation_finds(copy, top, "tiny")
