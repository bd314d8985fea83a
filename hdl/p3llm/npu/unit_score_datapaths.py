"""The datapaths of attention if the compute units multiply queries by keys."""

from dataclasses import dataclass

from amaranth.lib import stream

from hdl.p3llm.npu.datapaths import Operands
from hdl.p3llm.npu.result_store import ResultStore
from hdl.p3llm.npu.softmax_datapath import SoftmaxDatapath
from hdl.p3llm.npu.vector_functions import link
from hdl.p3llm.quantisers.key_smoothing import Operation as Smoothing


@dataclass(frozen=True)
class UnitScoreDatapaths:
    """Keys are rotated and smoothed before they are quantised (Figure 6 (a)).

    Parameters
    ----------
    softmax : SoftmaxDatapath
        The datapath from scores to inputs.
    operands : Operands
        What an operation reads.
    store : ResultStore
        Where results are stored.
    """

    softmax: SoftmaxDatapath
    operands: Operands
    store: ResultStore

    def query(self) -> None:
        """Rotate, smooth and quantise a query as inputs of the units."""
        results = self.softmax.functions.input_codes(self._smoothed(Smoothing.QUERY))
        self._inputs(results)

    def key(self) -> stream.Interface:
        """Rotate and smooth a key."""
        return self._smoothed(Smoothing.KEY)

    def scores(self) -> None:
        """Scale the units' sums to scores; quantise their probabilities as inputs."""
        softmax, functions = self.softmax, self.softmax.functions
        scaled = functions.scaled(self.operands.sums, self.operands.factors)
        # The scales of the values precede those of the keys.
        softmax.load_scales(self.operands.factors)
        probabilities = softmax.probabilities(functions.fixed_point(scaled))
        self._inputs(softmax.codes(probabilities))

    def _smoothed(self, operation: Smoothing) -> stream.Interface:
        """Rotate a head by the position of its token, and smooth it."""
        functions, control = self.softmax.functions, self.softmax.control
        integers = functions.integers(self.operands.numbers, spare=1)
        rotated = functions.rotated(integers, control.position)
        return functions.smoothed(rotated, operation, control.instruction.head)

    def _inputs(self, results: stream.Interface) -> None:
        """Store codes of inputs."""
        payload = results.payload
        link(self.softmax.m, results, self.store.codes, codes=payload.codes, last=payload.last)
