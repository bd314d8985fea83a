"""LiteDRAM's standalone core for the SDR SDRAM of a board, and the top that connects it."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from hdl.board.board_parameters import SDRAM_BYTES, BoardParameters
from hdl.board.sdram_start import REGISTERS
from hdl.errors import UserError
from synth.export import TEMPLATES

CORE = "sdram_core"
"""Name of the core's module."""


def core_settings(data_bytes: int, clock_mhz: float) -> dict[str, object]:
    """Return the settings of ``litedram.gen`` for the ULX3S: one chip of 16 bits."""
    return {
        "cpu": "None",
        "device": "LFE5U-85F-6BG381C",
        "memtype": "SDR",
        "sdram_module": "MT48LC16M16",
        "sdram_module_nb": 2,  # of 8 bits each
        "sdram_rank_nb": 1,
        "sdram_phy": "GENSDRPHY",
        "input_clk_freq": clock_mhz * 1e6,
        "sys_clk_freq": clock_mhz * 1e6,
        "cmd_buffer_depth": 8,
        # The port is disabled until the last write of the start sequence.
        "user_ports": {"native": {"type": "native", "data_width": 8 * data_bytes}},
    }


def core_versions() -> dict[str, str]:
    """Return the versions of the generator."""
    return {"sdram": f"litedram {version('litedram')}, litex {version('litex')}"}


def write_core(directory: Path, data_bytes: int, clock_mhz: float) -> Path:
    """Generate the core into a directory; return its Verilog.

    Raises
    ------
    UserError
        If LiteDRAM fails, or its core has other registers than `SdramStart` writes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "core.json").write_text(json.dumps(core_settings(data_bytes, clock_mhz)))
    child = subprocess.run(
        [
            *(sys.executable, "-m", "litedram.gen", "core.json", "--name", CORE),
            *("--output-dir", "generated", "--csr-json", "registers.json"),
        ],
        cwd=directory,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode != 0:
        reason = (child.stderr.strip() or "no message").splitlines()[-1]
        raise UserError(f"LiteDRAM must generate the SDRAM controller: {reason}")
    found = json.loads((directory / "registers.json").read_text())["csr_registers"]
    require_registers({name: register["addr"] for name, register in found.items()})
    text = (directory / "generated" / "gateware" / f"{CORE}.v").read_text()
    file = directory / f"{CORE}.v"
    file.write_text(core_text(text))
    return file


def require_registers(found: dict[str, int]) -> None:
    """Check that a core has the registers that `SdramStart` writes.

    Raises
    ------
    UserError
        If a register has another address.
    """
    for name, address in REGISTERS.items():
        if found.get(name) != address:
            raise UserError(
                f"{name} of LiteDRAM's core must be at {address:#x}, not {found.get(name)}"
            )


def core_text(text: str) -> str:
    """Return a core's Verilog without dates, with its data pins as bidirectional ports.

    Raises
    ------
    UserError
        If the core has no data pins of 16 bits.
    """
    text = re.sub(r"^//.*\n", "", text, flags=re.M)
    text, count = re.subn(r"\binput( +wire +\[15:0\] sdram_dq\b)", r"inout\1", text)
    if count != 1:
        raise UserError(f"LiteDRAM's core must have 16 data pins sdram_dq, not {count} such ports")
    return text


def write_top(directory: Path, name: str, logic: str, parameters: BoardParameters) -> Path:
    """Write the top that connects the logic of a board to the core and to the chip's clock."""
    data_bytes = parameters.shell.data_bytes
    values = {
        "name": name,
        "logic": logic,
        "core": CORE,
        "data_bytes": data_bytes,
        "word_bits": (parameters.memory_bytes // data_bytes - 1).bit_length(),
        "core_word_bits": (SDRAM_BYTES // data_bytes - 1).bit_length(),
    }
    text = (TEMPLATES / "sdram_top.v").read_text()
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", str(value))
    file = directory / f"{name}.v"
    file.write_text(text)
    return file
