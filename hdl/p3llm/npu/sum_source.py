"""The slices of the compute units' sums, from the collectors of all pseudo-channels."""

from amaranth.hdl import Module, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.p3llm.npu.result_scaler import SUM_BITS
from hdl.p3llm.npu.spread_reader import SpreadReader, distribution
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.places import Places
from hdl.unit import Unit


class SumSource(Unit):
    """Read sums of products; those of a linear layer while they are still arriving.

    **Latency** 2 cycles from `start`. **Throughput** one slice per cycle.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    start, first, count, one_channel, head : In
        As of `SpreadReader`.
    dependent, complete : In
        The sums are still arriving; those below `complete`, in results, have arrived.
    read_enable, read_address, sums : Out, Out, In
        Read port of `TotalCollector`: a slice of each pseudo-channel, one cycle after its address.
    slices : Out(stream)
        `values`, integers, and `last`.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        places, values = Places(p), data.ArrayLayout(signed(SUM_BITS), p.lanes)
        super().__init__(
            {
                "start": In(1),
                "first": In(places.sums_bits),
                "count": In(places.count_bits),
                **distribution(p),
                "dependent": In(1),
                "complete": In(places.result_bits),
                "read_enable": Out(1),
                "read_address": Out(places.sums_bits),
                "sums": In(p.pseudo_channels * SUM_BITS * p.lanes),
                "slices": Out(stream.Signature(data.StructLayout({"values": values, "last": 1}))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Hold each read until the slice is complete; select the pseudo-channel."""
        m = Module()
        p = self.parameters
        m.submodules.reader = reader = SpreadReader(
            parameters=p, address_bits=len(self.read_address)
        )
        slices, shown = self.slices, reader.slices.payload
        # A slice is complete once its last result has arrived.
        results = (reader.read_address + 1) * (p.lanes // p.result)
        m.d.comb += [
            reader.start.eq(self.start),
            reader.first.eq(self.first),
            reader.count.eq(self.count),
            *(getattr(reader, name).eq(getattr(self, name)) for name in distribution(p)),
            reader.hold.eq(self.dependent & (results > self.complete)),
            reader.slices.ready.eq(slices.ready),
            slices.valid.eq(reader.slices.valid),
            slices.payload.last.eq(shown.last),
            Value.cast(slices.payload["values"]).eq(
                self.sums.word_select(shown.channel, SUM_BITS * p.lanes)
            ),
            self.read_enable.eq(reader.read_enable),
            self.read_address.eq(reader.read_address),
        ]
        return m
