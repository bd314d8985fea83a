"""FP16 attention probabilities as FP8 S0E4M4 codes."""

from typing import Annotated, Any

from amaranth.hdl import Module
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.fp8_s0e4m4 import Round, S0e4m4Encoder
from hdl.parameters import Parameters, PowerOfTwo, parameter_object
from hdl.unit import Unit


@parameter_object
class ProbabilityQuantiserParameters(Parameters):
    """Dimensions of the probability quantiser; they also drive its model and its testbench.

    Parameters
    ----------
    lanes : int
        Probabilities in a slice.
    round : Round
        How the six dropped bits round.

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
    """Probabilities, or their products with scales of values, as S0E4M4, in slices of `lanes`.

    There is no scale: the format has the range of what a softmax makes (P3-LLM, Section IV-B).

    **Latency** 1 cycle. **Throughput** one slice per cycle. **Numerics** the upper eight bits below
    the two topmost, rounded as `round` says; beyond 1.9375 the result is 1.9375 (0xFF), infinities
    and NaNs too; whatever has the sign bit gives 0.

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

    def elaborate(self, platform: Any) -> Module:
        """Round every lane, register once."""
        m = Module()
        source, results = self.probabilities, self.results
        # One register: a slice may come in the cycle in which the last one leaves.
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
