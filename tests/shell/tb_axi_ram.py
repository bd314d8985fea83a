"""cocotb: a master between random requests and the memory of cocotbext-axi, an independent model.

The memory pauses at random, with the seed that cocotb gives to each test.
"""

import itertools
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge
from cocotbext.axi import AxiRamRead, AxiRamWrite, AxiReadBus, AxiWriteBus

from golden.shell.axi_bursts import Request, byte_addresses
from hdl.shell.axi_parameters import AxiMasterParameters
from testbenches.bench import catalog_parameters

SIZE = 1 << 16
WORDS = 200


def pauses(rng: random.Random):
    """Yield whether to pause, at random."""
    return (rng.random() < 0.5 for _ in itertools.count())


def requests(p: AxiMasterParameters, rng: random.Random) -> list[Request]:
    """Return requests whose bytes do not overlap, in random order."""
    space, found, first = SIZE // p.word_bytes, list[Request](), 0
    while first < min(WORDS, space, 1 << p.address_bits):
        length = min(rng.choice([1, 3, 40]), p.longest, min(WORDS, space) - first)
        found.append(Request(0, first, length))
        first += length
    rng.shuffle(found)
    return found


async def start(dut) -> None:
    """Start the clock, and reset."""
    for name in ("base", "flush", "clear_error", "port_requests_valid"):
        getattr(dut, name).value = 0
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    dut.rst.value = 1
    for _ in range(4):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


async def send(dut, name: str, payloads: list[int], rng: random.Random) -> None:
    """Offer payloads with random pauses."""
    valid, ready, payload = (getattr(dut, f"{name}_{w}") for w in ("valid", "ready", "payload"))
    for one in payloads:
        while rng.random() < 0.3:
            await RisingEdge(dut.clk)
        valid.value, payload.value = 1, one
        while True:
            await ReadOnly()
            accepted = ready.value
            await RisingEdge(dut.clk)
            if accepted:
                break
        valid.value = 0


def packed(p: AxiMasterParameters, work: list[Request]) -> list[int]:
    """Return requests as payloads."""
    return [one.address | one.length << p.address_bits for one in work]


@cocotb.test()
@cocotb.parametrize(paused=[False, True])
async def the_master_reads_and_writes_what_the_memory_has(dut, paused: bool) -> None:
    p: AxiMasterParameters = catalog_parameters()
    rng = random.Random(f"{paused}")
    reads = hasattr(dut, "m_axi_arvalid")
    await start(dut)
    work = requests(p, rng)
    bytes_of = [byte_addresses(p, one) for one in work]
    if reads:
        dut.hold.value = 0
        ram = AxiRamRead(AxiReadBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=SIZE)
        if paused:
            ram.ar_channel.set_pause_generator(pauses(rng))
            ram.r_channel.set_pause_generator(pauses(rng))
        content = rng.randbytes(SIZE)
        ram.write(0, content)
        cocotb.start_soon(send(dut, "port_requests", packed(p, work), rng))
        expected = [content[address] for one in bytes_of for address in one]
        received = list[int]()
        while len(received) < len(expected):
            dut.port_words_ready.value = not paused or rng.random() < 0.5
            await ReadOnly()
            transfers = dut.port_words_valid.value and dut.port_words_ready.value
            word = int(dut.port_words_payload.value) if transfers else 0
            await RisingEdge(dut.clk)
            if transfers:
                received += (word & (1 << 8 * p.word_bytes) - 1).to_bytes(p.word_bytes, "little")
        assert received == expected
    else:
        dut.port_words_valid.value = 0
        ram = AxiRamWrite(AxiWriteBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=SIZE)
        if paused:
            for channel in (ram.aw_channel, ram.w_channel, ram.b_channel):
                channel.set_pause_generator(pauses(rng))
        ram.write(0, bytes(SIZE))
        words = [rng.randbytes(p.word_bytes) for one in work for _ in range(one.length)]
        payloads = [int.from_bytes(word, "little") for word in words]
        cocotb.start_soon(send(dut, "port_requests", packed(p, work), rng))
        await send(dut, "port_words", payloads, rng)
        while not dut.idle.value:
            await RisingEdge(dut.clk)
        expected = bytearray(SIZE)
        for address, value in zip(itertools.chain(*bytes_of), itertools.chain(*words), strict=True):
            expected[address] = value
        assert ram.read(0, SIZE) == expected
    assert int(dut.error.value) & 3 == 0
