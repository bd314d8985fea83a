"""A reader of a vector's slices from the memories of all pseudo-channels."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Member, Out
from amaranth.utils import ceil_log2

from hdl.p3llm.npu.slice_reader import SliceReader
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.places import Places
from hdl.unit import Unit


def distribution(p: P3llmParameters) -> dict[str, Member]:
    """Return the members of a reader that select pseudo-channels: none if there is only one."""
    return {"one_channel": In(1), "head": In(p.channel_bits)} if p.channel_bits else {}


class SpreadReader(Unit):
    """Read consecutive places of a vector that is distributed over the pseudo-channels.

    A head's vector is in the memory of one pseudo-channel; other vectors are distributed tile by
    tile. The memories' words are valid with the stream's item.

    **Latency** 2 cycles from `start`. **Throughput** one slice per cycle.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.
    address_bits : int
        Bits of a place, counted over all pseudo-channels.

    Members
    -------
    start, first, count, hold : In
        As of `SliceReader`.
    one_channel, head : In
        With several pseudo-channels: the vector is in one of them, `head`; held until the last
        slice is transferred.
    read_enable, read_address : Out
        Read port of the memory of each pseudo-channel.
    slices : Out(stream)
        For the words at the memories' outputs: the `channel` that has the slice; `low`, the lowest
        bit of its place; `last`.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters, address_bits: int) -> None:
        self.parameters = p = parameters
        self.address_bits = address_bits
        shown = data.StructLayout({"channel": p.channel_bits, "low": 1, "last": 1})
        super().__init__(
            {
                "start": In(1),
                "first": In(address_bits),
                "count": In(Places(p).count_bits),
                "hold": In(1),
                **distribution(p),
                "read_enable": Out(1),
                "read_address": Out(address_bits),
                "slices": Out(stream.Signature(shown)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Select the pseudo-channel by the head, or by bits of the place."""
        m = Module()
        p, slices = self.parameters, self.slices
        m.submodules.reader = reader = SliceReader(
            address_bits=self.address_bits, count_bits=len(self.count)
        )
        place = reader.read_address
        m.d.comb += [
            reader.start.eq(self.start),
            reader.first.eq(self.first),
            reader.count.eq(self.count),
            reader.hold.eq(self.hold),
            reader.slices.ready.eq(slices.ready),
            slices.valid.eq(reader.slices.valid),
            slices.payload.low.eq(reader.slices.payload.low),
            slices.payload.last.eq(reader.slices.payload.last),
            self.read_enable.eq(reader.read_enable),
            self.read_address.eq(place),
        ]
        if p.channel_bits:
            within = ceil_log2(p.elements // p.lanes)
            around, above = place[within:][: p.channel_bits], place[within + p.channel_bits :]
            channel = Signal(p.channel_bits)
            with m.If(reader.read_enable):
                m.d.sync += channel.eq(Mux(self.one_channel, self.head, around))
            m.d.comb += [
                self.read_address.eq(Mux(self.one_channel, place, Cat(place[:within], above))),
                slices.payload.channel.eq(channel),
            ]
        return m
