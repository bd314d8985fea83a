import gzip
from pathlib import Path

import pytest

from hdl.errors import UserError
from synth.liberty import GENERIC, find_library, read_library

SMALL = """
/* a library */
library (small) {
  nom_voltage : 1.10; nom_temperature : 25.0;
  capacitive_load_unit (1, pf);
  cell (NAND2_WIDE) { area : 9; pin (A) { direction : input; } pin (B) { direction : input; }
    pin (Y) { direction : output; function : "!(A*B)"; } }
  cell (NAND2_B) { area : 3; pin (A) { direction : input; } pin (B) { direction : input; }
    pin (Y) { direction : output; function : "(A B)'"; } }
  cell (NOR2) { area : 2; pin (A) { direction : input; } pin (B) { direction : input; }
    pin (Y) { direction : output; function : "(!A) & (!B)"; } }
  cell (INV) { area : 1; pin (A) { direction : input; }
    pin (Y) { direction : output; function : "A'"; } }
  cell (BUF) { area : 2; dont_use : true; pin (A) { direction : input; }
    pin (Y) { direction : output; function : "A"; } }
  cell (DFF) { area : 5; ff (IQ, IQN) { clocked_on : "C"; next_state : "D"; }
    pin (C) { direction : input; clock : true; } pin (D) { direction : input; }
    pin (Q) { direction : output; function : "IQ"; } }
  cell (EDFF) { area : 9; ff (IQ, IQN) { clocked_on : "C"; next_state : "(D E) + (IQ !E)"; }
    pin (C) { direction : input; clock : true; } pin (D) { direction : input; }
    pin (E) { direction : input; } pin (Q) { direction : output; function : "IQ"; } }
}
"""


def test_a_library_is_read(tmp_path: Path) -> None:
    file = tmp_path / "small.lib"
    file.write_text(SMALL)
    library = find_library(file)
    assert (library.name, library.corner) == ("small", "1.1 V, 25 C")
    assert library.nand2_area == 3
    assert library.inverter is not None and library.inverter.name == "INV"
    assert library.buffer is None
    assert library.dont_use == ["BUF", "EDFF"]
    assert library.capacitance_unit_ff == 1000
    assert {name for name, cell in library.cells.items() if cell.state} == {"DFF", "EDFF"}


def test_a_compressed_library_is_the_same(tmp_path: Path) -> None:
    plain, packed = tmp_path / "small.lib", tmp_path / "small.lib.gz"
    plain.write_text(SMALL)
    packed.write_bytes(gzip.compress(SMALL.encode()))
    assert find_library(plain).cells == find_library(packed).cells
    assert find_library(plain).digest == find_library(packed).digest


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.lib", None, "LIBERTY must be a file that exists"),
        ("text.lib", b"module top; endmodule", "LIBERTY must be a liberty file that opens with"),
        ("cut.lib", SMALL[:-200].encode(), "LIBERTY must be a whole file"),
        ("empty.lib", b"library (nothing) { }", "LIBERTY must be a liberty file with cells"),
        ("cut.lib.gz", gzip.compress(SMALL.encode())[:-20], "LIBERTY must be a whole gzip file"),
    ],
)
def test_what_is_no_liberty_is_refused(
    name: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=message):
        find_library(file)


def test_a_library_without_nand_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "inverters.lib"
    file.write_text("library (i) { cell (INV) { area : 1; pin (A) { direction : input; } } }")
    with pytest.raises(UserError, match="the library must have a two-input NAND cell"):
        _ = find_library(file).nand2_area


def test_without_any_library_there_is_a_stated_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synth.liberty.osu018", lambda *_, **__: None)
    library = find_library()
    assert library.origin.startswith("generic estimate")
    assert library.nand2_area == 1 and not library.timed
    assert library == read_library(GENERIC, origin=library.origin)
