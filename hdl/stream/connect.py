"""Connections of streams: one to one, one to many, many to one."""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from amaranth.hdl import Const, Module, Mux, Value
from amaranth.lib import stream

from hdl.stream.fifo import Fifo


def connect_streams(m: Module, source: stream.Interface, sink: stream.Interface) -> None:
    """Connect `source` to `sink` combinationally."""
    m.d.comb += sink.payload.eq(source.payload)
    connect_handshake(m, source, sink)


def connect_handshake(m: Module, source: stream.Interface, sink: stream.Interface) -> None:
    """Connect the handshake of `source` to that of `sink`; the caller drives the payload."""
    m.d.comb += [sink.valid.eq(source.valid), source.ready.eq(sink.ready)]


def connect_prioritised(
    m: Module, sources: Sequence[stream.Interface], sink: stream.Interface
) -> None:
    """Connect several sources to `sink` combinationally; of the valid ones, the first transfers.

    A source with priority may replace the item that another one offers.
    """
    taken: Value = Const(0, 1)
    for source in sources:
        m.d.comb += source.ready.eq(sink.ready & ~taken)
        taken |= source.valid
    payload = Value.cast(sources[-1].payload)
    for source in reversed(sources[:-1]):
        payload = Mux(source.valid, Value.cast(source.payload), payload)
    m.d.comb += [sink.valid.eq(taken), Value.cast(sink.payload).eq(payload)]


def connect_registered(m: Module, source: stream.Interface, sink: stream.Interface) -> None:
    """Connect `source` to `sink` through one register stage."""
    m.d.comb += source.ready.eq(~sink.valid | sink.ready)
    with m.If(source.ready):
        m.d.sync += [sink.valid.eq(source.valid), sink.payload.eq(source.payload)]


def buffered(m: Module, name: str, source: stream.Interface, *, depth: int) -> stream.Interface:
    """Return the output of a small FIFO fed by `source`, instantiated as submodule `name`.

    The FIFO's `source.ready` does not depend on its `sink.ready`. So the FIFO cuts the
    combinational path by which one stalled consumer would stall others in the same cycle.
    """
    m.submodules[name] = fifo = Fifo(shape=source.payload.shape(), depth=depth)
    connect_streams(m, source, fifo.source)
    return fifo.sink


def every(bits: Sequence[Value]) -> Value:
    """Return whether all bits are 1; 1 for an empty sequence."""
    return reduce(and_, bits, Const(1, 1))


def fork_handshake(m: Module, valid: Value, sinks: Sequence[stream.Interface]) -> Value:
    """Fork one handshake to all sinks, which transfer in the same cycle; return their joint ready.

    `ready` of a sink must not depend on its `valid`.
    """
    for sink in sinks:
        others = every([other.ready for other in sinks if other is not sink])
        m.d.comb += sink.valid.eq(valid & others)
    return every([sink.ready for sink in sinks])


def join_handshake(m: Module, sources: Sequence[stream.Interface], ready: Value) -> Value:
    """Join all sources' handshakes, which transfer in the same cycle; return their joint valid."""
    valid = every([source.valid for source in sources])
    for source in sources:
        m.d.comb += source.ready.eq(ready & valid)
    return valid
