"""Sums of a linear layer, some rows at a time for one sample after the other, put into slices."""

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.fp16 import FP16
from hdl.lad.linear.linear_module import LinearModuleParameters
from hdl.stream.gearbox import Gearbox
from hdl.unit import Unit


class SumSlices(Unit):
    """Give each sample's sums in slices, in the order slice by slice, in each sample by sample.

    **Latency** 1 cycle from the sums that complete a slice. **Throughput** a transfer a cycle.

    Parameters
    ----------
    parameters : LinearModuleParameters
        Of the linear module.
    batch : int
        Samples.
    most : int
        Transfers of a sample at most.

    Members
    -------
    groups : In
        Transfers of each sample, 1 at least.
    rest : In
        Sums of the last of them.
    sums : In(stream)
        From the linear module.
    slices : Out(stream)
        Slices' `values`.
    """

    def __init__(self, *, parameters: LinearModuleParameters, batch: int, most: int) -> None:
        self.parameters, self.batch, self.most = parameters, batch, most
        values = data.StructLayout({"values": parameters.vector.vector_layout})
        super().__init__(
            {
                "groups": In(range(most + 1)),
                "rest": In(range(parameters.units + 1)),
                "sums": In(stream.Signature(parameters.output_layout)),
                "slices": Out(stream.Signature(values)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Give each sample a gearbox; they fill, and are emptied, in turns."""
        m = Module()
        p = self.parameters
        boxes = [
            Gearbox(shape=FP16, items_in=p.units, items_out=p.vector.head_size)
            for _ in range(self.batch)
        ]
        filled, emptied = Signal(range(self.batch)), Signal(range(self.batch))
        group, last = Signal(range(self.most)), Signal()
        comes, leaves = self.sums.valid & self.sums.ready, self.slices.valid & self.slices.ready
        m.d.comb += [
            last.eq(group == self.groups - 1),
            self.sums.ready.eq(Array(box.source.ready for box in boxes)[filled]),
            self.slices.valid.eq(Array(box.sink.valid for box in boxes)[emptied]),
        ]
        for sample, box in enumerate(boxes):
            m.submodules[f"sample_{sample}"] = box
            m.d.comb += [
                # Items go to all; valid says whose they are.
                box.source.payload["items"].eq(self.sums.payload.sums),
                box.source.payload.last.eq(last),
                box.source.payload.count.eq(self.rest),
                box.source.valid.eq(self.sums.valid & (filled == sample)),
                box.sink.ready.eq(self.slices.ready & (emptied == sample)),
            ]
            with m.If(emptied == sample):
                m.d.comb += self.slices.payload["values"].eq(box.sink.payload["items"])
        # Samples fill alike: their slices are complete one behind the other.
        for turn, moves in ((filled, comes), (emptied, leaves)):
            with m.If(moves):
                m.d.sync += turn.eq(Mux(turn == self.batch - 1, 0, turn + 1))
        # All samples have had their part of a group: the next one comes.
        with m.If(comes & (filled == self.batch - 1)):
            m.d.sync += group.eq(Mux(last, 0, group + 1))
        return m
