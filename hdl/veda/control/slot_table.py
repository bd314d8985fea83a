"""VEDA's slot table: where the next token of each layer goes."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.memory.memory import Memory
from hdl.stream.fifo import Fifo
from hdl.unit import Unit
from hdl.veda.parameters import VedaParameters
from hdl.veda.veda_kinds import SlotState

EVICTIONS_UNDER_WAY = 4
"""Layers whose victims may be looked for at a time."""


class SlotTable(Unit):
    """Give each arriving token its slot, and note each layer's victim for the token after it.

    A layer's tokens fill its slots from 0 on; once a victim is known, the next token takes its slot
    instead, and the number of cached tokens stays. The table is its own scoreboard: an instruction
    whose layer still waits for its victim waits too. Several victims at a time, at the end of a
    prefill, are only passed on: whoever moves the tokens that are left loads the layer anew.

    **Latency** 1 cycle from an instruction to its task. **Throughput** one instruction in 2 cycles.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions.

    Members
    -------
    instructions : In(stream)
        As in `Scheduler`. The tokens behind the first of a block fill slots.
    tasks : Out(stream)
        The instruction with its first token's `slot`, and its `length`, this token included.
    victims : In(stream)
        From the voting engine, as many for each instruction as it evicts.
    evictions : Out(stream)
        The slots of those found, with their layers.
    overflow : Out(1)
        A token came when all slots were taken: it took the last. Stays until reset.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "instructions": In(stream.Signature(p.instruction_layout)),
                "tasks": Out(stream.Signature(p.task_layout)),
                "victims": In(stream.Signature(p.voting.victim_layout)),
                "evictions": Out(stream.Signature(p.eviction_layout)),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Read the layer's entry until it waits for nothing, then write what follows from it."""
        m = Module()
        p = self.parameters
        entry_layout = p.entry_layout
        m.submodules.entries = entries = Memory(depth=p.layers, width=entry_layout.size)
        searching = data.StructLayout(
            {"layer": p.layer_bits, "length": p.length_shape, "evictions": p.length_shape}
        )
        m.submodules.searches = searches = Fifo(shape=searching, depth=EVICTIONS_UNDER_WAY)
        instruction, task = self.instructions.payload, self.tasks.payload

        looked_up = Signal()
        entry = Signal(entry_layout)
        known, full, overflows, takes_victim = Signal(), Signal(), Signal(), Signal()
        reaches, after = Signal(range(p.capacity + p.block + 1)), Signal(p.length_shape)
        evicts, replaces = instruction.evictions != 0, instruction.evictions == 1
        m.d.comb += [
            entries.read_enable.eq(1),
            entries.read_address.eq(instruction.layer),
            entry.eq(entries.read_data),
        ]
        with m.If(instruction.load):
            m.d.comb += [entry.length.eq(instruction.length), entry.state.eq(SlotState.APPEND)]
        m.d.comb += [
            takes_victim.eq(entry.state == SlotState.VICTIM),
            known.eq(looked_up & (entry.state != SlotState.WAITING)),
            full.eq(~takes_victim & (entry.length >= p.capacity)),
            reaches.eq(entry.length + instruction.last_token + ~takes_victim),
            overflows.eq(reaches > p.capacity),
            after.eq(Mux(overflows, p.capacity, reaches)),
            *(
                task[name].eq(instruction[name])
                for name in (
                    *("operation", "layer", "last_token", "vote"),
                    *("evictions", "position", "leave"),
                )
            ),
            task.slot.eq(Mux(takes_victim, entry.slot, Mux(full, p.capacity - 1, entry.length))),
            task.length.eq(
                Mux(full, p.capacity, Mux(takes_victim, entry.length, entry.length + 1))
            ),
            self.tasks.valid.eq(
                self.instructions.valid & known & (searches.source.ready | ~evicts)
            ),
            self.instructions.ready.eq(self.tasks.ready & self.tasks.valid),
        ]
        m.d.sync += looked_up.eq(self.instructions.valid & ~self.instructions.ready)
        taken = self.tasks.valid & self.tasks.ready
        m.d.comb += [
            searches.source.valid.eq(taken & evicts),
            searches.source.payload.layer.eq(instruction.layer),
            searches.source.payload.length.eq(after),
            searches.source.payload.evictions.eq(instruction.evictions),
        ]
        with m.If(taken & overflows):
            m.d.sync += self.overflow.eq(1)

        # A victim waits for the one cycle in which an instruction writes.
        search, evictions = searches.sink.payload, self.evictions
        victim = self.victims.payload
        named, last, new = Signal(), Signal(), Signal(entry_layout)
        count = Signal(p.length_shape)
        with m.If(named):
            m.d.sync += [
                count.eq(Mux(last, 0, count + 1)),
                evictions.valid.eq(victim.found),
                evictions.payload.layer.eq(search.layer),
                evictions.payload.slot.eq(victim.slot),
            ]
        with m.Elif(evictions.ready):
            m.d.sync += evictions.valid.eq(0)
        m.d.comb += [
            self.victims.ready.eq(
                searches.sink.valid & ~taken & (~evictions.valid | evictions.ready)
            ),
            named.eq(self.victims.valid & self.victims.ready),
            last.eq(count + 1 == search.evictions),
            searches.sink.ready.eq(named & last),
            entries.write_enable.eq(taken | (named & (search.evictions == 1))),
            entries.write_data.eq(new),
            entries.write_address.eq(search.layer),
            new.length.eq(search.length),
            new.slot.eq(victim.slot),
            new.state.eq(Mux(victim.found, SlotState.VICTIM, SlotState.APPEND)),
        ]
        with m.If(taken):
            m.d.comb += [
                entries.write_address.eq(instruction.layer),
                new.length.eq(after),
                new.state.eq(Mux(replaces, SlotState.WAITING, SlotState.APPEND)),
            ]
        return m
