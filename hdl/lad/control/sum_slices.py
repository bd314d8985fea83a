"""Sums of a linear layer, some rows at a time for one sample after the other, put into slices."""

from typing import Annotated, Any

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.fp16 import FP16
from hdl.parameters import Parameters, Range, parameter_object
from hdl.stream.gearbox import Gearbox
from hdl.unit import Unit


@parameter_object
class SumSlicesParameters(Parameters):
    """Dimensions of slices of sums; they also drive their testbench.

    Parameters
    ----------
    units : int
        Sums of a transfer.
    head_size : int
        Sums of a slice.
    batch : int
        Samples, whose sums of the same rows follow each other.
    groups : int
        Transfers of each sample at most, in a linear layer.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    units: Annotated[int, Range(2, 16, "sums")] = 7
    head_size: Annotated[int, Range(2, 256, "sums")] = 128
    batch: Annotated[int, Range(1, 64, "samples")] = 4
    groups: Annotated[int, Range(1, 1 << 17, "groups")] = 3146

    @property
    def sums_layout(self) -> data.ArrayLayout:
        """Payload of the stream of sums."""
        return data.ArrayLayout(FP16, self.units)

    @property
    def slice_layout(self) -> data.StructLayout:
        """Payload of the stream of slices."""
        return data.StructLayout({"values": data.ArrayLayout(FP16, self.head_size)})


class SumSlices(Unit):
    """Give each sample's sums in slices, in the order slice by slice, in each sample by sample.

    A layer's sums begin a slice. Where they do not fill their last one, it is filled up with what
    stands behind them in their last transfer, and with 0.

    **Latency** 1 cycle from the sums that complete a slice. **Throughput** a transfer a cycle on
    the narrower side, also from layer to layer where sums fill their slices.

    Parameters
    ----------
    parameters : SumSlicesParameters
        Dimensions.

    Members
    -------
    groups : In(range(groups + 1))
        Transfers of each sample, 1 at least; stands from a layer's first sums until the last ones
        are taken, and may then be the next layer's, whatever slices are still to come.
    rest : In(range(units + 1))
        Sums of the last of them, 1 at least; stands as long.
    sums : In(stream)
        From the linear module: of each group of rows the sums of all samples in turns.
    slices : Out(stream)
        Slices' `values`.

    Raises
    ------
    ValueError
        By `SumSlicesParameters`.
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

    def elaborate(self, platform: Any) -> Module:
        """Give each sample a gearbox; they fill, and are emptied, in turns."""
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
                # Items go to all; valid says whose they are.
                box.source.payload["items"].eq(self.sums.payload),
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
                m.d.sync += turn.eq(Mux(turn == p.batch - 1, 0, turn + 1))
        # All samples have had their part of a group: the next one comes.
        with m.If(comes & (filled == p.batch - 1)):
            m.d.sync += group.eq(Mux(last, 0, group + 1))
        return m
