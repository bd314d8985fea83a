"""Start sequence of an SDR SDRAM, written to the registers of LiteDRAM's standalone core."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib.wiring import Out

from hdl.board.sdram_port import ControlSignature
from hdl.parameters import require_range
from hdl.unit import Unit

REGISTERS = {
    "ddrctrl_init_done": 0x000,
    "sdram_dfii_control": 0x800,
    "sdram_dfii_pi0_command": 0x804,
    "sdram_dfii_pi0_command_issue": 0x808,
    "sdram_dfii_pi0_address": 0x80C,
    "sdram_dfii_pi0_baddress": 0x810,
}
"""Byte addresses of the written registers. The core is compared with them when it is generated."""

HARDWARE, CLOCK_ENABLE = 0x1, 0x2
"""Bits of `sdram_dfii_control`: the controller has the pins; the chip's clock is enabled."""

CS, WE, CAS, RAS = 0x1, 0x2, 0x4, 0x8
"""Bits of `sdram_dfii_pi0_command`: pins that a command sets to 0."""

ALL_BANKS = 0x400
"""Address of a precharge of all banks."""

MODE = 0x020
"""Mode register: CAS latency of 2 cycles, bursts of one word."""

REFRESHES = 8
"""Auto-refresh commands; chips need 2 or 8."""

PAUSE_CYCLES = 4
"""Cycles after each write, to which those of Wishbone are added: more than tRFC at 25 MHz."""


def start_writes() -> list[tuple[str, int]]:
    """Return the registers and values in the order of the writes; the first precedes the pause."""
    issue = ("sdram_dfii_pi0_command_issue", 1)
    return [
        ("sdram_dfii_control", CLOCK_ENABLE),
        ("sdram_dfii_pi0_address", ALL_BANKS),
        ("sdram_dfii_pi0_baddress", 0),
        ("sdram_dfii_pi0_command", RAS | WE | CS),
        issue,
        ("sdram_dfii_pi0_command", RAS | CAS | CS),
        *[issue] * REFRESHES,
        ("sdram_dfii_pi0_address", MODE),
        ("sdram_dfii_pi0_command", RAS | CAS | WE | CS),
        issue,
        ("sdram_dfii_control", HARDWARE),
        ("ddrctrl_init_done", 1),
    ]


class SdramStart(Unit):
    """Write the start sequence once after a reset: pause, precharge, refreshes, mode register.

    The last write enables the native port, so that its users need not know of the sequence.

    **Latency** `pause` cycles and about 200 cycles.

    Parameters
    ----------
    pause : int
        Cycles without a command after the clock is stable, 2 to 2**20 - 1.

    Members
    -------
    control : Out(ControlSignature)
        The core's registers.

    Raises
    ------
    ValueError
        If `pause` is out of range.
    """

    def __init__(self, *, pause: int) -> None:
        require_range("pause", pause, 2, (1 << 20) - 1)
        self.pause = pause
        super().__init__({"control": Out(ControlSignature())})

    def elaborate(self, platform: object) -> Module:
        """Write the entries of the sequence, with a pause after each."""
        m = Module()
        writes, control = start_writes(), self.control
        number, wait = Signal(range(len(writes) + 1)), Signal(range(max(self.pause, PAUSE_CYCLES)))
        words = [REGISTERS[name] // 4 for name, _value in writes]
        m.d.comb += [
            control.stb.eq((wait == 0) & (number != len(writes))),
            control.adr.eq(Array([*words, 0])[number]),
            control.dat_w.eq(Array([*(value for _name, value in writes), 0])[number]),
        ]
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.Elif(control.stb & control.ack):
            m.d.sync += [number.eq(number + 1), wait.eq(PAUSE_CYCLES - 1)]
            with m.If(number == 0):
                m.d.sync += wait.eq(self.pause - 1)
        return m
