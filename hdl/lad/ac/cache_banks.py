"""On-chip memories of the intermediate caches A to F, double-buffered between steps."""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.memory.memory import Memory
from hdl.unit import Unit

HALVES = 2


@dataclass(frozen=True)
class _Column:
    """The column that is transferred next: its lane, its group, and whether it is the last one."""

    lane: Signal
    group: Signal
    last: Value


class CacheBanks(Unit):
    """Store the columns of two steps; lane l has columns l, l + 3, l + 6, ...

    Each half of the memories is loaded, processed and written out; it then takes the caches of the
    step after the next one. While one half is processed, the other one is written out and loaded
    again.

    **Latency** 1 cycle from read to words. **Throughput** one group of columns read and one written
    per cycle; in parallel one column loaded and one written out per cycle.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Number and width of the columns, and the lanes.

    Members
    -------
    caches : In(stream)
        The `word` of each column of the next step, in order.
    updated : Out(stream)
        The `word` of each column after the step, in order.
    loaded : Out(1)
        The caches of the next step are complete and can be processed.
    done : In(1)
        The step has been processed; its caches can be written out.
    read, read_group : In
        Read the group `read_group` of the half that is processed.
    words : Out(ArrayLayout(word, lanes))
        The words of the group, one cycle after `read`.
    write : In(lanes)
        Write the words of these lanes.
    write_group : In
        The group to write.
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
                "done": In(1),
                "read": In(1),
                "read_group": In(p.group_shape),
                "words": Out(words),
                "write": In(p.lanes),
                "write_group": In(p.group_shape),
                "written": In(words),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Assign the halves to load, processing and write-out in alternation."""
        m = Module()
        p = self.parameters
        full, stale = Signal(HALVES), Signal(HALVES)
        # Load, processing and write-out alternate between the halves, and check a half's state.
        loads, works, stores = (Signal(range(HALVES), name=name) for name in ("in", "at", "out"))
        free, ends = ~self.updated.valid | self.updated.ready, Signal()
        loading, storing, shown = Signal(), Signal(), Signal(range(p.lanes))
        loaded = self._count(m, "load", loading)
        stored = self._count(m, "store", storing)
        m.d.comb += [
            self.caches.ready.eq(~(full | stale).bit_select(loads, 1)),
            loading.eq(self.caches.valid & self.caches.ready),
            self.loaded.eq(full.bit_select(works, 1)),
            storing.eq(stale.bit_select(stores, 1) & free & ~ends),
        ]
        with m.If(loading & loaded.last):
            m.d.sync += [full.bit_select(loads, 1).eq(1), loads.eq(~loads)]
        with m.If(self.done):
            m.d.sync += [
                full.bit_select(works, 1).eq(0),
                stale.bit_select(works, 1).eq(1),
                works.eq(~works),
            ]
        with m.If(free):
            m.d.sync += [self.updated.valid.eq(storing), ends.eq(storing & stored.last)]
            # The last word is at the memory's output; its transfer frees the half.
            with m.If(ends):
                m.d.sync += [stale.bit_select(stores, 1).eq(0), stores.eq(~stores)]
        with m.If(storing):
            m.d.sync += shown.eq(stored.lane)

        outputs = []
        for half in range(HALVES):
            for lane in range(p.lanes):
                m.submodules[f"bank_{half}_{lane}"] = bank = Memory(
                    depth=max(p.groups, 2), width=p.word_layout.size
                )
                # Each half has one user at a time, to which its ports are switched.
                worked = (works == half) & full[half]
                given = storing & (stores == half) & (stored.lane == lane)
                taken = loading & (loads == half) & (loaded.lane == lane)
                word = Mux(worked, self.written[lane], Value.cast(self.caches.payload.word))
                m.d.comb += [
                    bank.read_enable.eq(Mux(worked, self.read, given)),
                    bank.read_address.eq(Mux(worked, self.read_group, stored.group)),
                    bank.write_enable.eq(Mux(worked, self.write[lane], taken)),
                    bank.write_address.eq(Mux(worked, self.write_group, loaded.group)),
                    bank.write_data.eq(word),
                ]
                outputs.append(bank.read_data)
        halves = [outputs[: p.lanes], outputs[p.lanes :]]
        m.d.comb += [
            Value.cast(self.words).eq(Mux(works == 0, Cat(halves[0]), Cat(halves[1]))),
            Value.cast(self.updated.payload.word).eq(
                Mux(stores == 0, Array(halves[0])[shown], Array(halves[1])[shown])
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
