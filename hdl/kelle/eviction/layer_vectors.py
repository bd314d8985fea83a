"""The stored input vectors of all layers; popularity is decided separately for each layer.

Section 4.1 of the paper: a token is recomputed in a layer if most heads of the layer keep it.
"""

from amaranth.hdl import Array, Cat, Module

from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.recomputed_vectors import RecomputedVectors, vector_ports
from hdl.stream.connect import every
from hdl.unit import Unit


class LayerVectors(Unit):
    """One `RecomputedVectors` per layer, of which the current layer's is connected.

    The layer changes only while all layers are idle, so at most one drives a shared output.

    **Latency** as `RecomputedVectors`. **Throughput** one outcome, or one prefilled token that is
    recomputed, per two cycles.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy.

    Members
    -------
    layer : In
        The current layer.
    idle : Out(1)
        The unit accepts outcomes and prefilled tokens. A register drives it; it falls in the cycle
        after each of them.
    stored_vectors : Out(ArrayLayout(vector, layers * vectors))
        The stored vectors, layer by layer.
    promoted : Out(token)
        As in `RecomputedVectors`, of the current layer.

    All other members are as in `RecomputedVectors`.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        super().__init__(vector_ports(p, p.layers * p.vectors))

    def elaborate(self, platform: object) -> Module:
        """Connect the inputs to the current layer, and merge the outputs of all layers."""
        m = Module()
        p = self.parameters
        layers = [RecomputedVectors(parameters=p) for _ in range(p.layers)]
        shared = ("now", "outcome", "important", "prefilled")
        for number, own in enumerate(layers):
            m.submodules[f"layer_{number}"] = own
            current = self.layer == number if p.layers > 1 else 1
            m.d.comb += [
                own.layer.eq(number),
                *(getattr(own, name).eq(getattr(self, name)) for name in shared),
                own.outcome_valid.eq(self.outcome_valid & current),
                own.prefilled_valid.eq(self.prefilled_valid & current),
                *(
                    self.stored_vectors[number * p.vectors + v].eq(own.stored_vectors[v])
                    for v in range(p.vectors)
                ),
            ]
            for name in ("vector_stores", "scores"):
                source, sink = getattr(own, name), getattr(self, name)
                m.d.comb += source.ready.eq(sink.ready)
                with m.If(source.valid):
                    m.d.comb += [sink.valid.eq(1), sink.payload.eq(source.payload)]
        # The paths from `idle` extend into the evictor's rows, hence the register. An input of this
        # cycle may make a layer busy in the next one.
        m.d.comb += self.decides.eq(Cat(own.decides for own in layers).any())
        comes = self.outcome_valid | (self.prefilled_valid & self.prefilled.token.recomputed)
        m.d.sync += self.idle.eq(every([own.idle for own in layers]) & ~comes)
        promoted = Array(own.promoted.as_value() for own in layers)
        chosen = self.layer if p.layers > 1 else 0
        m.d.comb += self.promoted.eq(promoted[chosen])
        return m
