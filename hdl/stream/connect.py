"""Links between streams: one to one, one to several, several to one."""

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

from amaranth.hdl import Const, Module, Value

from hdl.stream.fifo import Fifo


def connect_streams(m: Module, source: Any, sink: Any) -> None:
    """Let `sink` take what `source` offers."""
    m.d.comb += [
        sink.payload.eq(source.payload),
        sink.valid.eq(source.valid),
        source.ready.eq(sink.ready),
    ]


def connect_registered(m: Module, source: Any, sink: Any) -> None:
    """Let `sink` take what `source` offers a cycle later, out of registers."""
    m.d.comb += source.ready.eq(~sink.valid | sink.ready)
    with m.If(source.ready):
        m.d.sync += [sink.valid.eq(source.valid), sink.payload.eq(source.payload)]


def buffered(m: Module, name: str, source: Any, *, depth: int) -> Any:
    """Return `source` behind a small FIFO, which is the submodule `name`.

    The FIFO's ready does not depend on whether its reader is ready: so it cuts the path by which
    one consumer's waiting would decide, in the same cycle, whether others move.
    """
    m.submodules[name] = fifo = Fifo(shape=source.payload.shape(), depth=depth)
    connect_streams(m, source, fifo.source)
    return fifo.sink


def every(bits: Sequence[Value]) -> Value:
    """Return whether all bits are 1; also of none."""
    return reduce(and_, bits, Const(1, 1))


def fork_handshake(m: Module, valid: Value, sinks: Sequence[Any]) -> Value:
    """Offer to all sinks at once, to each only when the others are ready; return their ready.

    The sinks' ready must not depend on their valid.
    """
    for sink in sinks:
        others = every([other.ready for other in sinks if other is not sink])
        m.d.comb += sink.valid.eq(valid & others)
    return every([sink.ready for sink in sinks])


def join_handshake(m: Module, sources: Sequence[Any], ready: Value) -> Value:
    """Take from all sources at once; return whether all of them offer."""
    valid = every([source.valid for source in sources])
    for source in sources:
        m.d.comb += source.ready.eq(ready & valid)
    return valid
