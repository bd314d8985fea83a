"""Conversion of a linear layer's sums, a few rows of all samples at a time, into slices."""

from typing import Annotated

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.fp16 import FP16
from hdl.parameters import Parameters, Range, parameter_object
from hdl.stream.gearbox import Gearbox
from hdl.unit import Unit


@parameter_object
class SumSlicesParameters(Parameters):
    """Dimensions of the conversion; they also configure its testbench.

    Parameters
    ----------
    units : int
        Sums per transfer.
    head_size : int
        Sums per slice.
    batch : int
        Number of samples, whose sums of the same rows follow each other.
    groups : int
        Largest number of transfers per sample in a linear layer.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    units: Annotated[int, Range(2, 16, "sums")] = 7
    head_size: Annotated[int, Range(2, 256, "sums")] = 128
    batch: Annotated[int, Range(1, 64, "samples")] = 4
    groups: Annotated[int, Range(1, 1 << 17, "groups")] = 3146

    @property
    def sums_layout(self) -> data.ArrayLayout:
        """Payload of `sums`."""
        return data.ArrayLayout(FP16, self.units)

    @property
    def slice_layout(self) -> data.StructLayout:
        """Payload of `slices`."""
        return data.StructLayout({"values": data.ArrayLayout(FP16, self.head_size)})


class SumSlices(Unit):
    """Collect the sums of each sample into slices; for each slice index, output all samples.

    A layer's first sum is the first of a slice. The last slice is filled up with the surplus
    elements of the last transfer, and with 0.

    **Latency** 1 cycle from the sums that complete a slice. **Throughput** one transfer per cycle
    on the narrower side, also between layers if the sums fill their slices.

    Parameters
    ----------
    parameters : SumSlicesParameters
        Units, head size and batch.

    Members
    -------
    groups : In(range(groups + 1))
        Transfers per sample, at least 1. Constant from a layer's first sums until its last ones are
        transferred; it may then change, even if slices are still to be output.
    rest : In(range(units + 1))
        Sums in the last of these transfers, at least 1; constant for the same time.
    sums : In(stream)
        From the linear module: for each group of rows the sums of all samples, one sample per
        transfer.
    slices : Out(stream)
        The `values` of a slice.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `SumSlicesParameters`.
    """

    def __init__(self, *, parameters: SumSlicesParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "groups": In(range(p.groups + 1)),
                "rest": In(range(p.units + 1)),
                "sums": In(stream.Signature(p.sums_layout)),
                "slices": Out(stream.Signature(p.slice_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Assign a gearbox to each sample; fill and empty the gearboxes round-robin."""
        m = Module()
        p = self.parameters
        boxes = [
            Gearbox(shape=FP16, items_in=p.units, items_out=p.head_size) for _ in range(p.batch)
        ]
        filled, emptied = Signal(range(p.batch)), Signal(range(p.batch))
        group, last = Signal(range(p.groups)), Signal()
        comes, leaves = self.sums.valid & self.sums.ready, self.slices.valid & self.slices.ready
        m.d.comb += [
            last.eq(group == self.groups - 1),
            self.sums.ready.eq(Array(box.source.ready for box in boxes)[filled]),
            self.slices.valid.eq(Array(box.sink.valid for box in boxes)[emptied]),
        ]
        for sample, box in enumerate(boxes):
            m.submodules[f"sample_{sample}"] = box
            m.d.comb += [
                # The items are connected to all gearboxes; `valid` selects the sample.
                box.source.payload["items"].eq(self.sums.payload),
                box.source.payload.last.eq(last),
                box.source.payload.count.eq(self.rest),
                box.source.valid.eq(self.sums.valid & (filled == sample)),
                box.sink.ready.eq(self.slices.ready & (emptied == sample)),
            ]
            with m.If(emptied == sample):
                m.d.comb += self.slices.payload["values"].eq(box.sink.payload["items"])
        # All samples receive equal numbers of sums: their slices are complete in the samples'
        # order.
        for turn, moves in ((filled, comes), (emptied, leaves)):
            with m.If(moves):
                m.d.sync += turn.eq(Mux(turn == p.batch - 1, 0, turn + 1))
        # A group is complete when all samples have received their sums.
        with m.If(comes & (filled == p.batch - 1)):
            m.d.sync += group.eq(Mux(last, 0, group + 1))
        return m
