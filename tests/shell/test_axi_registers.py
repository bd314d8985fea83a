"""The register block keeps AXI4-Lite's rules; all that is derived from its map agrees."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Elaboratable, Module, Signal, Value

from golden.shell.axi_registers import DECERR, OKAY, SLVERR, RegisterModel
from hdl.catalog import entry_named
from hdl.emitted import emit_unit
from hdl.paths import ROOT
from hdl.shell import register_map
from hdl.shell.axi_lite_port import AxiLitePort
from hdl.shell.axi_registers import AxiRegisters
from hdl.shell.register_map import AxiRegistersParameters, registers
from hdl.target import Target
from testbenches.bounded import first_failure, prove_bounded
from testbenches.formal import AnySeq, Assert, Assume
from testbenches.runner import Request, run_testbench
from testbenches.shell.axi_rules import stable

pytestmark = pytest.mark.depends("axi_registers")

TINY: AxiRegistersParameters = entry_named("axi_registers").parameters("tiny")
COUNT = 4


class LiteRules(Elaboratable):
    """Responses are stable; each follows its access; an accelerator starts once per command."""

    def __init__(self, cover: str | None = None) -> None:
        self.cover = cover

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = replace(TINY, bases=1, axi_address_bits=12, sources=1, token_bits=1, token_depth=1)
        m.submodules.unit = unit = AxiRegisters(parameters=p)
        axi = unit.s_axi
        free = (
            *(axi.awaddr, axi.awvalid, axi.wdata, axi.wstrb, axi.wvalid, axi.bready),
            *(axi.araddr, axi.arvalid, axi.rready, unit.finish, unit.idle, unit.tokens_in.ready),
            *(unit.tokens_out.valid, unit.tokens_out.payload, Value.cast(unit.errors)),
        )
        m.d.comb += [one.eq(AnySeq(len(one))) for one in free]
        stable(m, "b", axi.bvalid, axi.bready, [Value.cast(axi.bresp)])
        stable(m, "r", axi.rvalid, axi.rready, [axi.rdata, Value.cast(axi.rresp)])
        counts = {name: Signal(COUNT, name=f"count_{name}") for name in ("aw", "w", "b", "ar", "r")}
        for name, count in counts.items():
            moves = getattr(axi, f"{name}valid") & getattr(axi, f"{name}ready")
            m.d.sync += count.eq(count + moves)
            m.d.comb += Assume(count < (1 << COUNT) - 2)
        complete = Signal(COUNT)
        m.d.comb += complete.eq(counts["aw"])
        with m.If(counts["w"] < counts["aw"]):
            m.d.comb += complete.eq(counts["w"])
        # Work: a start ends with `finish` or a flush, and no other start precedes its end.
        working, base = Signal(), Signal.like(Value.cast(unit.bases))
        with m.If(unit.finish | unit.flush):
            m.d.sync += working.eq(0)
        with m.If(unit.start):
            m.d.sync += working.eq(1)
        m.d.sync += base.eq(Value.cast(unit.bases))
        m.d.comb += [
            Assert(counts["b"] + axi.bvalid <= complete),
            Assert(counts["r"] + axi.rvalid <= counts["ar"]),
            # Not more than one access waits: nothing is lost.
            Assert(counts["ar"] - counts["r"] <= 2),
            Assert(complete - counts["b"] <= 2),
            Assert(~(unit.start & (working | unit.flush))),
            Assert(~working | unit.start | (Value.cast(unit.bases) == base)),
        ]
        reached = {
            "a second start": unit.start & (counts["b"] >= 1),
            "a refused write": axi.bvalid & (Value.cast(axi.bresp) == SLVERR) & working,
            "a read in a write": axi.rvalid & axi.bvalid,
        }
        if self.cover:
            m.d.comb += Assert(~reached[self.cover])
        return m


@pytest.mark.parametrize(
    "depth", [pytest.param(9, id="quick"), pytest.param(16, id="deep", marks=pytest.mark.full)]
)
def test_rules_hold_from_reset(depth: int) -> None:
    prove_bounded(LiteRules(), depth=depth)


@pytest.mark.parametrize(
    "event",
    [
        "a refused write",
        pytest.param("a second start", marks=pytest.mark.full),
        pytest.param("a read in a write", marks=pytest.mark.full),
    ],
)
def test_the_proof_reaches(event: str) -> None:
    assert first_failure(LiteRules(event), depth=9) is not None


@pytest.mark.parametrize("preset", ["tiny", "tiny_wide"])
def test_the_block_works_with_the_master_of_cocotbext_axi(preset: str, tmp_path: Path) -> None:
    entry = entry_named("axi_registers")
    emitted = emit_unit(entry, preset, Target.ASIC, directory=tmp_path / "rtl")
    result = run_testbench(
        top=entry.top,
        preset=preset,
        parameters=entry.parameters(preset),
        testbench="tests.shell.tb_axi_lite",
        ports=emitted.ports,
        verilog=list(emitted.verilog),
        home=tmp_path,
        request=Request(simulator="verilator", seed=1),
    )
    assert (result.tests, result.failures, result.first_failure) == (2, 0, "")


@pytest.mark.parametrize("preset", ["tiny", "tiny_wide", "smollm2", "paper"])
def test_registers_do_not_overlap_and_fields_fit(preset: str) -> None:
    p: AxiRegistersParameters = entry_named("axi_registers").parameters(preset)
    offsets = [one.offset for one in registers(p)]
    assert offsets == sorted(set(offsets)) and all(offset % 4 == 0 for offset in offsets)
    assert offsets[-1] < 1 << p.address_bits
    for one in registers(p):
        bits = [bit for part in one.fields for bit in range(part.first, part.first + part.width)]
        assert len(bits) == len(set(bits)) and all(bit < 32 for bit in bits)


def test_the_page_has_the_map() -> None:
    page = (ROOT / "docs" / "shell" / "axi_registers.md").read_text()
    assert register_map.table(AxiRegistersParameters(bases=1)) in page


def test_json_and_c_header_have_the_map(tmp_path: Path) -> None:
    """A C compiler reads the header; its offsets are those of the JSON."""
    register_map.main("tiny", tmp_path)
    values = json.loads((tmp_path / "registers.json").read_text())
    assert values["digest"] == TINY.digest
    listed = {one["name"]: one["offset"] for one in values["registers"]}
    assert listed == {one.name: one.offset for one in registers(TINY)}
    names = [f"SYSTOLA_{name.upper()}" for name in listed]
    numbers = ", ".join([*names, "SYSTOLA_ERROR_CAUSE_SOURCE_MASK"])
    program = tmp_path / "check.c"
    program.write_text(
        '#include <stdio.h>\n#include "registers.h"\nint main(void) {\n'
        f"  unsigned long all[] = {{{numbers}}};\n"
        '  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) printf("%lu ", all[i]);\n}\n'
    )
    subprocess.run(["gcc", "-Wall", "-Werror", program, "-o", tmp_path / "check"], check=True)
    run = subprocess.run([tmp_path / "check"], capture_output=True, text=True, check=True)
    assert list(map(int, run.stdout.split())) == [*listed.values(), 0x1F00]


def test_responses_of_the_model() -> None:
    model = RegisterModel(TINY)
    assert model.write(0x00, 1) == SLVERR
    assert model.write(0x3C, 1) == DECERR and model.read(0x3C) == (0, DECERR)
    assert model.write(0x0C, 1) == OKAY and model.write(0x0C, 1) == SLVERR
    assert model.write(0x40, 4) == SLVERR
    model.finish(9)
    assert model.read(0x28) == (9, OKAY) and model.read(0x18) == (1, OKAY)
    assert model.write(0x40, 4) == OKAY and model.bases == [4, 0]
    assert [model.write(0x40, 2), model.write(0x44, 1), model.write(0x40, 8, 3)] == [SLVERR] * 3
    assert model.read(0x34) == (0, SLVERR)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bases": 33}, "bases must be an integer from 1 to 32, not 33"),
        ({"alignment": 24}, "alignment must be a power of two between 4 and 128, not 24"),
        ({"digest": 1 << 32}, "digest must be an integer from 0 to 4294967295, not 4294967296"),
    ],
)
def test_rejects_illegal_parameters(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        AxiRegistersParameters(**changes)
    with pytest.raises(ValueError, match="address_bits must be an integer from 12 to 64, not 5"):
        AxiLitePort(address_bits=5)
