"""The first error of several masters."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.shell.axi import Cause, error_layout
from hdl.shell.register_map import AxiRegistersParameters
from hdl.unit import Unit


class FirstError(Unit):
    """Store the first error of several sources, each of which holds its own first error.

    Errors of one cycle resolve to the lowest source.

    **Latency** 1 cycle.

    Parameters
    ----------
    parameters : AxiRegistersParameters
        Number of sources.

    Members
    -------
    errors : In(errors)
        The error of each source, which the source holds until the cycle after `clear`.
    clear : In(1)
        Clear the stored error.
    valid : Out(1)
        An error is stored.
    error, source : Out(error), Out(5)
        Its cause and its 64-bit byte address; the number of its source.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `AxiRegistersParameters`.
    """

    def __init__(self, *, parameters: AxiRegistersParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "errors": In(parameters.errors_layout),
                "clear": In(1),
                "valid": Out(1),
                "error": Out(error_layout(64)),
                "source": Out(5),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Search the lowest source with an error while none is stored."""
        m = Module()
        cause, address, source = Signal(2), Signal(64), Signal(5)
        # The last assignment has priority: it is that of the lowest source.
        for number in reversed(range(self.parameters.sources)):
            one = self.errors[number]
            with m.If(Value.cast(one.cause) != Cause.NONE.value):
                m.d.comb += [
                    cause.eq(Value.cast(one.cause)),
                    address.eq(one.address),
                    source.eq(number),
                ]
        stored = Value.cast(self.error.cause)
        m.d.comb += self.valid.eq(stored != Cause.NONE.value)
        with m.If(self.clear):
            # In this cycle the sources still hold the errors that are cleared.
            m.d.sync += stored.eq(Cause.NONE.value)
        with m.Elif(~self.valid):
            m.d.sync += [stored.eq(cause), self.error.address.eq(address), self.source.eq(source)]
        return m
