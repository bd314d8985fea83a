"""Signals for values that are used more than once."""

from amaranth.hdl import Module, Signal, Value


def named(m: Module, value: Value, name: str = "signal") -> Signal:
    """Return a value as a signal, so that its uses do not repeat its expression."""
    signal = Signal(value.shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal
