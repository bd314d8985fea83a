"""The stored input vectors of all layers; popularity is decided separately for each layer.

Section 4.1 of the paper: a token is recomputed in a layer if most heads of the layer keep it.
"""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.kelle.eviction.eviction_parameters import EvictionParameters, vector_layout
from hdl.kelle.eviction.recomputed_vectors import (
    RecomputedVectors,
    record_layout,
    vector_ports,
)
from hdl.memory.memory import Memory
from hdl.stream.connect import connect_streams
from hdl.unit import Unit

OUTCOME_DELAY = 2
"""Cycles from a placement's outcome to the registers."""


class LayerVectors(Unit):
    """One `RecomputedVectors`, which holds the record of one layer; a memory holds the others.

    When `layer` selects another layer while the unit is idle, the record in the registers is
    written to the memory, and that of the selected layer is read.

    **Latency** as `RecomputedVectors`, and `OUTCOME_DELAY` for an outcome; 2 cycles from another
    layer to its record; 1 cycle from a request to its response. **Throughput** one outcome, or one
    prefilled token that is recomputed, per two cycles; one request per cycle.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy.

    Members
    -------
    layer : In
        The current layer.
    current : Out(1)
        The registers have the record of the current layer. All inputs are those of this layer.
    idle : Out(1)
        The unit accepts outcomes and prefilled tokens. A register drives it; it falls in the cycle
        after each of them.
    vector_request : In(stream), vector_response : Out
        As in `EvictionController`.
    promoted : Out(token)
        As in `RecomputedVectors`, of the current layer.

    All other members are as in `RecomputedVectors`.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                **vector_ports(p),
                "current": Out(1),
                "vector_request": In(stream.Signature(p.layer_bits)),
                "vector_response": Out(data.ArrayLayout(vector_layout(p), p.vectors)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the registers' ports, and exchange records with the memory."""
        m = Module()
        p = self.parameters
        m.submodules.vectors = own = RecomputedVectors(parameters=p)
        inputs = ("now", "important", "prefilled", "prefilled_valid", "clear")
        m.d.comb += [getattr(own, name).eq(getattr(self, name)) for name in inputs]
        # Registers after the choice of the evicted token's record. The verdict on the leaving token
        # is known in the cycle of the second one.
        outcomes = delay_line(m, self.outcome, OUTCOME_DELAY, name="outcome")
        valid = delay_line(m, self.outcome_valid, OUTCOME_DELAY, name="outcome_valid", reset=True)
        m.d.comb += [own.outcome.eq(outcomes[-1]), own.outcome_valid.eq(valid[-1])]
        connect_streams(m, own.vector_stores, self.vector_stores)
        connect_streams(m, own.scores, self.scores)
        # The paths from `idle` extend into the evictor's rows, hence the register. An input of this
        # cycle may make the registers busy in the next one.
        comes = Cat(*valid).any() | (self.prefilled_valid & self.prefilled.token.recomputed)
        comes |= self.clear
        rests = Signal()
        m.d.comb += [
            self.decides.eq(own.decides | Cat(*valid[1:]).any()),
            self.promoted.eq(own.promoted),
            rests.eq(own.idle & ~comes),
        ]
        m.d.sync += self.idle.eq(rests)
        record = Signal(record_layout(p))
        m.d.comb += record.eq(own.record)
        if p.layers > 1:
            shown = self._exchange(m, own)
            m.d.comb += record.eq(shown)
        else:
            m.d.comb += [self.current.eq(1), self.vector_request.ready.eq(1)]
        for v in range(p.vectors):
            m.d.comb += [
                self.vector_response[v].position.eq(record.positions[v]),
                self.vector_response[v].valid.eq(record.holders[v].any()),
            ]
        return m

    def _exchange(self, m: Module, own: RecomputedVectors) -> data.View:
        """Load the current layer's record, and look others up; return the latest lookup's."""
        p = self.parameters
        layout = record_layout(p)
        m.submodules.records = records = Memory(depth=p.layers, width=Shape.cast(layout).width)
        # A layer that was never in the registers has no vectors; the memory is undefined after a
        # reset.
        known = Signal(p.layers)
        held, loads, exchanges = Signal(p.layer_bits), Signal(), Signal()
        asked, is_known = Signal(p.layer_bits), Signal()
        m.d.comb += [
            self.current.eq((self.layer == held) & ~loads),
            # Nothing arrives for a layer whose record is not in the registers.
            exchanges.eq((self.layer != held) & ~loads & self.idle),
            self.vector_request.ready.eq(~exchanges),
            records.write_enable.eq(exchanges),
            records.write_address.eq(held),
            records.write_data.eq(own.record),
            records.read_enable.eq(exchanges | self.vector_request.valid),
            records.read_address.eq(Mux(exchanges, self.layer, self.vector_request.payload)),
            own.layer.eq(held),
            own.load.eq(loads),
        ]
        m.d.sync += loads.eq(exchanges)
        with m.If(records.read_enable):
            m.d.sync += [
                asked.eq(records.read_address),
                is_known.eq(known.bit_select(records.read_address, 1)),
            ]
        with m.If(exchanges):
            m.d.sync += [held.eq(self.layer), known.bit_select(held, 1).eq(1)]
        stored, shown = Signal(layout), Signal(layout)
        with m.If(is_known):
            m.d.comb += stored.eq(records.read_data)
        # The memory has an earlier record of the layer in the registers.
        m.d.comb += [
            own.loaded.eq(stored),
            shown.eq(Mux((asked == held) & ~loads, own.record.as_value(), stored.as_value())),
        ]
        return shown
