"""The operand of VEDA's biases: a bias is the weight of an operand that is always one."""

from amaranth.hdl import Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_range
from hdl.unit import Unit


class OnesAhead(Unit):
    """Insert an item with a given code before each group of items of a stream.

    The operands of a matrix's row are a group: the elements of the normalised state, or the slices
    of a vector. The inserted item is multiplied by the row's biases. It needs no earlier result, so
    it is always valid, and it takes the cycle in which the group's first item may still be missing.

    **Latency** 0 cycles. **Throughput** one item per cycle.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    code : int
        The inserted item.
    longest : int
        Maximum number of items of a group.

    Members
    -------
    source : In(stream)
        The items of the groups.
    length : In
        Number of items of the present group; constant from its inserted item to its last one.
    sink : Out(stream)
        The items, with the inserted ones.

    Raises
    ------
    ValueError
        If `longest` is not from 1 to 2**20.
    """

    def __init__(self, *, shape: ShapeLike, code: int, longest: int) -> None:
        require_range("longest", longest, 1, 1 << 20)
        self.shape, self.code, self.longest = shape, code, longest
        items = stream.Signature(shape)
        super().__init__(
            {"source": In(items), "length": In(range(longest + 1)), "sink": Out(items)}
        )

    def elaborate(self, platform: object) -> Module:
        """Count the items of a group; place 0 is that of the inserted item."""
        m = Module()
        source, sink = self.source, self.sink
        place, ahead = Signal(range(self.longest + 1)), Signal()
        m.d.comb += [
            ahead.eq(place == 0),
            sink.valid.eq(ahead | source.valid),
            Value.cast(sink.payload).eq(Mux(ahead, self.code, Value.cast(source.payload))),
            source.ready.eq(sink.ready & ~ahead),
        ]
        with m.If(sink.valid & sink.ready):
            m.d.sync += place.eq(Mux(place == self.length, 0, place + 1))
        return m
