"""The product sequencer if keys are quantised before the rotary embedding."""

from amaranth.hdl import Module, Signal, Value

from hdl.p3llm.control.product_sequencer import ProductSequencer
from hdl.p3llm.pim.operand_decoder import Mode


class PreRopeSequencer(ProductSequencer):
    """`ProductSequencer`, except that it reads a head's keys for the NPU, unit by unit.

    Keys are read in the order in which units would multiply them: a set's zero points, the scales
    of its keys and values, its keys. No inputs are written, and no sums are read. ``inputs`` of the
    instruction are the places of keys and zero points in the NPU.

    **Latency** as of `ProductSequencer`. **Throughput** of keys: one column of one unit per cycle.
    """

    @property
    def of_keys(self) -> Value:
        """Whether the product is Q K^T."""
        return self.held.mode == Mode.QK

    def _inputs(self, m: Module, issues: Signal, final_step: Value) -> None:
        """Write inputs, except for Q K^T."""
        with m.If(self.of_keys):
            m.next = "METADATA"
        with m.Else():
            super()._inputs(m, issues, final_step)

    def _metadata(self, m: Module, issues: Signal) -> None:
        """Load the units' metadata, or read the keys' zero points for the NPU."""
        with m.If(self.of_keys):
            ends = self._read_keys(m, issues, "zeros", 1)
            with m.If(ends):
                m.d.sync += self.table.eq(0)
                m.next = "TABLE"
        with m.Else():
            super()._metadata(m, issues)

    def _multiply(self, m: Module, issues: Signal, last: dict[str, Signal]) -> None:
        """Multiply a column, or read keys."""
        with m.If(self.of_keys):
            ends = self._read_keys(m, issues, "keys", 0)
            with m.If(ends):
                m.d.sync += self.step.eq(self.step + 1)
                with m.If(last["step"]):
                    m.d.sync += [self.step.eq(0), self.round.eq(self.round + 1)]
                    with m.If(last["set"]):
                        m.next = "METADATA"
                    with m.If(last["round"]):
                        m.next = "IDLE"
        with m.Else():
            super()._multiply(m, issues, last)

    def _read_keys(self, m: Module, issues: Signal, name: str, number: int) -> Value:
        """Read a position for the NPU; return whether the column of its last unit is accepted."""
        units, place = self.parameters.units, self.words[number]
        self._alone(m, issues)
        m.d.comb += [
            getattr(self.reads, name).eq(self.taken),
            self.reads.place.eq(place + self._scattered()),
        ]
        ends = self.taken & (self.unit == units - 1)
        with m.If(self.taken):
            m.d.sync += self.unit.eq(self.unit + 1)
        with m.If(ends):
            m.d.sync += [
                self.position_now.eq(self.position_now + 1),
                place.eq(place + units),
            ]
        return ends
