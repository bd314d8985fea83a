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
    """Hold the layer, the slots in use before a step, and the placements of the arriving tokens.

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
    turn : In
        The sequence whose token the eviction controller places.
    filled : In
        Slots in use of each head, as in `EvictionController`.
    placement, placed : In
        A placement of the eviction controller; `placed` is 1 in the cycle of its transfer.
    busy : Out(1)
        A step is running.
    layer : Out
        Layer of the step, or the offered layer.
    cache : Out
        Number of the layer's and the current sequence's set of slots.
    residents : Out
        For each head of all sequences, the number of slots in use before the step.
    placements : Out
        For each head of all sequences, the slot of the arriving token, and how its victim was
        stored.
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
                "turn": In(max(p.sequence_bits, 1)),
                "filled": In(data.ArrayLayout(count, p.eviction.cached_heads)),
                "placement": In(placement_layout(p.eviction)),
                "placed": In(1),
                "busy": Out(1),
                "layer": Out(p.layer_bits),
                "cache": Out(p.eviction.layer_bits),
                "residents": Out(data.ArrayLayout(count, p.sequence_heads)),
                "placements": Out(data.ArrayLayout(p.placement_layout, p.sequence_heads)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Hold the layer and the slots in use at the start, and each head's placement."""
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
            self.cache.eq(p.cache(self.layer, Mux(self.busy, self.turn, self.offered_sequence))),
        ]
        # Search and softmax refer to the slots before the step; counts may change during it.
        with m.If(self.starts):
            for n, count in enumerate(self.residents):
                layers = Array(
                    self.filled[n + first]
                    for first in range(0, p.eviction.cached_heads, p.sequence_heads)
                )
                m.d.sync += count.eq(layers[self.layer] if p.layers > 1 else layers[0])

        placements = Array(
            Signal(p.placement_layout, name=f"placement_{n}", reset_less=True)
            for n in range(p.sequence_heads)
        )
        m.d.comb += [port.eq(held) for port, held in zip(self.placements, placements, strict=True)]
        record, evicted = (
            placements[p.sequence_head(self.turn, self.placement.head)],
            self.placement.evicted,
        )
        with m.If(self.placed):
            m.d.sync += [
                record.slot.eq(self.placement.slot),
                record.recomputed.eq(self.placement.evicts & evicted.recomputed),
                record.vector.eq(evicted.vector),
            ]
        return m
