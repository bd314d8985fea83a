"""The ways of vectors through the NPU's units: one for each of its operations."""

from collections.abc import Callable
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Mux, Signal, Value

from hdl.nonlinear.activation_functions import Function
from hdl.p3llm.npu.npu_instructions import NpuOperation
from hdl.p3llm.npu.number_lanes import FIXED_FRACTION
from hdl.p3llm.npu.way_links import WayLinks, link
from hdl.p3llm.quantisers.key_smoothing import Operation as Smoothing
from hdl.stream.connect import join_handshake

PROBABILITY_FRACTION = 16
"""Fraction bits of what the softmax gives."""


@dataclass(frozen=True)
class Ways(WayLinks):
    """What is connected while an operation is under way; no two are at once."""

    @property
    def table(self) -> dict[NpuOperation, Callable[[], None]]:
        """The way of each operation."""
        vocabulary = {NpuOperation.COMPARE: self.compare, NpuOperation.PREDICT: self.predict}
        return (vocabulary if self.unit.parameters.vocabulary else {}) | {
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
        """Take a hidden state."""
        # A state waits outside until its operation runs.
        states = self.unit.states_in
        self.m.d.comb += [
            self.stores.numbers.eq(states.valid & self.running),
            states.ready.eq(self.running),
        ]

    def scale(self) -> None:
        """Make numbers of sums."""
        self._scaled()
        results = self.unit.scaler.results
        self.m.d.comb += [self.stores.numbers.eq(results.valid), results.ready.eq(1)]

    def compare(self) -> None:
        """Make numbers of the vocabulary's sums, of which the largest is kept."""
        self._scaled()
        results, largest = self.unit.scaler.results, self.unit.largest
        self.m.d.comb += [
            results.ready.eq(1),
            largest.strobe.eq(results.valid),
            largest.values.eq(results.payload["values"]),
            largest.last.eq(results.payload.last),
            self.finished.eq(largest.compared),
        ]

    def predict(self) -> None:
        """Give the token of the largest sum; the next text's are numbered from 0 again."""
        predictions, largest = self.unit.predictions, self.unit.largest
        self.m.d.comb += [
            predictions.valid.eq(self.running),
            predictions.payload.token.eq(largest.token),
            predictions.payload["sum"].eq(largest.sum),
            largest.clear.eq(self.running & predictions.ready),
            self.finished.eq(self.running & predictions.ready),
        ]

    def factors(self) -> None:
        """Give a head's factors to the smoothing."""
        slices = self.unit.factor_reader.slices
        self._smoothed(slices, self._factors(), Smoothing.BEGIN)
        # Factors go into a memory, nothing comes out: the last one ends it.
        ends = slices.valid & slices.payload.last
        self.m.d.comb += self.finished.eq(ends & self.unit.smoothing.vectors.ready)

    def query(self) -> None:
        """Turn, smooth and quantise a query."""
        self._turned(Smoothing.QUERY)
        self._quantised(self.unit.smoothing.results)

    def key(self) -> None:
        """Turn, smooth and quantise a key."""
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
        """Give a hidden state."""
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
        # What the norm gives is Q6.10, and its way on is that of any FP16 vector.
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
        """Multiply a linear layer's outputs by SiLU of the other half's."""
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
        """Return which tokens of a slice are there."""
        lanes = self.unit.parameters.lanes
        return [index * lanes + i <= self.unit.position for i in range(lanes)]

    def _weighed(self, index: Value) -> list[Value]:
        """Return which tokens of a slice have values that the units multiply."""
        return self._there(index)

    def _met(self) -> Value:
        """Return a slice of scores of keys that the units met."""
        return self.unit.scaler.results.payload["values"]

    def scores(self) -> None:
        """Make scores, probabilities, and inputs with the values' scales in them."""
        self._scaled()
        self._largest_scale()
        link(
            self.m,
            self.unit.scaler.results,
            self.unit.fixed.slices,
            values=self._met(),
            last=self.unit.scaler.results.payload.last,
        )
        self._compared()
        self._shared()

    def _largest_scale(self) -> None:
        """Give the values' scales to the second-level scaling."""
        p, factors = self.unit.parameters, self.unit.factor_reader.slices
        # First the scales alone, of tokens that are there: the buffer finds the largest.
        scales, index = self.unit.scaling.scales, Signal(range(p.capacity // p.lanes))
        with self.m.If(self._passes(scales)):
            self.m.d.sync += index.eq(Mux(scales.payload.last, 0, index + 1))
        with self.m.If(self.fetching):
            keep = self._weighed(index)
            link(self.m, factors, scales, last=factors.payload.last)
            self.m.d.comb += [
                scales.payload["values"][i].eq(
                    self._factors().word_select(i, 16) & keep[i].replicate(16)
                )
                for i in range(p.lanes)
            ]

    def _compared(self) -> None:
        """Give scores to the softmax, of tokens that are there."""
        p = self.unit.parameters
        index = Signal(range(p.capacity // p.lanes))
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
        # Scores come in order; their number says whether their tokens are there, a slice before.
        self.m.d.comb += following.eq(Mux(self.unit.starts, 0, index + 1))
        with self.m.If(self.unit.starts | (scores.valid & scores.ready)):
            self.m.d.sync += [index.eq(following), keep.eq(Cat(self._there(following)))]

    def _shared(self) -> None:
        """Make inputs of probabilities and the values' scales."""
        shares = self.unit.softmax.probabilities
        self._halved(shares, shares.payload["values"], point=Const(PROBABILITY_FRACTION))
        halves, inputs = self.unit.half.results, self.unit.scaling.probabilities
        link(self.m, halves, inputs, values=halves.payload["values"], last=halves.payload.last)
        # Products of probabilities and scales are at most 1, and become codes of inputs.
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
