"""What is constant during a step: its layer, and the slots that its tokens attend to.

Section 4.1 of the paper: the victim of a step still takes part in the attention of this step.
"""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.eviction.eviction_parameters import placement_layout
from hdl.kelle.parameters import KelleParameters
from hdl.unit import Unit


class StepState(Unit):
    """Hold the layer, and for each token its placements and the slots in use before them.

    **Latency** 0 cycles to `layer` and `cache`, 1 to all others. **Throughput** one step at a time.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    offered_layer, offered_sequence : In
        Layer and sequence of what is offered while no step is running.
    starts, ends : In(1)
        A step begins; it has ended, and so has the eviction controller's part of it.
    turn, sequence : In
        The token that the eviction controller places, and its sequence.
    listed : In
        As in `StepControl`.
    placement, placed : In
        A placement of the eviction controller; `placed` is 1 in the cycle of its transfer.
    busy : Out(1)
        A step is running.
    layer : Out
        Layer of the step, or the offered layer.
    cache : Out
        Number of the layer's and the current sequence's set of slots.
    placements : Out
        For each head and token, the token's slot, the number of slots in use before it, and whether
        its victim is `recomputed` in this step.
    residents : Out
        The number of slots in use of each placement.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        count = bits_for(p.slots)
        super().__init__(
            {
                "offered_layer": In(p.layer_bits),
                "offered_sequence": In(max(p.sequence_bits, 1)),
                "starts": In(1),
                "ends": In(1),
                "turn": In(p.token_shape),
                "sequence": In(max(p.sequence_bits, 1)),
                "listed": In(p.layer_vectors),
                "placement": In(placement_layout(p.eviction)),
                "placed": In(1),
                "busy": Out(1),
                "layer": Out(p.layer_bits),
                "cache": Out(p.eviction.layer_bits),
                "residents": Out(data.ArrayLayout(count, p.token_heads)),
                "placements": Out(data.ArrayLayout(p.placement_layout, p.token_heads)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Hold the layer, and the placement of each head and token."""
        m = Module()
        p = self.parameters
        # The paths from the layer extend into the slot table, hence the register.
        held = Signal(p.layer_bits)
        m.d.sync += [
            self.busy.eq(self.starts | (self.busy & ~self.ends)),
            held.eq(self.layer),
        ]
        m.d.comb += [
            self.layer.eq(Mux(self.busy, held, self.offered_layer)),
            # The eviction controller treats every sequence of a layer as a layer of its own.
            self.cache.eq(
                p.cache(self.layer, Mux(self.busy, self.sequence, self.offered_sequence))
            ),
        ]
        placements = Array(
            Signal(p.placement_layout, name=f"placement_{n}", reset_less=True)
            for n in range(p.token_heads)
        )
        for number, record in enumerate(placements):
            m.d.comb += [
                self.placements[number].eq(record),
                self.residents[number].eq(record.residents),
            ]
        item = p.token_head(self.turn, self.placement.head)
        record, evicted = placements[item], self.placement.evicted
        recomputed = self.placement.evicts & evicted.recomputed
        if p.step_tokens > 1:
            # The victim may have become popular in this step, in which it is not recomputed.
            vector = self.sequence * p.vectors + evicted.vector
            recomputed &= self.listed.bit_select(vector, 1)
        with m.If(self.placed):
            m.d.sync += [
                # Slots fill in order: the first free one is the number of slots in use.
                record.residents.eq(Mux(self.placement.evicts, p.slots, self.placement.slot)),
                record.slot.eq(self.placement.slot),
                record.recomputed.eq(recomputed),
                record.vector.eq(evicted.vector),
            ]
        return m
