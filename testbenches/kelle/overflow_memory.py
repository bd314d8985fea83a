"""Off-chip memory for the keys and values of the heads that do not fit into the KV eDRAM."""

from collections.abc import Sequence

import numpy as np

from golden.kelle.edram.kv_edram import rows_of
from golden.kelle.kelle import Integers, Step
from hdl.kelle.parameters import KelleParameters
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.streams import StreamSink, StreamSource


class OverflowMemory:
    """Stores rows, and answers the reads of an accelerator in order.

    Parameters
    ----------
    p : KelleParameters
        Dimensions of the accelerator, with `overflow`.
    rows : StreamSource
        The rows read.
    reads, writes : StreamSink
        Places to read, and rows to write.

    Members
    -------
    read : list[tuple[int, int]]
        Side and address of every read.
    """

    def __init__(
        self, p: KelleParameters, rows: StreamSource, reads: StreamSink, writes: StreamSink
    ) -> None:
        self.p, self._rows, self._reads, self._writes = p, rows, reads, writes
        self.clear()

    def clear(self) -> None:
        """Discard all rows and records."""
        self._held: dict[tuple[int, int], int] = {}
        self.read: list[tuple[int, int]] = []
        self._written = 0

    def store(self, head: int, slot: int, keys: Integers, values: Integers) -> None:
        """Store the key and the value [head_size] of a slot of a head, counted over all layers."""
        p, edram = self.p, self.p.memory.edram
        first = ((head - p.resident_heads) * p.slots + slot) * p.entry_words
        for side, vector in enumerate((keys, values)):
            packed = to_integers(pack(edram.row_layout, rows_of(vector[np.newaxis], edram)[0]))
            for word, row in enumerate(packed):
                self._held[side, first + word] = row

    def drive(self) -> None:
        """Take the writes of earlier cycles, then answer the reads."""
        layout = self.p.overflow_layout
        write_bits = layout.size
        for _cycle, payload in self._writes.received[self._written :]:
            self._held[self._place(payload & ((1 << write_bits) - 1))] = payload >> write_bits
            self._written += 1
        for _cycle, payload in self._reads.received[len(self.read) :]:
            place = self._place(payload)
            self.read.append(place)
            self._rows.send([self._held[place]])

    def sample(self) -> None:
        """Record nothing: the streams record."""

    def _place(self, payload: int) -> tuple[int, int]:
        """Return side and address."""
        layout = self.p.overflow_layout
        shown = unpack(layout, from_integers([payload], layout.size))
        return int(shown["side"][0]), int(shown["address"][0])


def expected_reads(p: KelleParameters, steps: Sequence[tuple[int, Step]], side: int) -> Integers:
    """Return the addresses that steps read on a side, in order; each step with its cache."""
    places = [np.zeros(0, np.int64)]
    for cache, step in steps:
        for head, fetched in enumerate(step.fetched):
            number = cache * p.kv_heads + head - p.resident_heads
            if number >= 0:
                slots = fetched[side]
                tiles = [slots[slots // p.rows == tile] for tile in range(p.cache_tiles)]
                places += [
                    (number * p.slots + own) * p.entry_words + word
                    for own in tiles
                    for word in range(p.entry_words)
                ]
    return np.concatenate(places)
