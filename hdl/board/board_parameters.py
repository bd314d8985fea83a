"""Dimensions of a board: its accelerator, its memory, and its serial line."""

from typing import Annotated

from hdl.parameters import Parameters, PowerOfTwo, Range, option, parameter_object, require
from hdl.shell.shell_parameters import ShellParameters

LEAST_DIVISOR = 4
"""Least number of cycles per bit: the receiver samples in the middle of a bit."""

BITS_PER_BYTE = 10
"""Bits of a byte on the serial line: a start bit, 8 bits of data, a stop bit."""

BLOCK_BYTES = 1 << 18
"""Most bytes of a memory of block RAM, which takes 128 of the 208 block RAMs of the LFE5U-85F."""

SDRAM_BYTES = 1 << 25
"""Bytes of the SDRAM of the ULX3S: 4 banks of 8192 rows and 512 columns of 16 bits."""


@parameter_object
class BoardParameters(Parameters):
    """Dimensions of a board; they also configure its testbench.

    Parameters
    ----------
    shell : ShellParameters
        Dimensions of the accelerator and of its AXI4 ports.
    memory_bytes : int
        Bytes of the memory, from address 0 of the AXI4 ports on: at most `BLOCK_BYTES` of block
        RAM, or `SDRAM_BYTES` of SDRAM.
    divisor : int
        Clock cycles per bit of the serial line; 25 is 1 Mbaud at 25 MHz.
    silence : int
        Cycles without a byte after which a frame is incomplete; 250,000 are 10 ms at 25 MHz.
    sdram : bool
        The memory is SDRAM instead of block RAM.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    shell: ShellParameters
    memory_bytes: Annotated[int, PowerOfTwo(4096, SDRAM_BYTES, "bytes")] = 1 << 16
    divisor: Annotated[int, Range(LEAST_DIVISOR, 65535, "cycles")] = 25
    silence: Annotated[int, Range(1, (1 << 24) - 1, "cycles")] = 250_000
    sdram: bool = option(default=False)

    def __post_init__(self) -> None:
        """Check each parameter, and the parameters that depend on others."""
        super().__post_init__()
        limits = {"the AXI4 ports": 1 << self.shell.axi_address_bits}
        if not self.sdram:
            limits["block RAM"] = BLOCK_BYTES
        for what, most in limits.items():
            require(
                self.memory_bytes <= most,
                f"memory_bytes must be at most the {most} bytes of {what}",
                self.memory_bytes,
            )
        # A host that sends bytes back to back must not exceed the limit.
        least = 2 * BITS_PER_BYTE * self.divisor
        require(
            self.silence >= least,
            f"silence must be at least {least} cycles, two bytes of the serial line",
            self.silence,
        )
