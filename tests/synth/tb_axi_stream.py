"""cocotb: the AXI4-Stream wrapper of `Doubler` against an independent source and sink."""

import itertools
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource

VALUES = 200


def pauses(seed: int):
    """Yield whether to pause, at random."""
    draw = random.Random(seed)
    return (draw.random() < 0.6 for _ in itertools.count())


@cocotb.test()
@cocotb.parametrize(source_pauses=[False, True], sink_pauses=[False, True])
async def every_value_arrives_doubled(dut, source_pauses: bool, sink_pauses: bool) -> None:
    cocotb.start_soon(Clock(dut.aclk, 10, unit="ns").start())
    source = AxiStreamSource(
        AxiStreamBus.from_prefix(dut, "s_axis_source"), dut.aclk, dut.aresetn, False
    )
    sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m_axis_sink"), dut.aclk, dut.aresetn, False)
    if source_pauses:
        source.set_pause_generator(pauses(1))
    if sink_pauses:
        sink.set_pause_generator(pauses(2))
    dut.mode.value = 0
    dut.aresetn.value = 0
    for _ in range(4):
        await RisingEdge(dut.aclk)
    dut.aresetn.value = 1
    await RisingEdge(dut.aclk)
    draw = random.Random(3)
    values = [draw.randrange(256) for _ in range(VALUES)]
    await source.send(AxiStreamFrame(bytes(values)))
    received: list[int] = []
    while len(received) < VALUES:
        frame = await sink.recv()
        received += frame.tdata
    # The upper three bits of each byte are padding, ignored on the way in and zero on the way out.
    assert received == [(value & 31) << 1 for value in values]
