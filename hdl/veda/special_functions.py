"""The functions between VEDA's products: softmax, RMSNorm, rotary embedding, activation."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit
from hdl.veda.element_serial_activation import (
    ElementSerialActivation,
    ElementSerialActivationParameters,
)
from hdl.veda.element_serial_layernorm import ElementSerialLayernorm
from hdl.veda.element_serial_rotary import ElementSerialRotary, ElementSerialRotaryParameters
from hdl.veda.lane_softmax import LaneSoftmax
from hdl.veda.stream_links import connect_streams
from hdl.veda.veda_parameters import VedaParameters

ACTIVATION = ElementSerialActivationParameters()
ROTARY = ElementSerialRotaryParameters()


class SpecialFunctions(Unit):
    """Give each function its streams.

    **Latency**, **throughput**, **numerics** those of `LaneSoftmax`, `ElementSerialLayernorm`,
    `ElementSerialActivation` and `ElementSerialRotary`.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions.

    Members
    -------
    lengths, scores, probabilities : In, In, Out(stream)
        As in `LaneSoftmax`.
    elements, normalised : In, Out(stream)
        As in `ElementSerialLayernorm`.
    operands, activated : In, Out(stream)
        As in `ElementSerialActivation`.
    pairs, rotated : In, Out(stream)
        As in `ElementSerialRotary`.
    flags : Out(struct)
        Those of the softmax.
    undefined : Out(1)
        That of the norm.
    clear_flags : In(1)
        All flags fall.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "lengths": In(stream.Signature(p.length_shape)),
                "scores": In(stream.Signature(p.lanes_layout)),
                "probabilities": Out(stream.Signature(p.scalar_layout)),
                "elements": In(stream.Signature(p.norm.element_layout)),
                "normalised": Out(stream.Signature(p.norm.element_layout)),
                "operands": In(stream.Signature(ACTIVATION.operands_layout)),
                "activated": Out(stream.Signature(ACTIVATION.element_layout)),
                "pairs": In(stream.Signature(ROTARY.pair_layout)),
                "rotated": Out(stream.Signature(ROTARY.rotated_layout)),
                "flags": Out(p.softmax.flags_layout),
                "undefined": Out(1),
                "clear_flags": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect."""
        m = Module()
        p = self.parameters
        m.submodules.softmax = softmax = LaneSoftmax(parameters=p.softmax, lanes=p.lanes)
        m.submodules.norm = norm = ElementSerialLayernorm(parameters=p.norm)
        m.submodules.activation = activation = ElementSerialActivation(parameters=ACTIVATION)
        m.submodules.rotary = rotary = ElementSerialRotary(parameters=ROTARY)
        for source, sink in (
            (self.lengths, softmax.lengths),
            (self.scores, softmax.scores),
            (softmax.probabilities, self.probabilities),
            (self.elements, norm.elements),
            (norm.normalised, self.normalised),
            (self.operands, activation.operands),
            (activation.activated, self.activated),
            (self.pairs, rotary.pairs),
            (rotary.rotated, self.rotated),
        ):
            connect_streams(m, source, sink)
        m.d.comb += [
            self.flags.eq(softmax.flags),
            self.undefined.eq(norm.undefined),
            softmax.clear_flags.eq(self.clear_flags),
            norm.clear_undefined.eq(self.clear_flags),
        ]
        return m
