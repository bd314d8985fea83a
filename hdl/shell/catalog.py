"""Catalog of the AXI shell, with the dimensions of boards."""

from dataclasses import replace

from hdl.entry import Entry
from hdl.kelle import catalog as kelle
from hdl.lad import catalog as lad
from hdl.meadow import catalog as meadow
from hdl.p3llm import catalog as p3llm
from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.shell.axi_read_master import AxiReadMaster
from hdl.shell.axi_registers import AxiRegisters
from hdl.shell.axi_write_master import AxiWriteMaster
from hdl.shell.kelle_axi import KelleAxi
from hdl.shell.kelle_axi_parameters import KelleAxiParameters
from hdl.shell.lad_axi import LadAxi
from hdl.shell.lad_axi_parameters import LadAxiParameters
from hdl.shell.meadow_axi import MeadowAxi
from hdl.shell.meadow_axi_parameters import MeadowAxiParameters
from hdl.shell.p3llm_axi import P3llmAxi
from hdl.shell.p3llm_axi_parameters import P3llmAxiParameters
from hdl.shell.register_map import AxiRegistersParameters
from hdl.shell.shell_parameters import ShellParameters
from hdl.shell.veda_axi import VedaAxi
from hdl.shell.veda_axi_parameters import VedaAxiParameters
from hdl.unit import Unit
from hdl.veda import catalog as veda

MASTERS = {
    # Words of two beats; short bursts, of which few are in flight.
    "tiny": AxiMasterParameters(
        address_bits=12,
        word_bytes=8,
        longest=100,
        axi_address_bits=16,
        data_bytes=4,
        burst_beats=16,
        outstanding=3,
    ),
    # Four words per beat.
    "tiny_lanes": AxiMasterParameters(
        address_bits=10,
        word_bytes=2,
        longest=300,
        axi_address_bits=14,
        data_bytes=8,
        burst_beats=8,
        outstanding=4,
    ),
    # A word is a beat; the page limits a burst.
    "tiny_page": AxiMasterParameters(
        address_bits=10,
        word_bytes=32,
        longest=500,
        axi_address_bits=32,
        data_bytes=32,
        outstanding=2,
    ),
    # The width of the memory ports of Alveo cards and of HBM.
    "smollm2": AxiMasterParameters(data_bytes=64),
    # A high-performance port of the Zynq UltraScale+ on the ZCU102, the board of MEADOW's paper.
    "paper": AxiMasterParameters(data_bytes=16),
}
"""Presets of both masters."""

REGISTERS = {
    "tiny": AxiRegistersParameters(
        bases=2,
        axi_address_bits=14,
        alignment=4,
        sources=3,
        token_bits=9,
        token_depth=3,
        digest=0x89ABCDEF,
    ),
    # Addresses of 64 bits; FIFOs of one token.
    "tiny_wide": AxiRegistersParameters(bases=1, axi_address_bits=64, sources=1, token_depth=1),
    # The boards of the masters' presets.
    "smollm2": AxiRegistersParameters(alignment=64),
    "paper": AxiRegistersParameters(),
}
"""Presets of the register block."""

(MEADOW,) = (entry.presets for entry in meadow.UNITS if entry.top == "meadow")

MEADOW_AXI = {
    # States of two beats, two words of the cache per beat; few short bursts in flight.
    "tiny": MeadowAxiParameters(
        meadow=MEADOW["tiny"], data_bytes=8, burst_beats=16, outstanding=3, token_depth=3
    ),
    # One beat per word, as fast as the burst ports; biases, and a norm with biases.
    "tiny_opt": MeadowAxiParameters(meadow=MEADOW["tiny_opt"], data_bytes=16),
    # The boards of the masters' presets.
    "smollm2": MeadowAxiParameters(meadow=MEADOW["smollm2"], data_bytes=64),
    "paper": MeadowAxiParameters(meadow=MEADOW["paper"]),
}
"""Presets of MEADOW with the shell."""

(VEDA,) = (entry.presets for entry in veda.UNITS if entry.top == "veda")

VEDA_AXI = {
    # Lines of one beat; few short bursts in flight.
    "tiny": VedaAxiParameters(
        veda=VEDA["tiny_vocabulary"], data_bytes=8, burst_beats=16, outstanding=3, token_depth=4
    ),
    # Two lines per beat; biases, and a norm with biases.
    "tiny_opt": VedaAxiParameters(veda=VEDA["tiny_opt"], data_bytes=16),
    # A line per beat and channel: the widest beat of AXI4.
    "smollm2": VedaAxiParameters(veda=VEDA["smollm2_vocabulary"], data_bytes=128),
    "paper": VedaAxiParameters(veda=VEDA["paper"], data_bytes=128),
}
"""Presets of VEDA with the shell."""

(KELLE,) = (entry.presets for entry in kelle.UNITS if entry.top == "kelle")

KELLE_AXI = {
    # A word of weights per beat; few short bursts in flight; layers that follow each other, and a
    # number of a layer that does not exist.
    "tiny": KelleAxiParameters(
        kelle=KELLE["tiny"],
        clock_mhz=100,
        data_bytes=8,
        burst_beats=16,
        outstanding=3,
        token_depth=5,
    ),
    # Two words of weights per beat; biases, a norm with biases, no LM head.
    "tiny_opt": KelleAxiParameters(kelle=KELLE["tiny_opt"], clock_mhz=100, data_bytes=16),
    # A word of weights per beat: the widest beat of AXI4.
    "smollm2": KelleAxiParameters(kelle=KELLE["smollm2"], data_bytes=128),
    "paper": KelleAxiParameters(kelle=KELLE["paper"], data_bytes=128),
}
"""Presets of Kelle with the shell."""

(LAD,) = (entry.presets for entry in lad.UNITS if entry.top == "lad")

LAD_AXI = {
    # Rows of one beat, four beats per record of G; short bursts.
    "tiny": LadAxiParameters(
        lad=LAD["tiny"], data_bytes=8, burst_beats=16, outstanding=8, token_depth=8
    ),
    # Two tiles, whose rows share the ports; two rows per beat, no LM head.
    "tiny_pairs": LadAxiParameters(lad=LAD["tiny_pairs"], data_bytes=16, outstanding=3),
    # A row per beat: the widest beat of AXI4.
    "smollm2": LadAxiParameters(lad=LAD["smollm2"], data_bytes=128, outstanding=32),
    "paper": LadAxiParameters(lad=LAD["paper"], data_bytes=128, outstanding=32),
}
"""Presets of LAD with the shell."""

(P3LLM,) = (entry.presets for entry in p3llm.UNITS if entry.top == "p3llm")

P3LLM_AXI = {
    # A position is two beats, as many as the cycles of a column.
    "tiny": P3llmAxiParameters(p3llm=P3LLM["tiny"], data_bytes=16),
    # Few small windows and few short bursts; several requests and pseudo-channels, no LM head.
    "tiny_channels": P3llmAxiParameters(
        p3llm=replace(P3LLM["tiny_channels"], batch=3, vocabulary_size=0),
        windows=2,
        window_positions=16,
        data_bytes=8,
        burst_beats=16,
        outstanding=3,
    ),
    # A position is two beats of the widest beat of AXI4.
    "smollm2": P3llmAxiParameters(p3llm=P3LLM["smollm2"], data_bytes=128),
    # A layer of the paper's model in one pseudo-channel; a position of all of them is too wide.
    "paper": P3llmAxiParameters(p3llm=P3LLM["paper_layer"], data_bytes=128),
}
"""Presets of P3-LLM with the shell."""

UNITS: tuple[Entry, ...] = (
    Entry(
        summary="serves a burst port of reads from an AXI4 memory",
        source="Arm IHI 0022, AXI4: read channels",
        unit=AxiReadMaster,
        presets=MASTERS,
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="serves a burst port of writes to an AXI4 memory",
        source="Arm IHI 0022, AXI4: write channels",
        unit=AxiWriteMaster,
        presets=MASTERS,
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="starts and observes an accelerator through registers",
        source="Arm IHI 0022, AXI4-Lite",
        unit=AxiRegisters,
        presets=REGISTERS,
    ),
    Entry(
        summary="MEADOW with AXI4 memory ports and registers for a host",
        source="Arm IHI 0022, AXI4 and AXI4-Lite; MEADOW, Figure 2",
        unit=MeadowAxi,
        presets=MEADOW_AXI,
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="VEDA with AXI4 memory ports and registers for a host",
        source="Arm IHI 0022, AXI4 and AXI4-Lite; VEDA, Figure 7",
        unit=VedaAxi,
        presets=VEDA_AXI,
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="Kelle with AXI4 memory ports and registers for a host",
        source="Arm IHI 0022, AXI4 and AXI4-Lite; Kelle, Figure 9",
        unit=KelleAxi,
        presets=KELLE_AXI,
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="LAD with AXI4 memory ports and registers for a host",
        source="Arm IHI 0022, AXI4 and AXI4-Lite; LAD, Figure 4",
        unit=LadAxi,
        presets=LAD_AXI,
        long=("smollm2", "paper"),
    ),
    Entry(
        summary="P3-LLM with AXI4 memory ports and registers for a host",
        source="Arm IHI 0022, AXI4 and AXI4-Lite; P3-LLM, Figure 6",
        unit=P3llmAxi,
        presets=P3LLM_AXI,
        long=("smollm2", "paper"),
    ),
)
"""Every unit of the shell."""


def accelerator_unit(parameters: ShellParameters) -> type[Unit]:
    """Return the class of the accelerator that has these dimensions."""
    (unit,) = (
        entry.unit
        for entry in UNITS
        if any(type(preset) is type(parameters) for preset in entry.presets.values())
    )
    return unit
