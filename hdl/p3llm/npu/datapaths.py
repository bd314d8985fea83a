"""Datapaths of vectors through the NPU's functions, one for each operation."""

from collections.abc import Callable
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Mux, Signal, Value
from amaranth.utils import ceil_log2

from hdl.nonlinear.activation_functions import Function
from hdl.p3llm.instructions import NpuOperation
from hdl.p3llm.npu.datapath_links import DatapathLinks, link
from hdl.p3llm.npu.number_lanes import FIXED_FRACTION
from hdl.p3llm.quantisers.key_smoothing import Operation as Smoothing
from hdl.stream.connect import join_handshake

PROBABILITY_FRACTION = 16
"""Fraction bits of the softmax's results."""


@dataclass(frozen=True)
class Datapaths(DatapathLinks):
    """Connections of the functions for each operation; one operation is active at a time."""

    @property
    def table(self) -> dict[NpuOperation, Callable[[], None]]:
        """Datapath of each operation."""
        vocabulary = {NpuOperation.COMPARE: self.compare, NpuOperation.PREDICT: self.predict}
        return (vocabulary if self.unit.parameters.vocabulary_size else {}) | {
            NpuOperation.LOAD: self.load,
            NpuOperation.LEAVE: self.leave,
            NpuOperation.NORM: self.norm,
            NpuOperation.SCALE: self.scale,
            NpuOperation.RESIDUAL: self.residual,
            NpuOperation.GATED: self.gated,
            NpuOperation.FACTORS: self.factors,
            NpuOperation.QUERY: self.query,
            NpuOperation.KEY: self.key,
            NpuOperation.VALUE: self.value,
            NpuOperation.SCORES: self.scores,
            NpuOperation.HEAD: self.scale,
            NpuOperation.ACTIVATE: self.activate,
        }

    def load(self) -> None:
        """Load a hidden state."""
        # The stream stalls until the operation runs.
        states = self.unit.states_in
        self.m.d.comb += [
            self.stores.numbers.eq(states.valid & self.running),
            states.ready.eq(self.running),
        ]

    def scale(self) -> None:
        """Scale sums to binary32."""
        self._scaled()
        results = self.unit.scaler.results
        self.m.d.comb += [self.stores.numbers.eq(results.valid), results.ready.eq(1)]

    def compare(self) -> None:
        """Scale the sums of the LM head, and update the argmax."""
        self._scaled()
        results, argmax = self.unit.scaler.results, self.unit.argmax
        # The last slice is still in the comparator tree when the operation ends.
        self.m.d.comb += [
            results.ready.eq(1),
            argmax.slices.valid.eq(results.valid),
            argmax.slices.payload["values"].eq(results.payload["values"]),
            argmax.slices.payload.count.eq(self.unit.parameters.lanes),
            argmax.results.ready.eq(1),
            self.finished.eq(results.valid & results.payload.last),
        ]

    def predict(self) -> None:
        """Output the argmax of a request's logits; a slice without values ends their row."""
        predictions, argmax = self.unit.predictions, self.unit.argmax
        found = argmax.results.payload
        self.m.d.comb += [
            argmax.slices.valid.eq(self.unit.starts),
            argmax.slices.payload.count.eq(0),
            argmax.slices.payload.last.eq(1),
            predictions.valid.eq(argmax.results.valid & found.last),
            predictions.payload.token.eq(found.index),
            predictions.payload["sum"].eq(found.value),
            argmax.results.ready.eq(predictions.ready | ~found.last),
            self.finished.eq(predictions.valid & predictions.ready),
        ]

    def mark_rows(self) -> None:
        """Mark the first slice of each request's logits: the one after its last prediction."""
        together, slices = self.unit.parameters.together, self.unit.argmax.slices
        request = self.unit.held.scalar[: ceil_log2(together)]
        begins = Signal(together, init=-1)
        own = begins.bit_select(request, 1)
        self.m.d.comb += slices.payload.first.eq(own)
        if together > 1:
            self.m.d.comb += slices.payload.context.eq(request)
        with self.m.If(slices.valid & slices.ready):
            self.m.d.sync += own.eq(slices.payload.last)

    def factors(self) -> None:
        """Load a head's factors into the smoothing unit."""
        slices = self.unit.factor_reader.slices
        self._smoothed(slices, self._factors(), Smoothing.BEGIN)
        # Factors have no result; the operation ends with the last one.
        ends = slices.valid & slices.payload.last
        self.m.d.comb += self.finished.eq(ends & self.unit.smoothing.vectors.ready)

    def query(self) -> None:
        """Rotate, smooth and quantise a query."""
        self._turned(Smoothing.QUERY)
        self._quantised(self.unit.smoothing.results)

    def key(self) -> None:
        """Rotate, smooth and quantise a key."""
        self._turned(Smoothing.KEY)
        self._cached(self.unit.smoothing.results)

    def value(self) -> None:
        """Quantise a value."""
        self._halved(self.unit.number_reader.slices, self._number())
        self._cached(self.unit.half.results)

    def activate(self) -> None:
        """Quantise numbers as inputs."""
        self._halved(self.unit.number_reader.slices, self._number())
        self._quantised(self.unit.half.results)

    def leave(self) -> None:
        """Output a hidden state."""
        slices, out = self.unit.number_reader.slices, self.unit.states_out
        self.m.d.comb += [
            out.valid.eq(slices.valid & self.running),
            out.payload["values"].eq(self._number()),
            out.payload.last.eq(slices.payload.last),
            slices.ready.eq(out.ready),
            self.finished.eq(slices.valid & out.ready & slices.payload.last),
        ]

    def norm(self) -> None:
        """Normalise and quantise a hidden state."""
        block, norm, factors = (
            self.unit.block.results,
            self.unit.norm,
            self.unit.factor_reader.slices,
        )
        self._blocked(spare=0)
        link(
            self.m,
            block,
            norm.states,
            values=block.payload["values"],
            last=block.payload.last,
        )
        self.m.d.comb += [
            norm.weights.valid.eq(factors.valid),
            norm.weights.payload.eq(self._factors()),
            factors.ready.eq(norm.weights.ready),
        ]
        # The norm's results are Q6.10; they are converted to FP16 and quantised like other vectors.
        results = norm.results
        self._halved(results, results.payload["values"], point=Const(FIXED_FRACTION))
        self._quantised(self.unit.half.results)

    def residual(self) -> None:
        """Add a linear layer's outputs to the hidden state."""
        self._scaled()
        scaled, numbers, single = (
            self.unit.scaler.results,
            self.unit.number_reader.slices,
            self.unit.single,
        )
        valid = join_handshake(self.m, [scaled, numbers], single.slices.ready)
        self.m.d.comb += [
            single.slices.valid.eq(valid),
            single.slices.payload["values"].eq(scaled.payload["values"]),
            single.slices.payload.addends.eq(self._number()),
            single.slices.payload.last.eq(scaled.payload.last),
            self.stores.numbers.eq(single.results.valid),
            single.results.ready.eq(1),
        ]

    def gated(self) -> None:
        """Multiply `up_proj` by SiLU of the gate, and quantise the products."""
        self._scaled()
        numbers, fixed, single = self.unit.number_reader.slices, self.unit.fixed, self.unit.single
        link(self.m, numbers, fixed.slices, values=self._number(), last=numbers.payload.last)
        link(
            self.m,
            fixed.results,
            self.unit.activation.inputs,
            values=fixed.results.payload["values"],
            function=Function.SILU.value,
            last=fixed.results.payload.last,
        )
        scaled, gates = self.unit.scaler.results, self.unit.activation.outputs
        valid = join_handshake(self.m, [scaled, gates], single.slices.ready)
        self.m.d.comb += [
            single.slices.valid.eq(valid),
            single.slices.payload.multiply.eq(1),
            single.slices.payload["values"].eq(scaled.payload["values"]),
            single.slices.payload.factors.eq(gates.payload["values"]),
            single.slices.payload.last.eq(scaled.payload.last),
        ]
        self._halved(single.results, single.results.payload["values"])
        self._quantised(self.unit.half.results)

    def _there(self, index: Value) -> list[Value]:
        """Return a mask of the tokens of a slice that exist."""
        lanes = self.unit.parameters.lanes
        return [index * lanes + i <= self.unit.position for i in range(lanes)]

    def scores(self) -> None:
        """Compute scores, probabilities, and their products with the values' scales as inputs."""
        self._scaled()
        self._largest_scale()
        link(
            self.m,
            self.unit.scaler.results,
            self.unit.fixed.slices,
            values=self.unit.scaler.results.payload["values"],
            last=self.unit.scaler.results.payload.last,
        )
        self._compared()
        self._shared()

    def _largest_scale(self) -> None:
        """Connect the values' scales to the second-level scaling."""
        p, factors = self.unit.parameters, self.unit.factor_reader.slices
        # The scales of existing tokens are loaded first, to find the largest.
        scales, index = self.unit.scaling.scales, Signal(range(p.slots // p.lanes))
        with self.m.If(self._passes(scales)):
            self.m.d.sync += index.eq(Mux(scales.payload.last, 0, index + 1))
        with self.m.If(self.fetching):
            keep = self._there(index)
            link(self.m, factors, scales, last=factors.payload.last)
            self.m.d.comb += [
                scales.payload["values"][i].eq(
                    self._factors().word_select(i, 16) & keep[i].replicate(16)
                )
                for i in range(p.lanes)
            ]

    def _compared(self) -> None:
        """Connect the scores of existing tokens to the softmax."""
        p = self.unit.parameters
        index = Signal(range(p.slots // p.lanes))
        keep, following = Signal(p.lanes), Signal.like(index)
        scores, fixed = self.unit.softmax.scores, self.unit.fixed.results
        link(
            self.m,
            fixed,
            scores,
            values=fixed.payload["values"],
            keep=keep,
            last=fixed.payload.last,
        )
        # Scores arrive in order; the mask of existing tokens is computed one slice ahead.
        self.m.d.comb += following.eq(Mux(self.unit.starts, 0, index + 1))
        with self.m.If(self.unit.starts | (scores.valid & scores.ready)):
            self.m.d.sync += [index.eq(following), keep.eq(Cat(self._there(following)))]

    def _shared(self) -> None:
        """Multiply probabilities by the values' scales, and quantise the products as inputs."""
        shares = self.unit.softmax.probabilities
        self._halved(shares, shares.payload["values"], point=Const(PROBABILITY_FRACTION))
        halves, inputs = self.unit.half.results, self.unit.scaling.probabilities
        link(self.m, halves, inputs, values=halves.payload["values"], last=halves.payload.last)
        # Products of probabilities and scales are at most 1; they are quantised as inputs.
        products = self.unit.scaling.results
        link(
            self.m,
            products,
            self.unit.probability.probabilities,
            values=products.payload["values"],
            last=products.payload.last,
        )
        self.m.d.comb += [
            self.stores.codes.eq(self.unit.probability.results.valid),
            self.unit.probability.results.ready.eq(1),
        ]
