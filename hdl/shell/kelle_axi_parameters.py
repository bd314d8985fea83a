"""Dimensions of Kelle with the AXI shell: its memory ports and the parts of its program."""

from dataclasses import field
from functools import cached_property
from typing import Annotated

from amaranth.hdl import Shape
from amaranth.lib import data, enum
from amaranth.utils import ceil_log2

from hdl.kelle.edram.refresh_intervals import RefreshIntervals
from hdl.kelle.edram.refresh_walker import RefreshSettings
from hdl.kelle.eviction.eviction_parameters import placement_layout, prefill_layout
from hdl.kelle.instructions import PROJECTIONS, Operation
from hdl.kelle.parameters import KelleParameters
from hdl.nonlinear.row_norm import EPSILON_BITS
from hdl.parameters import Range, parameter_object, require
from hdl.shell.shell_parameters import RegionPort, ShellParameters

LONGEST = 1 << 20
"""Words of the longest burst, which is that of the LM head."""


class Command(enum.Enum, shape=2):
    """What an instruction does."""

    STEP = 0
    """Compute a layer, or the LM head."""

    SCALES = 1
    """Take `words` words of scales from the program."""

    PREFILL = 2
    """Take `words` tokens that a prefill keeps in the layer."""

    ROWS = 3
    """Take `words` rows of the KV eDRAM."""


LOADS = {"scales": Command.SCALES, "prefill": Command.PREFILL, "rows": Command.ROWS}
"""The parts of a program that an instruction takes word by word, and its command."""


@parameter_object
class KelleAxiParameters(ShellParameters):
    """Dimensions of the accelerator and of its AXI4 ports; they also configure its testbench.

    Parameters
    ----------
    kelle : KelleParameters
        Dimensions of the accelerator, for one sequence.
    intervals : RefreshIntervals
        Refresh intervals.
    clock_mhz : int
        Clock at which the refresh controllers count these intervals.
    axi_address_bits, data_bytes, burst_beats, outstanding, token_depth : int
        As in `ShellParameters`.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    kelle: KelleParameters = field(default_factory=KelleParameters)
    intervals: RefreshIntervals = field(default_factory=RefreshIntervals)
    clock_mhz: Annotated[int, Range(1, 10_000, "MHz")] = 1000
    token_depth: Annotated[int, Range(5, 64, "tokens")] = 16

    def __post_init__(self) -> None:
        """Check each parameter, and the rules between them."""
        super().__post_init__()
        require(self.kelle.batch == 1, "batch must be 1 with the AXI shell", self.kelle.batch)
        tokens = self.kelle.step_tokens
        require(tokens == 1, "block must be 1 with the AXI shell", tokens)
        rule = "overflow must be false with the AXI shell"
        require(not self.kelle.overflow, rule, self.kelle.overflow)
        words = max(self.layer_words, self.vocabulary_words)
        require(words <= LONGEST, f"words of a step's weights must be at most {LONGEST}", words)
        # The intervals must be countable at this clock.
        _ = self.settings

    @property
    def settings(self) -> RefreshSettings:
        """Settings of the refresh controllers."""
        return self.intervals.settings(self.kelle.memory.refresh, clock_mhz=self.clock_mhz)

    @property
    def program(self) -> tuple[str, ...]:
        """Instructions, and what they take: scales, kept tokens, rows, and hidden states."""
        return ("instructions", *LOADS, "states")

    @property
    def word_bytes_of_weights(self) -> int:
        """Bytes of a word of weights, without padding."""
        return self.kelle.channel_layout.size // 8

    @property
    def layer_words(self) -> int:
        """Words of a layer's weights."""
        p = self.kelle
        weights = sum(
            p.operations(which)
            * p.head_size
            * (p.intermediate_size if which is Operation.DOWN else p.hidden_size)
            for which in PROJECTIONS
        )
        return weights // (p.weights_per_byte * self.word_bytes_of_weights)

    @property
    def vocabulary_words(self) -> int:
        """Words of the LM head's weights, with the padding of its last operation."""
        p = self.kelle
        weights = p.vocabulary_operations * p.head_size * p.hidden_size
        return weights // (p.weights_per_byte * self.word_bytes_of_weights)

    @property
    def weight_address_bits(self) -> int:
        """Bits of the address of a word of weights."""
        return ceil_log2(self.kelle.layers * self.layer_words + self.vocabulary_words)

    @property
    def slice_bits(self) -> int:
        """Bits of a slice's number in the address of an input."""
        return ceil_log2(self.kelle.hidden_slices)

    @property
    def recent_bits(self) -> int:
        """Bits of a token's number in the address of an input.

        A token's input may be requested while the token is at most `window` tokens old.
        """
        p = self.kelle
        return min(ceil_log2(p.window + 1), p.position_bits)

    @property
    def input_layout(self) -> data.StructLayout:
        """The address of a slice of an input of an attention block."""
        return data.StructLayout(
            {
                "slice": self.slice_bits,
                "token": self.recent_bits,
                "layer": ceil_log2(self.kelle.layers),
            }
        )

    @property
    def address_bits(self) -> int:
        """Bits of an address in words; a part of a program has up to `longest` words."""
        return max(ceil_log2(LONGEST), self.weight_address_bits, self.input_layout.size)

    @property
    def longest(self) -> int:
        """Words of the longest burst."""
        return LONGEST

    @property
    def instruction_layout(self) -> data.StructLayout:
        """An instruction: its command, its layer, and the operands of a load or of a step.

        `words` is the number of words of a load. A step has the `position` of its token, the
        `epsilon` of its norms, and the address of its first word of `weights`. With `follows`, its
        hidden state is the output of the step before it, or else that of the program. With
        `predicts` it computes the LM head.
        """
        p = self.kelle
        return data.StructLayout(
            {
                "command": Command,
                "layer": p.layer_bits,
                "words": range(LONGEST + 1),
                "position": p.position_bits,
                "epsilon": EPSILON_BITS,
                "follows": 1,
                "predicts": 1,
                "weights": self.weight_address_bits,
            }
        )

    @cached_property
    def ports(self) -> tuple[RegionPort, ...]:
        """All burst ports; their order numbers the sources of errors."""
        p = self.kelle
        state = p.slice_layout.size
        return (
            RegionPort("instructions", "instructions", self.instruction_layout.size),
            RegionPort("scales", "scales", Shape.cast(p.array.scales_layout).width),
            RegionPort("prefill", "prefill", prefill_layout(p.eviction).size),
            RegionPort("rows", "rows", p.row_write.size),
            RegionPort("states", "states", state),
            RegionPort("weight_reads", "weights", p.channel_layout.size),
            RegionPort("input_reads", "inputs", state),
            RegionPort("input_writes", "inputs", state, writes=True),
            RegionPort("output_writes", "outputs", state, writes=True),
            RegionPort(
                "placement_writes", "placements", placement_layout(p.eviction).size, writes=True
            ),
        )
