"""VEDA's slot table: assigns the next token of each layer to a slot of its cache."""

from dataclasses import dataclass

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.memory.memory import Memory
from hdl.unit import Unit
from hdl.veda.instructions import Operation, SlotState
from hdl.veda.parameters import VedaParameters

SEARCHES_IN_FLIGHT = 4
"""Maximum number of layers with a victim search in flight."""


@dataclass(frozen=True, kw_only=True)
class _After:
    """State of a layer after an instruction.

    Parameters
    ----------
    length : Value
        Number of its cached tokens.
    overflows : Value
        A token had no free slot.
    """

    length: Value
    overflows: Value


@dataclass(frozen=True, kw_only=True)
class _Searches:
    """The victim searches in flight.

    Parameters
    ----------
    room, valid : Value
        There is room for another search; there is at least one.
    oldest : data.View
        The search whose victims arrive next: its layer, the number of tokens cached there, the
        number of victims, and whether a new text has begun in that layer since.
    completes : Signal
        Its last victim is accepted.
    """

    room: Value
    valid: Value
    oldest: data.View
    completes: Signal


class SlotTable(Unit):
    """Assign each arriving token a slot, and record each layer's victim for the next token.

    A layer's tokens fill its slots from 0 on. Once a victim is known, the next token reuses its
    slot, and the number of cached tokens does not change. An instruction waits while its layer's
    victim is not known, unless it loads: a new text ignores victims of the previous one, which are
    still reported but whose slots are not reused. Several victims at once, at the end of prefill,
    are only reported: after the software has moved the remaining tokens, it must load the layer
    again.

    **Latency** 1 cycle from an instruction to its task. **Throughput** one instruction in 2 cycles.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.

    Members
    -------
    instructions : In(stream)
        See `instruction_layout`. The tokens after a block's first one fill free slots.
    tasks : Out(stream)
        The instruction, with its first token's `slot` and its `length`, this token included.
    victims : In(stream)
        From the voting engine, as many for each instruction as it evicts.
    evictions : Out(stream)
        Layer and slot of each victim that was found, in the order of the instructions.
    blocks : Out(stream)
        Index of the last token of each block whose hidden states are inputs.
    overflow : Out(1)
        A token arrived when all slots were in use, and was assigned the last slot. Held until
        reset.
    errors : Out(struct)
        As in `Scheduler`.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "instructions": In(stream.Signature(p.instruction_layout)),
                "tasks": Out(stream.Signature(p.task_layout)),
                "victims": In(stream.Signature(p.voting.victim_layout)),
                "evictions": Out(stream.Signature(p.eviction_layout)),
                "blocks": Out(stream.Signature(p.token_shape)),
                "overflow": Out(1),
                "errors": Out(p.instruction_errors_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read the layer's entry until its victim is known, then write the updated entry."""
        m = Module()
        p = self.parameters
        m.submodules.entries = entries = Memory(depth=max(2, p.layers), width=p.entry_layout.size)
        instruction = self.instructions.payload

        # The entry is read in every cycle, so a waiting instruction sees its victim as soon as it
        # is written.
        response_valid, entry = Signal(), Signal(p.entry_layout)
        m.d.comb += [
            entries.read_enable.eq(1),
            entries.read_address.eq(instruction.layer),
            entry.eq(entries.read_data),
        ]
        m.d.sync += response_valid.eq(self.instructions.valid & ~self.instructions.ready)
        with m.If(instruction.load):
            m.d.comb += [entry.length.eq(instruction.length), entry.state.eq(SlotState.APPEND)]
        after = self._fill_in(m, entry)

        evicts = instruction.evictions != 0
        known, taken = response_valid & (entry.state != SlotState.WAITING), Signal()
        searches = self._searches(m, taken, after.length)
        enters = self._enter(m, taken, known & (searches.room | ~evicts))
        m.d.comb += [
            self.tasks.valid.eq(
                self.instructions.valid & known & (searches.room | ~evicts) & enters
            ),
            self.instructions.ready.eq(self.tasks.ready & self.tasks.valid),
            taken.eq(self.tasks.valid & self.tasks.ready),
        ]
        with m.If(taken & after.overflows):
            m.d.sync += self.overflow.eq(1)
        self._check(m, taken, entry)
        self._write(m, entries, searches, taken, after.length)
        return m

    def _enter(self, m: Module, taken: Value, offered: Value) -> Value:
        """Announce hidden states that are inputs; return whether the instruction may proceed."""
        instruction = self.instructions.payload
        # The states of the first layer are inputs, and those of every layer after one that output
        # them.
        outside = Signal(init=1)
        layer = instruction.operation == Operation.LAYER
        with m.If(taken & layer):
            m.d.sync += outside.eq(instruction.leave != 0)
        needed = layer & outside
        m.d.comb += [
            self.blocks.valid.eq(taken & needed),
            self.blocks.payload.eq(self.tasks.payload.last_token),
        ]
        return self.blocks.ready | ~needed

    def _check(self, m: Module, taken: Value, entry: data.View) -> None:
        """Set the error flags for illegal instructions."""
        p, instruction = self.parameters, self.instructions.payload
        beyond = instruction.position + self.tasks.payload.last_token >= p.context_length
        layer = instruction.operation == Operation.LAYER
        for name, mistaken in (
            ("block", instruction.last_token >= p.block),
            ("position", layer & beyond),
            ("trimmed", entry.state == SlotState.TRIMMED),
        ):
            with m.If(taken & mistaken):
                m.d.sync += self.errors[name].eq(1)

    def _searches(self, m: Module, taken: Value, length: Value) -> _Searches:
        """Queue the searches in flight; a new text disowns the pending searches of its layer."""
        p, instruction = self.parameters, self.instructions.payload
        layout = data.StructLayout(
            {
                "layer": p.layer_bits,
                "length": p.length_shape,
                "evictions": p.length_shape,
                "disowned": 1,
            }
        )
        queue = Array(
            Signal(layout, name=f"search_{place}", reset_less=True)
            for place in range(SEARCHES_IN_FLIGHT)
        )
        newest, oldest = (
            Signal(range(SEARCHES_IN_FLIGHT), name=name) for name in ("newest", "oldest")
        )
        waiting, arrives, leaves = Signal(range(SEARCHES_IN_FLIGHT + 1)), Signal(), Signal()
        m.d.comb += arrives.eq(taken & (instruction.evictions != 0))
        m.d.sync += waiting.eq(waiting + arrives - leaves)
        with m.If(taken & instruction.load):
            for search in queue:
                with m.If(search.layer == instruction.layer):
                    m.d.sync += search.disowned.eq(1)
        # Assigned after the others: a loading instruction's own search is not disowned.
        with m.If(arrives):
            m.d.sync += [
                newest.eq(newest + 1),
                queue[newest].layer.eq(instruction.layer),
                queue[newest].length.eq(length),
                queue[newest].evictions.eq(instruction.evictions),
                queue[newest].disowned.eq(0),
            ]
        with m.If(leaves):
            m.d.sync += oldest.eq(oldest + 1)
        return _Searches(
            room=waiting != SEARCHES_IN_FLIGHT,
            valid=waiting != 0,
            oldest=data.View(layout, Value.cast(queue[oldest])),
            completes=leaves,
        )

    def _fill_in(self, m: Module, entry: data.View) -> _After:
        """Assign the task's slot and length; return the layer's state after it."""
        p = self.parameters
        instruction, task = self.instructions.payload, self.tasks.payload
        full, takes_victim, overflows = Signal(), Signal(), Signal()
        reaches, length = Signal(range(p.slots + p.block + 1)), Signal(p.length_shape)
        m.d.comb += [
            takes_victim.eq(entry.state == SlotState.VICTIM),
            full.eq(~takes_victim & (entry.length >= p.slots)),
            # A victim's slot does not increase the length; the block's later tokens do. The units
            # downstream have no room for more tokens than a block.
            task.last_token.eq(
                Mux(instruction.last_token >= p.block, p.block - 1, instruction.last_token)
            ),
            reaches.eq(entry.length + task.last_token + ~takes_victim),
            overflows.eq(reaches > p.slots),
            length.eq(Mux(overflows, p.slots, reaches)),
            *(
                task[name].eq(instruction[name])
                for name in ("operation", "layer", "vote", "evictions", "position", "leave")
            ),
            task.slot.eq(Mux(takes_victim, entry.slot, Mux(full, p.slots - 1, entry.length))),
            task.length.eq(Mux(full, p.slots, Mux(takes_victim, entry.length, entry.length + 1))),
        ]
        return _After(length=length, overflows=overflows)

    def _write(
        self, m: Module, entries: Memory, searches: _Searches, taken: Value, after: Value
    ) -> None:
        """Write the entry after an instruction, or after its victim is found.

        An instruction's write has priority: a victim waits for that cycle.
        """
        p = self.parameters
        search, instruction, victim = (
            searches.oldest,
            self.instructions.payload,
            self.victims.payload,
        )
        evictions = self.evictions
        named, last, new = Signal(), Signal(), Signal(p.entry_layout)
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
            self.victims.ready.eq(searches.valid & ~taken & (~evictions.valid | evictions.ready)),
            named.eq(self.victims.valid & self.victims.ready),
            last.eq(count + 1 == search.evictions),
            searches.completes.eq(named & last),
            # Of several victims none is written: the layer is loaded again after them.
            entries.write_enable.eq(taken | (named & (search.evictions == 1) & ~search.disowned)),
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
                new.state.eq(SlotState.APPEND),
            ]
            with m.If(instruction.evictions == 1):
                m.d.comb += new.state.eq(SlotState.WAITING)
            with m.Elif(instruction.evictions != 0):
                m.d.comb += new.state.eq(SlotState.TRIMMED)
