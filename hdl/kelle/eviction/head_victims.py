"""The victim of each head, used in the step of its search or in the next one (Section 5.3)."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.unit import Unit


class HeadVictims(Unit):
    """Pass the victims on, or with `evict_before` hold one per head until the next step.

    Heads are searched in ascending order, and their victims are taken in the same order.

    **Latency** 0 cycles, or 1 with `evict_before`. **Throughput** one victim per cycle.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy.

    Members
    -------
    layer : In
        The current layer.
    found : In(stream)
        Victims, as `SystolicEvictor` outputs them.
    searched : In(1)
        No search is in flight.
    head : In
        The head whose victim is taken next, numbered among those of all layers.
    forgets : In(1)
        All slots of `head` become empty.
    victims : Out(stream)
        `index` of the slot, and `found`: 0 if no slot was a candidate.
    halve : Out(cached_heads)
        For each head of all layers, whether a score saturated in its last search: the next load
        halves its importances.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "layer": In(p.layer_bits),
                "found": In(stream.Signature(p.evictor.victim_layout)),
                "searched": In(1),
                "head": In(p.cached_head_bits),
                "forgets": In(1),
                "victims": Out(stream.Signature(p.choice_layout)),
                "halve": Out(p.cached_heads),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the searched heads, and hold what later steps need of each."""
        m = Module()
        p, found = self.parameters, self.found
        takes = found.valid & found.ready
        counted = Signal(p.head_bits)
        head = p.cached_head(self.layer, counted)
        with m.If(takes):
            m.d.sync += counted.eq(Mux(counted == p.kv_heads - 1, 0, counted + 1))
        if p.evictor.halves:
            with m.If(takes):
                m.d.sync += self.halve.bit_select(head, 1).eq(found.payload.saturated)
            with m.If(self.forgets):
                m.d.sync += self.halve.bit_select(self.head, 1).eq(0)
        choice = Signal(p.choice_layout)
        m.d.comb += [
            choice.index.eq(found.payload.index),
            choice.found.eq(found.payload.found),
        ]
        if p.evict_before:
            # Searches run independently of the placements; their victims are for the next step.
            held = Array(
                Signal(p.choice_layout, name=f"victim_{h}", reset_less=True)
                for h in range(p.cached_heads)
            )
            with m.If(takes):
                m.d.sync += held[head].eq(choice)
            m.d.comb += [
                found.ready.eq(1),
                self.victims.valid.eq(self.searched),
                self.victims.payload.eq(held[self.head]),
            ]
        else:
            m.d.comb += [
                found.ready.eq(self.victims.ready),
                self.victims.valid.eq(found.valid),
                self.victims.payload.eq(choice),
            ]
        return m
