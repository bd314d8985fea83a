"""Connections between parts of the vector unit, from which the datapaths are composed."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from hdl.arith.float_format import BINARY16
from hdl.p3llm.instructions import NpuOperation
from hdl.p3llm.quantisers.key_smoothing import Operation as Smoothing


@dataclass(frozen=True)
class Stores:
    """Write strobes of a slice: of `numbers`, and of `codes` as inputs."""

    numbers: Signal
    codes: Signal


@dataclass(frozen=True)
class DatapathLinks:
    """Connections between parts of the vector unit, from which the datapaths are composed.

    Parameters
    ----------
    m : Module
        Module of the vector unit.
    unit : VectorUnit
        The vector unit, with its memories' readers and its functions.
    stores : Stores
        Write strobes of the operation.
    finished : Signal
        The operation ends; for operations without a store.
    fetching : Signal
        The values' scales are being loaded into the second-level scaling.
    running : Signal
        The operation is in state RUN.
    """

    m: Module
    unit: Any
    stores: Stores
    finished: Signal
    fetching: Signal
    running: Signal

    @staticmethod
    def _passes(results: Any) -> Value:
        """Return whether a slice is transferred."""
        return results.valid & results.ready

    def _number(self) -> Value:
        """Return the slice of binary32 numbers at the reader's output."""
        return self.unit.numbers.read_data

    def _factors(self) -> Value:
        """Return the slice of FP16 numbers at the reader's output: a column, or half of one."""
        p, unit = self.unit.parameters, self.unit
        columns = Cat(columns.read_data for columns in unit.columns)
        column = columns.word_select(unit.factors_of, p.channel.unit.column_bits)
        if p.lanes == p.elements:
            return column
        # A column of FP16 numbers has two slices.
        low = unit.factor_reader.slices.payload.low
        return column.word_select(low, 16 * p.lanes)

    def _scaled(self) -> None:
        """Connect sums and their factors to the scaler."""
        sums, factors, scaler = (
            self.unit.sum_reader.slices,
            self.unit.factor_reader.slices,
            self.unit.scaler,
        )
        # A head's sums have only the common factor, the largest of its values' scales.
        alone = self.unit.held.operation == NpuOperation.HEAD
        both = sums.valid & (factors.valid | alone) & ~self.fetching
        one = Const(BINARY16.one, 16).replicate(self.unit.parameters.lanes)
        self.m.d.comb += [
            scaler.slices.valid.eq(both),
            Value.cast(scaler.slices.payload.sums).eq(self.unit.shown_sums),
            scaler.slices.payload.factors.eq(Mux(alone, one, self._factors())),
            scaler.slices.payload.last.eq(sums.payload.last),
            sums.ready.eq(scaler.slices.ready & both),
            factors.ready.eq(scaler.slices.ready & both),
        ]

    def _blocked(self, *, spare: int) -> None:
        """Connect binary32 numbers to the conversion to integers."""
        link(
            self.m,
            self.unit.number_reader.slices,
            self.unit.block.vectors,
            values=self._number(),
            spare=spare,
            last=self.unit.number_reader.slices.payload.last,
        )

    def _halved(self, source: Any, values: Any, point: Any = None) -> None:
        """Convert binary32 numbers, or integers with a binary point, to FP16."""
        half = self.unit.half.slices
        self.m.d.comb += half.payload.whole.eq(point is not None)
        if point is None:
            link(self.m, source, half, singles=values, last=source.payload.last)
            return
        link(self.m, source, half, point=point, last=source.payload.last)
        self.m.d.comb += [
            half.payload.integers[i].eq(values[i]) for i in range(self.unit.parameters.lanes)
        ]

    def _quantised(self, source: Any) -> None:
        """Quantise FP16 as inputs."""
        link(
            self.m,
            source,
            self.unit.e4m3.vectors,
            values=source.payload["values"],
            last=source.payload.last,
        )
        self.m.d.comb += [
            self.stores.codes.eq(self.unit.e4m3.results.valid),
            self.unit.e4m3.results.ready.eq(1),
        ]

    def _cached(self, source: Any) -> None:
        """Quantise FP16 for the cache."""
        results, codes = self.unit.int4.results, self.unit.codes
        values = source.payload["values"]
        link(self.m, source, self.unit.int4.vectors, values=values, last=source.payload.last)
        # Codes of keys and values share a port; `value` distinguishes them.
        fields = {name: getattr(results.payload, name) for name, _ in results.payload.shape()}
        held = self.unit.held
        fields["value"] = held.operation == NpuOperation.VALUE
        fields["channel"] = held.head[: self.unit.parameters.channel_bits]
        link(self.m, results, codes, **fields)
        self.m.d.comb += self.finished.eq(results.valid & codes.ready & results.payload.last)

    def _smoothed(self, source: Any, values: Any, operation: Smoothing) -> None:
        """Connect keys, queries or factors to the smoothing."""
        link(
            self.m,
            source,
            self.unit.smoothing.vectors,
            operation=operation,
            head=self.unit.held.head,
            values=values,
            last=source.payload.last,
        )

    def _turned(self, operation: Smoothing) -> None:
        """Rotate a head by its position, and smooth it."""
        block = self.unit.block.results
        self._blocked(spare=1)
        # The vector's binary point is held until it has passed the rotation.
        point = Signal.like(block.payload.point, name=f"point_of_{operation.name.lower()}")
        with self.m.If(block.valid):
            self.m.d.sync += point.eq(block.payload.point)
        self._rotated(self.unit.position, point)
        self._smoothed(self.unit.half.results, self.unit.half.results.payload["values"], operation)

    def _rotated(self, position: Any, point: Any) -> None:
        """Rotate integers by a position, and convert the results to FP16 with a binary point."""
        block, rotary = self.unit.block.results, self.unit.rotary
        link(
            self.m,
            block,
            rotary.vectors,
            values=block.payload["values"],
            position=position,
            last=block.payload.last,
        )
        results = rotary.rotated
        self._halved(results, results.payload["values"], point=point)


def link(m: Module, source: Any, sink: Any, **fields: Any) -> None:
    """Connect two streams whose payloads have different fields."""
    m.d.comb += [sink.valid.eq(source.valid), source.ready.eq(sink.ready)]
    m.d.comb += [Value.cast(getattr(sink.payload, name)).eq(fields[name]) for name in fields]
