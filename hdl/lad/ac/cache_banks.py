"""On-chip memories of the intermediate caches A to F, with buffers for three steps."""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.memory.memory import Memory
from hdl.unit import Unit

BUFFERS = 3
"""Two steps are processed: the columns of one are read while those of the other are updated."""


@dataclass(frozen=True)
class _Column:
    """The column that is transferred next: its lane, its group, and whether it is the last one."""

    lane: Signal
    group: Signal
    last: Value


class CacheBanks(Unit):
    """Store the columns of three steps; lane l has columns l, l + 3, l + 6, ...

    Each buffer is loaded, read, updated and written out, in this order. While the columns of a
    buffer are written out, those of a later step are loaded into it, one column later.

    **Latency** 1 cycle from read to words. **Throughput** a group of columns read, another one
    updated, one column loaded and one written out per cycle, each in another buffer.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Number and width of the columns, and the lanes.

    Members
    -------
    caches : In(stream)
        The `word` of each column of a step, in order.
    updated : Out(stream)
        The `word` of each column after the step, in order.
    loaded : Out(1)
        The caches of the next step are complete and can be read.
    begin : In(1)
        The step begins: from the next cycle on, `read` applies to it.
    done : In(1)
        The oldest step has been processed; its caches can be written out.
    read, read_group : In
        Read this group of columns of the latest step.
    words : Out(ArrayLayout(word, lanes))
        The columns, one cycle later.
    fetch, fetch_group : In
        Read this group of columns of the oldest step, to update it.
    fetched : Out(ArrayLayout(word, lanes))
        The columns, one cycle later.
    write, write_group : In
        The lanes of the oldest step to write, and their group.
    written : In(ArrayLayout(word, lanes))
        The words to write.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = p = parameters
        words = data.ArrayLayout(p.word_layout.size, p.lanes)
        super().__init__(
            {
                "caches": In(stream.Signature(p.cache_layout)),
                "updated": Out(stream.Signature(p.cache_layout)),
                "loaded": Out(1),
                "begin": In(1),
                "done": In(1),
                "read": In(1),
                "read_group": In(p.group_shape),
                "words": Out(words),
                "fetch": In(1),
                "fetch_group": In(p.group_shape),
                "fetched": Out(words),
                "write": In(p.lanes),
                "write_group": In(p.group_shape),
                "written": In(words),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Assign the buffers to load, reads, update and write-out in rotation."""
        m = Module()
        p = self.parameters
        full, stale = Signal(BUFFERS), Signal(BUFFERS)
        # Each user takes the buffers in rotation, and checks a buffer's state.
        loads, reads, works, stores = (
            Signal(range(BUFFERS), name=name) for name in ("in", "next", "at", "out")
        )
        current = Signal(range(BUFFERS))
        free, ends = ~self.updated.valid | self.updated.ready, Signal()
        loading, storing, shown = Signal(), Signal(), Signal(range(p.lanes))
        loaded = self._count(m, "load", loading)
        stored = self._count(m, "store", storing)
        # A column is loaded after the old one has been read; the last old one can wait at the
        # memory's output, which a write does not change.
        read_out = ends | (Cat(loaded.lane, loaded.group) < Cat(stored.lane, stored.group))
        vacated = ~stale.bit_select(loads, 1) | ((stores == loads) & read_out)
        m.d.comb += [
            self.caches.ready.eq(~full.bit_select(loads, 1) & vacated),
            loading.eq(self.caches.valid & self.caches.ready),
            self.loaded.eq((full & ~stale).bit_select(reads, 1)),
            storing.eq(stale.bit_select(stores, 1) & free & ~ends),
        ]
        with m.If(loading & loaded.last):
            m.d.sync += [full.bit_select(loads, 1).eq(1), loads.eq(_following(loads))]
        with m.If(self.begin):
            m.d.sync += [current.eq(reads), reads.eq(_following(reads))]
        with m.If(self.done):
            m.d.sync += [
                full.bit_select(works, 1).eq(0),
                stale.bit_select(works, 1).eq(1),
                works.eq(_following(works)),
            ]
        with m.If(free):
            m.d.sync += [self.updated.valid.eq(storing), ends.eq(storing & stored.last)]
            # The last word is at the memory's output; its transfer frees the buffer.
            with m.If(ends):
                m.d.sync += [stale.bit_select(stores, 1).eq(0), stores.eq(_following(stores))]
        with m.If(storing):
            m.d.sync += shown.eq(stored.lane)

        outputs = []
        for buffer in range(BUFFERS):
            for lane in range(p.lanes):
                m.submodules[f"bank_{buffer}_{lane}"] = bank = Memory(
                    depth=max(p.groups, 2), width=p.word_layout.size
                )
                # A buffer is read by one user at a time, and written by one.
                passed = self.read & (current == buffer)
                worked = (works == buffer) & full[buffer]
                given = storing & (stores == buffer) & (stored.lane == lane)
                taken = loading & (loads == buffer) & (loaded.lane == lane)
                word = Mux(worked, self.written[lane], Value.cast(self.caches.payload.word))
                m.d.comb += [
                    bank.read_enable.eq(passed | Mux(worked, self.fetch, given)),
                    bank.read_address.eq(
                        Mux(
                            passed,
                            self.read_group,
                            Mux(worked, self.fetch_group, stored.group),
                        )
                    ),
                    bank.write_enable.eq(Mux(worked, self.write[lane], taken)),
                    bank.write_address.eq(Mux(worked, self.write_group, loaded.group)),
                    bank.write_data.eq(word),
                ]
                outputs.append(bank.read_data)
        buffers = [outputs[p.lanes * buffer :][: p.lanes] for buffer in range(BUFFERS)]
        groups = Array(Cat(*one) for one in buffers)
        m.d.comb += [
            Value.cast(self.words).eq(groups[current]),
            Value.cast(self.fetched).eq(groups[works]),
            Value.cast(self.updated.payload.word).eq(
                Array(Array(one)[shown] for one in buffers)[stores]
            ),
        ]
        return m

    def _count(self, m: Module, name: str, moves: Value) -> _Column:
        """Count through the columns; lane and group are counted, not divided."""
        p = self.parameters
        lane, group = (
            Signal(range(size), name=f"{name}_{part}")
            for part, size in (("lane", p.lanes), ("group", p.groups))
        )
        last = (group == p.groups - 1) & (lane == (p.columns - 1) % p.lanes)
        with m.If(moves):
            m.d.sync += lane.eq(Mux(last | (lane == p.lanes - 1), 0, lane + 1))
            with m.If(last | (lane == p.lanes - 1)):
                m.d.sync += group.eq(Mux(last, 0, group + 1))
        return _Column(lane, group, last)


def _following(buffer: Value) -> Value:
    """Return the next buffer of the rotation."""
    return Mux(buffer == BUFFERS - 1, 0, buffer + 1)
