"""Quantiser of FP16 attention probabilities to FP8-S0E4M4 codes."""

from typing import Annotated

from amaranth.hdl import Module
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.fp8_s0e4m4 import Round, S0e4m4Encoder
from hdl.parameters import Parameters, PowerOfTwo, parameter_object
from hdl.unit import Unit


@parameter_object
class ProbabilityQuantiserParameters(Parameters):
    """Dimensions of the probability quantiser.

    Parameters
    ----------
    lanes : int
        Probabilities per slice.
    round : Round
        Rounding of the six discarded bits.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    lanes: Annotated[int, PowerOfTwo(1, 64, "probabilities")] = 32
    round: Round = Round.HALF_UP

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of FP16 probabilities."""
        return data.StructLayout({"values": data.ArrayLayout(16, self.lanes), "last": 1})

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of codes."""
        return data.StructLayout({"codes": data.ArrayLayout(8, self.lanes), "last": 1})


class ProbabilityQuantiser(Unit):
    """Quantise probabilities, or their products with scales of values, to S0E4M4.

    There is no scale: the format covers the range of a softmax (P3-LLM, Section IV-B).

    **Latency** 1 cycle. **Throughput** one slice per cycle. **Numerics** the code is bits 13 to 6
    of the FP16 number, rounded according to `round`. Above 1.9375 the result is 1.9375 (0xFF), also
    for infinities and NaNs; with the sign bit set it is 0.

    Parameters
    ----------
    parameters : ProbabilityQuantiserParameters
        Lanes and rounding.

    Members
    -------
    probabilities : In(stream)
        `values` in FP16, `last`.
    results : Out(stream)
        `codes` in S0E4M4, `last`.

    Raises
    ------
    ValueError
        If `ProbabilityQuantiserParameters` rejects a value.
    """

    def __init__(self, *, parameters: ProbabilityQuantiserParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "probabilities": In(stream.Signature(parameters.slice_layout)),
                "results": Out(stream.Signature(parameters.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Round every lane, register once."""
        m = Module()
        source, results = self.probabilities, self.results
        # One register, which can accept a slice in the cycle in which it outputs the last one.
        free = ~results.valid | results.ready
        m.d.comb += source.ready.eq(free)
        with m.If(free):
            m.d.sync += [
                results.valid.eq(source.valid),
                results.payload.last.eq(source.payload.last),
            ]
        for i in range(self.parameters.lanes):
            lane = S0e4m4Encoder(round=self.parameters.round, stages=1, enable=True)
            m.submodules[f"encoder_{i}"] = lane
            m.d.comb += [
                lane.enable.eq(free),
                lane.a.eq(source.payload.values[i]),
                results.payload.codes[i].eq(lane.result),
            ]
        return m
