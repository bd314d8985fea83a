"""Converts rows of the KV eDRAM to tiles of the systolic array.

Section 5.1 of the paper: the array's I/O controller combines the data of different banks. An eDRAM
row holds all channels of one token, with both bytes; a tile of the array holds one byte of a few
channels of `rows` tokens.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.edram.kv_edram import HALVES, channels_of
from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory import Memory
from hdl.unit import Unit

BLOCKS = 2
"""Capacity in blocks: one is loaded into the array while the next is read from the eDRAM."""


class BlockStager(Unit):
    """Collect `rows` eDRAM rows, then deliver their tiles: by slice of channels, MSB before LSB.

    **Latency** 2 cycles from a block's last row to its first beat. **Throughput** one row in and
    one beat out per cycle, also from block to block.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    room : Out(1)
        Whether there is room for another block.
    take : In(1)
        Reserve room for all rows of a block; only while `room`.
    write : In
        `strobe` and the next `row` of a reserved block.
    beats : Out(stream)
        Beats of the array's loads.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        row = p.memory.edram.row_layout
        super().__init__(
            {
                "room": Out(1),
                "take": In(1),
                "write": In(data.StructLayout({"strobe": 1, "row": row})),
                "beats": Out(stream.Signature(p.array.array.weights_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Store rows in two alternating blocks, and read the beats of the other block."""
        m = Module()
        p = self.parameters
        beats, slices = p.array.array.load_cycles, p.row_slices
        word = self._in_order_of_use()
        # Two alternating blocks: one is filled while the other is loaded.
        written = Signal(range(p.rows))
        filling = Signal(range(BLOCKS))
        fills = Signal()
        m.d.comb += fills.eq(self.write.strobe & (written == p.rows - 1))
        with m.If(self.write.strobe):
            m.d.sync += written.eq(written + 1)
        with m.If(fills):
            m.d.sync += filling.eq(filling + 1)

        beat = Signal(range(beats))
        part = Signal(range(slices * len(HALVES)))
        emptying = Signal(range(BLOCKS))
        read_part = Signal.like(part, reset_less=True)
        # `taken` counts blocks that are reserved for the fetch, `full` those that are complete.
        full, taken = Signal(range(BLOCKS + 1)), Signal(range(BLOCKS + 1))
        reads, last_beat, empties = Signal(), Signal(), Signal()
        # The memory's output is the stream's register, so the memory is read only when the output
        # may change.
        move = ~self.beats.valid | self.beats.ready
        m.d.comb += [
            reads.eq(move & (full != 0)),
            last_beat.eq(beat == beats - 1),
            empties.eq(reads & last_beat & (part == slices * len(HALVES) - 1)),
            self.room.eq(taken != BLOCKS),
        ]
        m.d.sync += [
            full.eq(full + fills - empties),
            taken.eq(taken + self.take - empties),
        ]
        # A word holds every part of its rows, so a block is read once per part.
        with m.If(move):
            m.d.sync += self.beats.valid.eq(full != 0)
        with m.If(reads):
            m.d.sync += [read_part.eq(part), beat.eq(Mux(last_beat, 0, beat + 1))]
            with m.If(last_beat):
                m.d.sync += part.eq(Mux(empties, 0, part + 1))
        with m.If(empties):
            m.d.sync += emptying.eq(emptying + 1)

        # A beat has one row of each band, so each band has a memory of its own.
        for number, band in enumerate(self.beats.payload):
            memory = Memory(depth=BLOCKS * beats, width=len(word))
            m.submodules[f"band_{number}"] = memory
            m.d.comb += [
                memory.write_enable.eq(self.write.strobe & (written // beats == number)),
                memory.write_address.eq(Cat(written[: beats.bit_length() - 1], filling)),
                memory.write_data.eq(word),
                memory.read_enable.eq(reads),
                memory.read_address.eq(Cat(beat, emptying)),
                band.eq(memory.read_data.word_select(read_part, 8 * p.rows)),
            ]
        return m

    def _in_order_of_use(self) -> Value:
        """Return the bytes of the written row in the order of use: [slice] [MSB, LSB] [channel]."""
        p = self.parameters
        channels = channels_of(p.memory.edram, self.write.row)
        return Cat(
            *(
                channel[8:16] if half == "msb" else channel[0:8]
                for first in range(0, len(channels), p.rows)
                for half in HALVES
                for channel in channels[first : first + p.rows]
            )
        )
