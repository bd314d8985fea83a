"""Register of the first error."""

from amaranth.hdl import Module, Value
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.shell.axi import Cause, error_layout
from hdl.unit import Unit


class ErrorLatch(Unit):
    """Store cause and address of the first error until they are cleared.

    **Latency** 1 cycle.

    Parameters
    ----------
    address_bits : int
        Bits of an address, 12 to 64.

    Members
    -------
    occurs : In(1)
        An error occurs in this cycle.
    cause, address : In(cause), In(address_bits)
        Its cause, which is not NONE, and its byte address; valid with `occurs`.
    clear : In(1)
        Clear the register; an error of the same cycle is stored.
    error : Out(error)
        The first error since the last `clear`; its cause is NONE without an error.

    Raises
    ------
    ValueError
        If `address_bits` is out of range.
    """

    def __init__(self, *, address_bits: int) -> None:
        require_range("address_bits", address_bits, 12, 64)
        super().__init__(
            {
                "occurs": In(1),
                "cause": In(Cause),
                "address": In(address_bits),
                "clear": In(1),
                "error": Out(error_layout(address_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Store an error while there is none."""
        m = Module()
        stored = Value.cast(self.error.cause)
        with m.If(self.clear):
            m.d.sync += stored.eq(Cause.NONE.value)
        # An error in the cycle of `clear` is the first one afterwards.
        with m.If(self.occurs & (self.clear | (stored == Cause.NONE.value))):
            m.d.sync += [
                stored.eq(Value.cast(self.cause)),
                self.error.address.eq(self.address),
            ]
        return m
