"""The keys and values computed in the current step: those of arriving and of recomputed tokens.

Section 4.1 of the paper: recomputed keys and values are never read from the KV eDRAM.
"""

from amaranth.hdl import Module, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.edram.kv_edram import SIDES, row_of
from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory import Memory
from hdl.unit import Unit


class ComputedRows(Unit):
    """Store computed keys and values slice by slice, and read them as rows of the KV eDRAM.

    **Latency** 1 cycle from a write to its read, and from a read to its row. **Throughput** one
    slice of a key, one slice of a value, and one read per cycle.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    computed_keys, computed_values : In
        A slice of a computed key or value: `vector`, `head`, `part`, `values`.
    read : In
        While `strobe`: read row `word` of the entry of a token's `vector` in a `head`; `side`
        selects keys or values, as in `SIDES`.
    keys, values : Out
        The row read last from each side, held until the next read of that side.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        row = p.memory.edram.row_layout
        read = data.StructLayout(
            {
                "strobe": 1,
                "side": 1,
                "vector": bits_for(p.members - 1),
                "head": p.eviction.head_bits,
                "word": range(max(p.memory.edram.entry_words, 2)),
            }
        )
        super().__init__(
            {
                **{f"computed_{side}": In(p.computed_layout) for side in SIDES},
                "read": In(read),
                **{side: Out(row) for side in SIDES},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build one memory per side."""
        m = Module()
        p, read = self.parameters, self.read
        edram = p.memory.edram
        for number, side in enumerate(SIDES):
            arrives = getattr(self, f"computed_{side}")
            m.submodules[side] = memory = Memory(
                depth=p.members * p.kv_heads * edram.entry_words,
                width=16 * edram.row_channels,
                granularity=p.slice_layout.size,
            )
            word = arrives.part // p.row_slices
            m.d.comb += [
                memory.read_enable.eq(read.strobe & (read.side == number)),
                memory.read_address.eq(self._address(read.vector, read.head, read.word)),
                memory.write_address.eq(self._address(arrives.vector, arrives.head, word)),
                # A row is written slice by slice: the slice is replicated, and one copy is enabled.
                memory.write_data.eq(arrives["values"].as_value().replicate(p.row_slices)),
                memory.write_enable.eq(arrives.strobe << arrives.part % p.row_slices),
            ]
            channels = [memory.read_data.word_select(c, 16) for c in range(edram.row_channels)]
            m.d.comb += getattr(self, side).eq(row_of(edram, channels))
        return m

    def _address(self, vector: Value, head: Value, word: Value) -> Value:
        """Return the address of a row of a token's key or value."""
        p = self.parameters
        return (vector * p.kv_heads + head) * p.memory.edram.entry_words + word
