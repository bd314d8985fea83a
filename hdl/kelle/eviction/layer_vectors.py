"""The stored input vectors of all layers: each layer's tokens become popular by themselves.

Section 4.1 of the paper: a token is recomputed where most heads of a layer keep it.
"""

from typing import Any

from amaranth.hdl import Array, Module

from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.recomputed_vectors import RecomputedVectors, vector_ports
from hdl.stream.connect import every
from hdl.unit import Unit


class LayerVectors(Unit):
    """One `RecomputedVectors` a layer, of which the current layer's is spoken to.

    A layer is changed only while all are idle, so that no two ever have anything to say at once.

    **Latency** as `RecomputedVectors`. **Throughput** one outcome, or one prefilled token that is
    recomputed, in two cycles.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy.

    Members
    -------
    layer : In
        The layer that is worked on.
    idle : Out(1)
        Outcomes and prefilled tokens may come: out of a register, which falls behind each of them.
    vectors : Out(ArrayLayout(vector, layers * vectors))
        Which tokens are recomputed, layer by layer.
    promoted : Out(token)
        Of the current layer.

    All others are as in `RecomputedVectors`.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        super().__init__(vector_ports(p, p.layers * p.vectors))

    def elaborate(self, platform: Any) -> Module:
        """Offer what comes to the current layer's; join what the others, being idle, do not say."""
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
                    self.vectors[number * p.vectors + v].eq(own.vectors[v])
                    for v in range(p.vectors)
                ),
            ]
            for name in ("vector_stores", "scores"):
                source, sink = getattr(own, name), getattr(self, name)
                m.d.comb += source.ready.eq(sink.ready)
                with m.If(source.valid):
                    m.d.comb += [sink.valid.eq(1), sink.payload.eq(source.payload)]
        # Whether a token may come decides as far as into the evictor's rows, hence the register.
        # What comes in this cycle may give a layer something to say in the next one.
        comes = self.outcome_valid | (self.prefilled_valid & self.prefilled.token.recomputed)
        m.d.sync += self.idle.eq(every([own.idle for own in layers]) & ~comes)
        promoted = Array(own.promoted.as_value() for own in layers)
        chosen = self.layer if p.layers > 1 else 0
        m.d.comb += self.promoted.eq(promoted[chosen])
        return m
