"""Address generators of the changes that LAD stores of its heads."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.shell.head_places import mark_place, place_of, position_place
from hdl.shell.lad_axi_parameters import LadAxiParameters
from hdl.shell.word_writer import WordWriter
from hdl.stream.connect import connect_handshake, connect_streams
from hdl.unit import Unit

PORTS = ("row_writes", "centre_writes", "mark_writes", "counter_writes", "cache_writes")
"""Ports of the changes."""


class HeadWrites(Unit):
    """Write keys, values, parts of G, counters and caches to memory.

    Each word is a burst of its own: no burst at a port waits for a word that LAD computes from
    later reads.

    **Latency** 0 cycles. **Throughput** one word per cycle and port.

    Parameters
    ----------
    parameters : LadAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    appends, centres, marks, counters, columns : In(stream)
        As in `Lad`.
    <port> : Out(BurstWritePort)
        Each of `PORTS`.
    row_writes_region : Out(1)
        The region of the port's request: 0 for keys, 1 for values.
    """

    def __init__(self, *, parameters: LadAxiParameters) -> None:
        self.parameters = p = parameters
        tile, named = p.lad.tile, p.lad.shared_tiles.named
        changes = {
            "appends": tile.append_layout,
            "centres": tile.centre_layout,
            "marks": tile.marks_layout,
            "counters": tile.counters_layout,
            "columns": tile.column_layout,
        }
        ports = p.core_ports()
        super().__init__(
            {
                **{name: In(stream.Signature(named(layout))) for name, layout in changes.items()},
                **{name: ports[name] for name in PORTS},
                "row_writes_region": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect each kind of change to its port."""
        m = Module()
        p = self.parameters
        self._append(m)
        centre = self.centres.payload
        position = {name: getattr(centre, name) for name in p.position_layout.members}
        self._write(
            m,
            self.centres,
            "centre_writes",
            position_place(p, centre),
            Cat(
                _filled(position[name], p.position_layout[name].width)
                for name in p.position_layout.members
            ),
        )
        mark = self.marks.payload
        word = Cat(Value.cast(mark.modes), Value.cast(mark.counts))
        self._write(m, self.marks, "mark_writes", mark_place(p, mark), word)
        counters = self.counters.payload
        place = place_of(p.row_layout, counters, counters.position)
        word = Value.cast(counters.counters)
        self._write(m, self.counters, "counter_writes", place, word)
        # The columns of a head have no number, and those of several tiles alternate.
        column = self.columns.payload
        numbers = Array(
            Signal(range(p.lad.tile.ac.columns), name=f"column_{number}")
            for number in range(p.lad.tiles)
        )
        place = place_of(p.column_layout, column, numbers[column.tile])
        self._write(m, self.columns, "cache_writes", place, Value.cast(column.word))
        with m.If(self.columns.valid & self.columns.ready):
            m.d.sync += numbers[column.tile].eq(Mux(column.last, 0, numbers[column.tile] + 1))
        return m

    def _append(self, m: Module) -> None:
        """Write the key, then the value of a position."""
        append = self.appends.payload
        value, rows = Signal(), stream.Signature(len(Value.cast(append.key))).create(path=("rows",))
        word = Mux(value, Value.cast(append.value), Value.cast(append.key))
        m.d.comb += [
            rows.valid.eq(self.appends.valid),
            self.appends.ready.eq(rows.ready & value),
            self.row_writes_region.eq(value),
        ]
        # Key and value have the same address in their regions.
        place = place_of(self.parameters.row_layout, append, append.position)
        self._write(m, rows, "row_writes", place, word)
        with m.If(rows.valid & rows.ready):
            m.d.sync += value.eq(~value)

    def _write(
        self, m: Module, source: stream.Interface, name: str, place: Value, word: Value
    ) -> None:
        """Write a word for each item of a stream."""
        p, port = self.parameters, getattr(self, name)
        bits = len(Value.cast(port.words.payload.word))
        m.submodules[f"{name}_writer"] = writer = WordWriter(
            address_bits=p.address_bits, longest=p.longest, shape=bits
        )
        connect_handshake(m, source, writer.items)
        m.d.comb += writer.items.payload.eq(word)
        connect_streams(m, writer.port.requests, port.requests)
        connect_streams(m, writer.port.words, port.words)
        m.d.comb += port.requests.payload.address.eq(place)


def _filled(value: Value, width: int) -> Value:
    """Return a value with zeros above it, up to a number of bits."""
    value = Value.cast(value)
    return Cat(value, Signal(width - len(value)))
