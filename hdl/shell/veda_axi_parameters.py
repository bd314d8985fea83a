"""Dimensions of VEDA with the AXI shell: its memory ports and the parts of its program."""

from dataclasses import field
from functools import cached_property
from typing import Annotated

from amaranth.lib import data, enum
from amaranth.utils import ceil_log2

from hdl.parameters import Range, parameter_object, require
from hdl.shell.shell_parameters import TOKEN_BITS, RegionPort, ShellParameters
from hdl.veda.parameters import VedaParameters
from hdl.veda.voting.threshold_parameters import COEFFICIENT_BITS

SPACES = ("cache", "weights", "angles", "vocabulary")
"""Regions of memory lines, in the order of `hdl.veda.instructions.Space`."""

LONGEST = 1 << 20
"""Words of the longest burst, which is that of the LM head."""

MOST_COEFFICIENT = (1 << COEFFICIENT_BITS) - 1


class TokenKind(enum.Enum, shape=2):
    """Content of an output token, in its upper bits; results of different kinds may alternate."""

    TOKEN = 0
    """A predicted token of the vocabulary."""

    SUM = 1
    """The logit of the latest predicted token, before it is rounded to FP16."""

    VICTIM = 2
    """Layer and slot of a victim."""


KIND_FIRST = TOKEN_BITS - 2
"""First bit of an output token's `TokenKind`."""


@parameter_object
class VedaAxiParameters(ShellParameters):
    """Dimensions of the accelerator and of its AXI4 ports; they also configure its testbench.

    Parameters
    ----------
    veda : VedaParameters
        Dimensions of the accelerator.
    mean, deviation : int
        Coefficients a and b of the voting threshold in units of 2**-12; 4096 and 819 are the
        paper's.
    axi_address_bits, data_bytes, burst_beats, outstanding, token_depth : int
        As in `ShellParameters`.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    veda: VedaParameters = field(default_factory=VedaParameters)
    mean: Annotated[int, Range(0, MOST_COEFFICIENT, "in units of 2**-12")] = 4096
    deviation: Annotated[int, Range(0, MOST_COEFFICIENT, "in units of 2**-12")] = 819
    token_depth: Annotated[int, Range(4, 64, "tokens")] = 16

    def __post_init__(self) -> None:
        """Check each parameter, and that a burst of lines is a burst of words."""
        super().__post_init__()
        lines = self.veda.burst_shape[-1]
        require(lines <= LONGEST, f"lines of a burst must be at most {LONGEST}", lines)

    @property
    def program(self) -> tuple[str, ...]:
        """Instructions, the places of their vote counts, and their vectors and hidden states."""
        return ("instructions", "vote_steps", "vectors", "states")

    @property
    def space_bits(self) -> tuple[int, ...]:
        """Bits of the address of a line in each of `SPACES`."""
        p = self.veda
        return (
            p.layer_bits + p.cache_line.size,
            p.layer_bits + p.weight_line.size,
            p.angle_line.size,
            p.vocabulary_line.size,
        )

    @property
    def count_address_bits(self) -> int:
        """Bits of the address of a vote count: two copies of the counts of all layers."""
        return 1 + self.veda.layer_bits + self.veda.slot_bits

    @property
    def address_bits(self) -> int:
        """Bits of an address in words; a part of a program has up to `longest` words."""
        return max(ceil_log2(LONGEST), *self.space_bits, self.count_address_bits)

    @property
    def longest(self) -> int:
        """Words of the longest burst."""
        return LONGEST

    @property
    def step_layout(self) -> data.StructLayout:
        """The places of the vote counts of a token of an instruction.

        The accelerator reads `reads` counts from `read_address` on, and writes `writes` counts from
        `write_address` on.
        """
        place, number = self.count_address_bits, self.veda.length_shape
        return data.StructLayout(
            {"read_address": place, "reads": number, "write_address": place, "writes": number}
        )

    @property
    def line_bits(self) -> int:
        """Bits of a memory line."""
        return self.veda.array.plane_width * 16

    @cached_property
    def line_ports(self) -> tuple[str, ...]:
        """The port of each memory channel."""
        return tuple(f"line_reads_{number}" for number in range(self.veda.channels))

    @cached_property
    def ports(self) -> tuple[RegionPort, ...]:
        """All burst ports; their order numbers the sources of errors."""
        p, count_bits = self.veda, self.veda.voting.count_bits
        beat, state = p.beat_layout.size, p.state_layout.size
        first, *others = SPACES
        return (
            RegionPort("instructions", "instructions", p.instruction_layout.size),
            RegionPort("vote_steps", "vote_steps", self.step_layout.size),
            RegionPort("vectors", "vectors", beat),
            RegionPort("states", "states", state),
            *(
                RegionPort(name, first, self.line_bits, others=tuple(others))
                for name in self.line_ports
            ),
            RegionPort("cache_writes", "cache", self.line_bits, writes=True),
            RegionPort("count_reads", "counts", count_bits),
            RegionPort("count_writes", "counts", count_bits, writes=True),
            RegionPort("output_writes", "outputs", beat, writes=True),
            RegionPort("state_writes", "states_out", state, writes=True),
        )
