"""Datapaths if keys are quantised before the rotary embedding."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Signal, Value
from amaranth.utils import ceil_log2

from hdl.p3llm.npu.datapath_links import link
from hdl.p3llm.npu.datapaths import Datapaths
from hdl.p3llm.pim.operand_decoder import FRACTION_BITS, Mode
from hdl.p3llm.quantisers.key_smoothing import Operation as Smoothing


@dataclass(frozen=True)
class PreRopeDatapaths(Datapaths):
    """The datapaths of `Datapaths`, with Q K^T in the NPU instead of the compute units."""

    def key(self) -> None:
        """Smooth and quantise a key without rotation."""
        self._halved(self.unit.number_reader.slices, self._number())
        halves = self.unit.half.results
        self._smoothed(halves, halves.payload["values"], Smoothing.KEY)
        self._cached(self.unit.smoothing.results)

    def query(self) -> None:
        """Rotate a query and store it with the smoothing factors of its keys."""
        unit, halves, factors = self.unit, self.unit.half.results, self.unit.factor_reader.slices
        values = Value.cast(halves.payload["values"])
        self._blocked(spare=1)
        self._rotated(unit.position, unit.turned_point)
        link(self.m, halves, unit.query.source, item=values, last=halves.payload.last)
        own, last = self._factors(), factors.payload.last
        link(self.m, factors, unit.key_factors.source, item=own, last=last)
        # Factors do not stall, but a query waits for its second pass, so it is complete last.
        self.m.d.comb += self.finished.eq(self._passes(halves) & halves.payload.last)

    def scores(self) -> None:
        """Dequantise and rotate keys, multiply them by the query; then as `Datapaths`."""
        self._dequantised()
        self._largest_scale()
        scaled, block = self.unit.scaler.results, self.unit.block
        values, last = scaled.payload["values"], scaled.payload.last
        link(self.m, scaled, block.vectors, values=values, spare=1, last=last)
        # While the query is stored, the conversion to FP16 is used for keys; then for
        # probabilities.
        with self.m.If(self.unit.query.sink.valid):
            self._multiplied()
        with self.m.Else():
            self._shared()
        self._gathered()
        self._compared()

    def _dequantised(self) -> None:
        """Connect codes minus zero points, their scales and factors to the scaler."""
        unit, keys, scales = self.unit, self.unit.key_reader.slices, self.unit.factor_reader.slices
        given, scaler = keys.payload, unit.scaler.slices
        m, lanes, factors = self.m, unit.parameters.lanes, unit.key_factors
        taken = scaler.valid & scaler.ready
        ready = keys.valid & scales.valid & ~self.fetching
        m.d.comb += [
            scaler.valid.eq(ready & factors.sink.valid),
            keys.ready.eq(taken),
            factors.sink.ready.eq(taken),
            factors.release.eq(given.final),
            # A slice of scales belongs to as many tokens.
            scales.ready.eq(taken & given["last"] & (given.token == lanes - 1)),
            unit.key_scale.eq(self._factors().word_select(given.token, 16)),
            Value.cast(scaler.payload.factors).eq(factors.sink.payload),
            scaler.payload.last.eq(given["last"]),
        ]
        # The integer in the format of the units' sums of Q K^T.
        for i in range(lanes):
            integer = given["values"][i] << FRACTION_BITS[Mode.QK]
            m.d.comb += scaler.payload.sums[i].eq(integer)

    def _multiplied(self) -> None:
        """Rotate keys by their tokens' positions, and multiply them by the query."""
        unit, score, query = self.unit, self.unit.key_score, self.unit.query
        block, halves = unit.block.results, unit.half.results
        position, _final = self._token("turned", self._passes(block) & block.payload.last)
        self._rotated(position, unit.turned_point)
        # A slice of the query is always valid: its replay has no gaps.
        _met, final = self._token("met", halves.valid & halves.payload.last)
        self.m.d.comb += [
            halves.ready.eq(1),
            query.sink.ready.eq(halves.valid),
            query.release.eq(halves.payload.last & final),
            Value.cast(score.query).eq(query.sink.payload),
            score.key.eq(halves.payload["values"]),
            score.strobe.eq(halves.valid),
            score.last.eq(halves.payload.last),
        ]

    def _gathered(self) -> None:
        """Collect the scores of a slice of tokens."""
        score, fixed = self.unit.key_score, self.unit.fixed.slices
        lanes = self.unit.parameters.lanes
        scored, last = self._token("scored", score.valid)
        before = Signal(32 * (lanes - 1), name="scores_before")
        values = Cat(before, score.score.as_value())
        with self.m.If(score.valid):
            self.m.d.sync += before.eq(values[32:])
        # The softmax has room for all scores of a row, so that none of them stalls.
        self.m.d.comb += [
            fixed.valid.eq(score.valid & scored[: ceil_log2(lanes)].all()),
            Value.cast(fixed.payload["values"]).eq(values),
            fixed.payload.last.eq(last),
        ]

    def _token(self, name: str, passes: Value) -> tuple[Signal, Value]:
        """Return the index of the current token, and whether it is the last one."""
        p, unit = self.unit.parameters, self.unit
        token = Signal(range(p.slots), name=f"{name}_token")
        with self.m.If(unit.starts):
            self.m.d.sync += token.eq(0)
        with self.m.Elif(passes):
            self.m.d.sync += token.eq(token + 1)
        return token, token + 1 == unit.key_reader.count << ceil_log2(p.lanes)
