"""Signals between a board's memory and LiteDRAM's standalone core.

The names are those of LiteDRAM's ``native`` user port and of Wishbone, which the core has.
"""

from amaranth.lib.wiring import In, Out, Signature


class NativeSignature(Signature):
    """LiteDRAM's native port, with directions as seen by its user.

    A command and the data of a write are accepted independently, in any order; commands are
    executed in order. The data of a write must be offered at the latest with its command, and until
    they are accepted. The data of reads arrive in the order of their commands, and cannot be
    refused.

    Parameters
    ----------
    address_bits : int
        Bits of the address of a word.
    data_bytes : int
        Bytes of a word.
    """

    def __init__(self, *, address_bits: int, data_bytes: int) -> None:
        super().__init__(
            {
                "cmd_valid": Out(1),
                "cmd_ready": In(1),
                "cmd_we": Out(1),
                "cmd_addr": Out(address_bits),
                "wdata_valid": Out(1),
                "wdata_ready": In(1),
                "wdata_data": Out(8 * data_bytes),
                "wdata_we": Out(data_bytes),
                "rdata_valid": In(1),
                "rdata_data": In(8 * data_bytes),
            }
        )


class ControlSignature(Signature):
    """Writes of Wishbone to the core's registers; `stb` is also `cyc` and `we`."""

    def __init__(self) -> None:
        super().__init__({"stb": Out(1), "ack": In(1), "adr": Out(30), "dat_w": Out(32)})
