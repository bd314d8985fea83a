"""Datapaths if the newest token's key and value are in FP16 in its own step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Signal, Value
from amaranth.utils import ceil_log2

from hdl.p3llm.instructions import NpuOperation
from hdl.p3llm.npu.datapaths import Datapaths
from hdl.p3llm.npu.result_scaler import SUM_BITS
from hdl.p3llm.pim.operand_decoder import FRACTION_BITS, Mode


@dataclass(frozen=True)
class NewestDatapaths(Datapaths):
    """The datapaths of `Datapaths`, with a separate score and value of the newest token.

    The units also multiply its codes, which are in the banks by then. Therefore its score is
    replaced, and its probability in the units' inputs is 0.
    """

    @property
    def table(self) -> dict[NpuOperation, Callable[[], None]]:
        """Datapath of each operation."""
        own = {NpuOperation.WEIGH: self.weigh, NpuOperation.HEAD: self.residual}
        return super().table | own

    def key(self) -> None:
        """Store a key that is rotated and not smoothed yet."""
        super().key()
        self.m.d.comb += self.unit.key_write.eq(self._passes(self.unit.half.results))

    def query(self) -> None:
        """Multiply a query that is rotated and not smoothed yet by the key."""
        super().query()
        unit, score, keys = self.unit, self.unit.newest_score, self.unit.key_reader.slices
        halves = unit.half.results
        # The reads of the key start with those of the query, whose datapath is longer.
        passes = self._passes(halves)
        self.m.d.comb += [
            score.query.eq(halves.payload["values"]),
            score.strobe.eq(passes),
            score.last.eq(halves.payload.last),
            keys.ready.eq(passes),
        ]

    def weigh(self) -> None:
        """Multiply a value by the token's probability in the scaler, with all sums set to 1."""
        unit = self.unit
        self._halved(unit.number_reader.slices, self._number())
        halves, slices, results = unit.half.results, unit.scaler.slices, unit.scaler.results
        ones = Const(1 << FRACTION_BITS[Mode.LINEAR], SUM_BITS).replicate(unit.parameters.lanes)
        self.m.d.comb += [
            slices.valid.eq(halves.valid),
            Value.cast(slices.payload.sums).eq(ones),
            slices.payload.factors.eq(halves.payload["values"]),
            slices.payload.last.eq(halves.payload.last),
            # No stall occurs here. Using the scaler's ready would close a combinational loop with
            # the datapaths in which the scaler precedes these lanes.
            halves.ready.eq(1),
            self.stores.numbers.eq(results.valid),
            results.ready.eq(1),
        ]

    def scores(self) -> None:
        """Hold the token's probability before second-level scaling."""
        super().scores()
        halves = self.unit.half.results
        newest = self._is_newest(halves, "share")
        values = Value.cast(halves.payload["values"])
        lane = self.unit.position[: ceil_log2(self.unit.parameters.lanes)]
        with self.m.If(newest & self._passes(halves)):
            self.m.d.sync += self.unit.shares[self.unit.scalar].eq(values.word_select(lane, 16))

    def _weighed(self, index: Value) -> list[Value]:
        """Return a mask of the tokens of a slice whose values the units multiply."""
        lanes = self.unit.parameters.lanes
        return [index * lanes + i < self.unit.position for i in range(lanes)]

    def _met(self) -> Value:
        """Return a slice of scores, with the newest token's own score in place of the units'."""
        unit, results = self.unit, self.unit.scaler.results
        newest, lanes = self._is_newest(results, "score"), unit.parameters.lanes
        lane = unit.position[: ceil_log2(lanes)]
        own, values = unit.scores[unit.scalar], results.payload["values"]
        return Cat(Mux(newest & (lane == i), own, values[i]) for i in range(lanes))

    def _is_newest(self, results: Any, name: str) -> Value:
        """Return whether the current slice of tokens contains the newest one."""
        lanes = self.unit.parameters.lanes
        index = Signal(range(self.unit.parameters.slots // lanes), name=f"{name}_index")
        with self.m.If(self._passes(results)):
            self.m.d.sync += index.eq(Mux(results.payload.last, 0, index + 1))
        return index == self.unit.position >> ceil_log2(lanes)
