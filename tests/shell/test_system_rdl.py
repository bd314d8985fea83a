"""The SystemRDL of the registers, read by systemrdl-compiler."""

import re
from pathlib import Path

import pytest
from systemrdl.compiler import RDLCompiler
from systemrdl.messages import RDLCompileError
from systemrdl.node import RegNode
from systemrdl.rdltypes.builtin_enums import OnWriteType

from hdl.catalog import entry_named
from hdl.shell.catalog import UNITS
from hdl.shell.register_map import Access, AxiRegistersParameters, registers
from hdl.shell.shell_parameters import ShellParameters
from hdl.system_rdl import ACCESS, WIDTH, system_rdl

TOPS = tuple(
    entry.top
    for entry in UNITS
    if all(isinstance(preset, ShellParameters) for preset in entry.presets.values())
)
SOFTWARE = {
    Access.READ: (True, False),
    Access.WRITE: (False, True),
    Access.READ_WRITE: (True, True),
    Access.CLEAR: (True, True),
}


def parameters_of(top: str) -> AxiRegistersParameters:
    return entry_named(top).parameters("smollm2").registers


def compiled(text: str, folder: Path) -> list[RegNode]:
    """Return the registers that the compiler reads."""
    (folder / "map.rdl").write_text(text)
    compiler = RDLCompiler()
    compiler.compile_file(str(folder / "map.rdl"))
    return list(compiler.elaborate().top.registers())


@pytest.mark.parametrize("top", TOPS)
def test_compiler_reads_the_register_map(top: str, tmp_path: Path) -> None:
    parameters = parameters_of(top)
    sections = entry_named(top).parameters("smollm2").manifest_sections()
    found = compiled(system_rdl(top, sections["register_map"]), tmp_path)
    listed = registers(parameters)
    assert [(one.inst_name, one.absolute_address) for one in found] == [
        (one.name, one.offset) for one in listed
    ]
    for node, one in zip(found, listed, strict=True):
        assert node.get_property("desc") == one.meaning and node.get_property("regwidth") == WIDTH
        fields = [(part.name, part.first, part.width, part.meaning) for part in one.fields]
        assert [
            (part.inst_name, part.low, part.width, part.get_property("desc"))
            for part in node.fields()
        ] == (fields or [("value", 0, WIDTH, one.meaning)])
        accesses = [one.access_of(part) for part in one.fields] or [one.access]
        for part, access in zip(node.fields(), accesses, strict=True):
            assert (part.is_sw_readable, part.is_sw_writable) == SOFTWARE[access]
            cleared = part.get_property("onwrite") is OnWriteType.woclr
            assert cleared == (access is Access.CLEAR)


def test_each_access_has_properties() -> None:
    assert set(ACCESS) == {one.value for one in Access}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@ 0x004", "@ 0x000"),
        ("busy[0:0]", "busy[1:1]"),
        ("sw = r;", "sw = q;"),
        ("};\n", "\n"),
    ],
)
def test_compiler_rejects_faults(old: str, new: str, tmp_path: Path) -> None:
    top = TOPS[0]
    sections = entry_named(top).parameters("smollm2").manifest_sections()
    text = system_rdl(top, sections["register_map"])
    changed = re.sub(re.escape(old), new, text, count=1)
    assert changed != text
    with pytest.raises(RDLCompileError):
        compiled(changed, tmp_path)


def test_text_with_quotes_is_one_string(tmp_path: Path) -> None:
    one = {"name": "mode", "offset": 0, "access": "read", "meaning": 'a "b" \\ c', "fields": []}
    (found,) = compiled(system_rdl("top", {"registers": [one]}), tmp_path)
    assert found.get_property("desc") == one["meaning"]
