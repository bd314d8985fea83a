"""The datapaths of attention if the NPU multiplies queries by keys."""

from dataclasses import dataclass

from amaranth.hdl import Value
from amaranth.lib import stream

from hdl.p3llm.npu.datapaths import Ends, Operands
from hdl.p3llm.npu.key_product import KeyProduct
from hdl.p3llm.npu.result_store import ResultStore
from hdl.p3llm.npu.softmax_datapath import SoftmaxDatapath
from hdl.p3llm.npu.vector_functions import link
from hdl.p3llm.quantisers.key_smoothing import Operation as Smoothing
from hdl.stream.connect import connect_streams


@dataclass(frozen=True)
class NpuScoreDatapaths:
    """Keys are quantised before the rotary embedding, and rotated for each query (Section V-A).

    Parameters
    ----------
    softmax : SoftmaxDatapath
        The datapath from scores to inputs.
    operands : Operands
        What an operation reads.
    store : ResultStore
        Where results are stored.
    ends : Ends
        The end of an operation.
    product : KeyProduct
        The keys, and their product with a query.
    """

    softmax: SoftmaxDatapath
    operands: Operands
    store: ResultStore
    ends: Ends
    product: KeyProduct

    def query(self) -> None:
        """Rotate a query, and store it with the smoothing factors of its keys."""
        m, functions = self.softmax.m, self.softmax.functions
        integers = functions.integers(self.operands.numbers, spare=1)
        rotated = functions.rotated(integers, self.softmax.control.position)
        connect_streams(m, rotated, self.product.queries)
        connect_streams(m, self.operands.factors, self.product.factors)
        # Factors do not stall, but a query waits for its second pass, so it is complete last.
        m.d.comb += self.ends.finished.eq(rotated.valid & rotated.ready & rotated.payload.last)

    def key(self) -> stream.Interface:
        """Smooth a key without rotation."""
        functions, given = self.softmax.functions, self.softmax.control.instruction
        return functions.smoothed(
            functions.halves(self.operands.numbers), Smoothing.KEY, given.head
        )

    def scores(self) -> None:
        """Dequantise and rotate keys, multiply them by the query; quantise probabilities."""
        softmax, functions, product = self.softmax, self.softmax.functions, self.product
        m, control = softmax.m, softmax.control
        softmax.load_scales(self.operands.factors)
        with m.If(~control.fetching):
            connect_streams(m, self.operands.factors, product.scales)
        link(m, product.integers, functions.scaler.slices)
        m.d.comb += Value.cast(functions.scaler.slices.payload).eq(
            Value.cast(product.integers.payload)
        )
        integers = functions.integers(functions.scaler.results, spare=1)
        m.d.comb += product.rotates.eq(integers.valid & integers.ready & integers.payload.last)
        probabilities = softmax.probabilities(functions.fixed_point(product.scores))
        # While the query is stored, the conversion to FP16 is used for keys; then for
        # probabilities.
        with m.If(product.active):
            connect_streams(m, functions.rotated(integers, product.position), product.rotated)
        with m.Else():
            codes = softmax.codes(probabilities)
            payload = codes.payload
            link(m, codes, self.store.codes, codes=payload.codes, last=payload.last)
