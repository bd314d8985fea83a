"""Dimensions of P3-LLM with the AXI shell: its memory ports and the parts of its program."""

from dataclasses import field
from functools import cached_property
from typing import Annotated

from amaranth.lib import data
from amaranth.utils import bits_for, ceil_log2

from hdl.p3llm.instructions import MemoryBits
from hdl.p3llm.parameters import P3llmParameters
from hdl.parameters import PowerOfTwo, parameter_object, require
from hdl.shell.shell_parameters import RegionPort, ShellParameters

LONGEST = 1 << 20
"""Words of the longest burst, which is that of a program."""

MOST_BYTES = 512
"""Most bytes of a word at an AXI4 master."""

FETCH = 4
"""Positions that one request reads."""


@parameter_object
class P3llmAxiParameters(ShellParameters):
    """Dimensions of the accelerator and of its AXI4 ports; they also configure its testbench.

    Parameters
    ----------
    p3llm : P3llmParameters
        Dimensions of the accelerator.
    windows : int
        Windows of consecutive positions of the banks that are held on the chip.
    window_positions : int
        Positions of a window.
    axi_address_bits, data_bytes, burst_beats, outstanding, token_depth : int
        As in `ShellParameters`.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    p3llm: P3llmParameters = field(default_factory=P3llmParameters)
    windows: Annotated[int, PowerOfTwo(2, 16, "windows")] = 8
    window_positions: Annotated[int, PowerOfTwo(16, 256, "positions")] = 64

    @property
    def program(self) -> tuple[str, ...]:
        """Instructions and hidden states."""
        return ("instructions", "states")

    @property
    def position_bits(self) -> int:
        """Bits of a position in the banks, or of their end."""
        return MemoryBits(self.p3llm).position

    @property
    def positions(self) -> int:
        """Positions of all layers and of the LM head."""
        p = self.p3llm
        return p.layers * p.layer_positions + p.vocabulary_positions

    @property
    def steps(self) -> int:
        """Steps of a token: those of the layers, and that of the LM head."""
        return self.p3llm.layers + (self.p3llm.vocabulary_size > 0)

    @property
    def columns_layout(self) -> data.ArrayLayout:
        """A position: a column of each unit of each pseudo-channel."""
        p = self.p3llm
        columns = data.ArrayLayout(p.channel.unit.column_bits, p.units)
        return data.ArrayLayout(columns, p.pseudo_channels)

    @property
    def state_slices(self) -> int:
        """Slices of the hidden states of a step, of all requests."""
        return self.p3llm.batch * self.p3llm.hidden_size // self.p3llm.lanes

    @property
    def address_bits(self) -> int:
        """Bits of an address in words; a part of a program has up to `longest` words."""
        return max(ceil_log2(LONGEST), bits_for(self.positions))

    @property
    def longest(self) -> int:
        """Words of the longest burst."""
        return LONGEST

    @property
    def instruction_layout(self) -> data.StructLayout:
        """An instruction: a `step`, see `P3llm`, and where its hidden states are.

        With `follows` they are those that the layer of the instruction before has output, or else
        those of the program.
        """
        return data.StructLayout({"step": self.p3llm.instruction_layout, "follows": 1})

    @cached_property
    def ports(self) -> tuple[RegionPort, ...]:
        """All burst ports; their order numbers the sources of errors."""
        state = self.p3llm.state_layout.size
        position = self.columns_layout.size
        require(
            position <= 8 * MOST_BYTES,
            f"bytes per position must be at most {MOST_BYTES} with the AXI shell",
            position // 8,
        )
        return (
            RegionPort("instructions", "instructions", self.instruction_layout.size),
            RegionPort("states", "states", state),
            RegionPort("bank_reads", "banks", position),
            RegionPort("bank_writes", "banks", position, writes=True),
            RegionPort("output_writes", "outputs", state, writes=True),
        )
