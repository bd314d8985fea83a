import json
from dataclasses import replace
from pathlib import Path

import pytest

from hdl.errors import UserError
from synth.debian import opensta, osu018
from synth.liberty import Library, read_library
from synth.power import measure_power
from synth.synthesis import measure_design
from tests.synth.designs import Counter, emit
from tests.synth.test_waveforms import TOP, write_vcd

OSU = osu018(fetch=False)

needs_tools = pytest.mark.skipif(
    opensta(fetch=False) is None or OSU is None, reason="needs OpenSTA and OSU018"
)


@pytest.fixture(scope="module")
def library() -> Library:
    assert OSU is not None
    return read_library(OSU, origin="Debian")


@needs_tools
def test_power_is_measured_for_stored_netlists(library: Library, tmp_path: Path) -> None:
    """Two simulations through the same two netlists: the busy one takes more of every cycle."""
    files = emit(Counter(width=8, memory=True), tmp_path / "rtl")
    with pytest.raises(UserError, match="must be synthesised by `make synth`"):
        measure_power(files, TOP, library, tmp_path, tmp_path / "waves.vcd")
    made = measure_design(files, TOP, library, tmp_path)
    energies: list[float] = []
    for counts in ([0] * 40, [0, 255] * 20):
        write_vcd(tmp_path / "waves.vcd", counts=counts)
        result = measure_power(files, TOP, library, tmp_path, tmp_path / "waves.vcd")
        assert [p.recipe for p in result.points] == [p.netlist.recipe for p in made.points]
        for point, own in zip(result.points, made.points, strict=True):
            assert own.timing is not None and own.timing.fmax_mhz is not None
            assert point.frequency_mhz == pytest.approx(own.timing.fmax_mhz, rel=1e-3)
            assert point.dynamic_pj * point.frequency_mhz == pytest.approx(
                1e3 * point.dynamic_mw, rel=1e-3
            )
        written = json.loads(result.file.read_text())
        assert written["points"][0]["activity"].startswith("40 simulated cycles")
        energies.append(result.points[0].dynamic_pj)
    assert energies[1] > energies[0] > 0


@needs_tools
def test_netlists_of_another_design_are_refused(library: Library, tmp_path: Path) -> None:
    files = emit(Counter(width=8), tmp_path / "rtl")
    measure_design(files, TOP, library, tmp_path)
    other = emit(Counter(width=9), tmp_path / "other")
    write_vcd(tmp_path / "waves.vcd", counts=[0, 1])
    with pytest.raises(
        UserError, match=r"must be of the present design and library: verilog_digest"
    ):
        measure_power(other, TOP, library, tmp_path, tmp_path / "waves.vcd")
    newer = replace(library, digest="another")
    with pytest.raises(UserError, match=r"liberty_digest must be another, not"):
        measure_power(files, TOP, newer, tmp_path, tmp_path / "waves.vcd")
