"""Names for what is read more than once."""

from amaranth.hdl import Module, Signal, Value


def named(m: Module, value: Value, name: str = "signal") -> Signal:
    """Return a value as a signal, so that what reads it does not repeat what it is made of."""
    signal = Signal(value.shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal
