"""Slices in pieces, for functions that have fewer lanes than a slice has elements.

Functions that are applied to few of the array's results take a slice in several cycles: they are
complete before the array's next slice, and need a fraction of the multipliers.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data


def count_pieces(m: Module, moves: Value, pieces: int) -> tuple[Value, Value]:
    """Return the number of the piece that is read, and whether it is the slice's last one."""
    piece = Signal(range(pieces))
    ends = piece == pieces - 1
    with m.If(moves):
        m.d.sync += piece.eq(Mux(ends, 0, piece + 1))
    return piece, ends


def piece_of(m: Module, slice_: Value, piece: Value, pieces: int) -> Value:
    """Return the piece of a slice from a memory, which outputs it one cycle later."""
    read_piece = Signal.like(piece, reset_less=True)
    m.d.sync += read_piece.eq(piece)
    return slice_.word_select(read_piece, len(slice_) // pieces)


def collect_pieces(
    m: Module, valid: Value, values: Value, layout: data.ArrayLayout, pieces: int
) -> tuple[Value, data.View]:
    """Hold the first pieces of a slice; return when it is valid, and it, with its last piece."""
    if pieces == 1:
        return valid, data.View(layout, values)
    count, held = Signal(range(pieces)), Signal((pieces - 1) * len(values), reset_less=True)
    slice_ = Signal(layout)
    ends = count == pieces - 1
    m.d.comb += slice_.eq(Cat(held, values))
    with m.If(valid):
        m.d.sync += [
            count.eq(Mux(ends, 0, count + 1)),
            held.eq(slice_.as_value()[len(values) :]),
        ]
    return valid & ends, slice_
