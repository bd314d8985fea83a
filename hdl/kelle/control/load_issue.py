"""Selects the source of the array's next tile: the weights, or the blocks of the KV fetch.

Section 6 of the paper: weights and KV vectors have separate memories, so that neither waits for the
other's fetch. This unit merges their tiles in the order of the program.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.instructions import Operation, projects
from hdl.kelle.parameters import KelleParameters
from hdl.unit import Unit


class LoadIssue(Unit):
    """Pass the beats of each operation from its source to the array.

    **Latency** 0 cycles. **Throughput** one beat per cycle, also from operation to operation.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    operations : In(stream)
        Operations, in the order of the program.
    weights, blocks : In(stream)
        Beats of weights; beats of keys and values.
    loads : Out(stream)
        The beats of both, in the order of the program.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        beats = stream.Signature(p.array.array.weights_layout)
        super().__init__(
            {
                "operations": In(stream.Signature(p.operation_layout)),
                "weights": In(stream.Signature(p.weights_layout)),
                "blocks": In(beats),
                "loads": Out(beats),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the beats of the current operation, and connect its source."""
        m = Module()
        p = self.parameters
        # Weights have one byte; keys and values have two, each a tile of its own.
        tile = p.array.array.load_cycles
        block = 2 * p.head_slices * tile
        projection, down = (
            p.head_slices * p.hidden_slices * tile,
            p.head_slices * p.intermediate_slices * tile,
        )
        most = max(projection, down, (p.cache_tiles + 1) * block)
        beat, last = Signal(range(most)), Signal(range(most))
        # Beats have no header: the count alone determines the operation to which they belong.
        operation = self.operations.payload.operation
        outside = projects(operation)
        with m.Switch(operation):
            # All slots, including empty ones, which give zeros.
            with m.Case(Operation.SCORE):
                m.d.comb += last.eq(p.cache_tiles * block - 1)
            # The arriving token has a tile of its own.
            with m.Case(Operation.OWN):
                m.d.comb += last.eq(block - 1)
            with m.Case(Operation.ATTEND):
                m.d.comb += last.eq((p.cache_tiles + 1) * block - 1)
            with m.Case(Operation.DOWN):
                m.d.comb += last.eq(down - 1)
            with m.Default():
                m.d.comb += last.eq(projection - 1)
        # The array's weights have 8 bits: narrower ones are sign-extended.
        weights = Cat(
            Cat(weight, weight[-1].replicate(8 - p.weight_bits))
            for row in self.weights.payload
            for weight in row
        )
        transfers = self.loads.valid & self.loads.ready
        # Only the source of the current operation is ready; the other one waits.
        waits = self.operations.valid & self.loads.ready
        m.d.comb += [
            self.loads.payload.eq(Mux(outside, weights, self.blocks.payload)),
            self.loads.valid.eq(
                self.operations.valid & Mux(outside, self.weights.valid, self.blocks.valid)
            ),
            self.weights.ready.eq(waits & outside),
            self.blocks.ready.eq(waits & ~outside),
            self.operations.ready.eq(transfers & (beat == last)),
        ]
        with m.If(transfers):
            m.d.sync += beat.eq(Mux(beat == last, 0, beat + 1))
        return m
