"""The datapath from scores to the inputs of P V."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream

from hdl.p3llm.npu.operation_control import OperationControl
from hdl.p3llm.npu.vector_functions import VectorFunctions, link

PROBABILITY_FRACTION = 16
"""Fraction bits of the softmax's results."""


@dataclass(frozen=True)
class SoftmaxDatapath:
    """Masks of the tokens, softmax, second-level scaling and quantisation of probabilities.

    Parameters
    ----------
    m : Module
        Module of the vector unit.
    functions : VectorFunctions
        Its functions.
    control : OperationControl
        The FSM of its operations.
    """

    m: Module
    functions: VectorFunctions
    control: OperationControl

    def load_scales(self, scales: stream.Interface) -> None:
        """Load the scales of existing tokens' values, to find the largest; while `fetching`."""
        m, sink, p = self.m, self.functions.scaling.scales, self.control.parameters
        index = Signal(range(p.slots // p.lanes), name="scale_index")
        with m.If(sink.valid & sink.ready):
            m.d.sync += index.eq(Mux(sink.payload.last, 0, index + 1))
        with m.If(self.control.fetching):
            link(m, scales, sink, last=scales.payload.last)
            given, kept = scales.payload["values"], sink.payload["values"]
            m.d.comb += [
                kept[i].eq(given[i] & exists.replicate(16))
                for i, exists in enumerate(self._exist(index))
            ]

    def probabilities(self, scores: stream.Interface) -> stream.Interface:
        """Compute the softmax of the scores of existing tokens."""
        m, p, starts = self.m, self.control.parameters, self.control.starts
        index, keep = Signal(range(p.slots // p.lanes), name="score_index"), Signal(p.lanes)
        following = Signal.like(index)
        results = self.functions.probabilities(scores, keep)
        # Scores arrive in order; the mask of existing tokens is computed one slice ahead.
        m.d.comb += following.eq(Mux(starts, 0, index + 1))
        with m.If(starts | (scores.valid & scores.ready)):
            m.d.sync += [index.eq(following), keep.eq(Cat(self._exist(following)))]
        return results

    def codes(self, probabilities: stream.Interface) -> stream.Interface:
        """Multiply probabilities by the values' scales, and quantise the products as inputs."""
        functions = self.functions
        halves = functions.halves(probabilities, point=Const(PROBABILITY_FRACTION))
        # Products of probabilities and scales are at most 1.
        return functions.probability_codes(functions.second_level_scaled(halves))

    def _exist(self, index: Value) -> list[Value]:
        """Return a mask of the tokens of a slice that exist."""
        lanes = self.control.parameters.lanes
        return [index * lanes + i <= self.control.position for i in range(lanes)]
