"""On-chip memories of the intermediate caches A to F, double-buffered between steps."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.memory.memory import Memory
from hdl.unit import Unit

HALVES = 2


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
        # The group number needs at least one bit, also where there is one group only.
        group = range(max(p.groups, 2))
        super().__init__(
            {
                "caches": In(stream.Signature(p.cache_layout)),
                "updated": Out(stream.Signature(p.cache_layout)),
                "loaded": Out(1),
                "done": In(1),
                "read": In(1),
                "read_group": In(group),
                "words": Out(words),
                "write": In(p.lanes),
                "write_group": In(group),
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
        comes, leaves, shown = Signal(), Signal(), Signal(range(p.lanes))
        lane_in, group_in, last_in = self._count(m, "load", comes)
        lane_out, group_out, last_out = self._count(m, "store", leaves)
        m.d.comb += [
            self.caches.ready.eq(~(full | stale).bit_select(loads, 1)),
            comes.eq(self.caches.valid & self.caches.ready),
            self.loaded.eq(full.bit_select(works, 1)),
            leaves.eq(stale.bit_select(stores, 1) & free & ~ends),
        ]
        with m.If(comes & last_in):
            m.d.sync += [full.bit_select(loads, 1).eq(1), loads.eq(~loads)]
        with m.If(self.done):
            m.d.sync += [
                full.bit_select(works, 1).eq(0),
                stale.bit_select(works, 1).eq(1),
                works.eq(~works),
            ]
        with m.If(free):
            m.d.sync += [self.updated.valid.eq(leaves), ends.eq(leaves & last_out)]
            # The last word is at the memory's output; its transfer frees the half.
            with m.If(ends):
                m.d.sync += [stale.bit_select(stores, 1).eq(0), stores.eq(~stores)]
        with m.If(leaves):
            m.d.sync += shown.eq(lane_out)

        outputs = []
        for half in range(HALVES):
            for lane in range(p.lanes):
                m.submodules[f"bank_{half}_{lane}"] = bank = Memory(
                    depth=max(p.groups, 2), width=p.word_layout.size
                )
                # Each half has one user at a time, to which its ports are switched.
                worked = (works == half) & full[half]
                given = leaves & (stores == half) & (lane_out == lane)
                taken = comes & (loads == half) & (lane_in == lane)
                word = Mux(worked, self.written[lane], Value.cast(self.caches.payload.word))
                m.d.comb += [
                    bank.read_enable.eq(Mux(worked, self.read, given)),
                    bank.read_address.eq(Mux(worked, self.read_group, group_out)),
                    bank.write_enable.eq(Mux(worked, self.write[lane], taken)),
                    bank.write_address.eq(Mux(worked, self.write_group, group_in)),
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

    def _count(self, m: Module, name: str, moves: Value) -> tuple[Signal, Signal, Value]:
        """Return a column's lane and group, counted and not divided, and whether it is the last."""
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
        return lane, group, last
