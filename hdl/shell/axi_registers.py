"""Registers of an accelerator at an AXI4-Lite port."""

from amaranth.hdl import Cat, Const, Module, Signal, Value, ValueLike
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.shell.axi import AxiLiteSignature, Response
from hdl.shell.axi_lite_port import AxiLitePort
from hdl.shell.first_error import FirstError
from hdl.shell.register_map import (
    IDENTIFICATION,
    MAP_VERSION,
    WORD_BYTES,
    AxiRegistersParameters,
    registers,
)
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit


class AxiRegisters(Unit):
    """Start and observe an accelerator through registers of 32 bits.

    `hdl/shell/register_map.py` defines the registers. One write and one read are in progress at a
    time. Every access has a defined response:

    - SLVERR, without any effect: a write to a register that cannot be written; a write of fewer
      than four bytes; a start while the accelerator is busy or flushed; an unaligned base address,
      one with too many bits, or one that is written while the accelerator is busy; a token without
      room; a read of `token_out` without a token.
    - DECERR: an offset without a register.
    - OKAY: all others. A register that cannot be read returns 0.

    The low two address bits have no effect, as AXI4-Lite allows.

    A flush lasts until `idle`, and discards the tokens of both FIFOs. It ends the work without the
    interrupt `done`.

    **Latency** 2 cycles from an address or the later one of address and data to the response.
    **Throughput** one read and one write per 3 cycles.

    Parameters
    ----------
    parameters : AxiRegistersParameters
        Numbers of addresses, sources and tokens.

    Members
    -------
    s_axi : In(AxiLiteSignature)
        The AXI4-Lite port; all its outputs depend on registers only.
    start : Out(1)
        The accelerator starts; asserted for one cycle.
    finish : In(1)
        The accelerator has finished; ignored unless it is busy.
    flush : Out(1)
        Reset the accelerator, and flush the masters.
    idle : In(1)
        All masters are idle.
    bases : Out(bases)
        Base addresses in bytes; constant while the accelerator is busy.
    tokens_in, tokens_out : Out(stream), In(stream)
        Tokens from the host, and to the host.
    errors, clear_errors : In(errors), Out(1)
        The first error of each source, and the command to clear all of them.
    interrupt_request : Out(1)
        An enabled interrupt occurred and is not cleared.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `AxiRegistersParameters`.
    """

    def __init__(self, *, parameters: AxiRegistersParameters) -> None:
        self.parameters = p = parameters
        token = stream.Signature(p.token_bits)
        super().__init__(
            {
                "s_axi": In(AxiLiteSignature(address_bits=p.address_bits)),
                "start": Out(1),
                "finish": In(1),
                "flush": Out(1),
                "idle": In(1),
                "bases": Out(p.bases_layout),
                "tokens_in": Out(token),
                "tokens_out": In(token),
                "errors": In(p.errors_layout),
                "clear_errors": Out(1),
                "interrupt_request": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the port, the token FIFOs, and the state of the accelerator."""
        m = Module()
        p = self.parameters
        m.submodules.lite = lite = AxiLitePort(address_bits=p.address_bits)
        connect(m, flipped(self.s_axi), lite.s_axi)
        m.submodules.inputs = inputs = Fifo(shape=p.token_bits, depth=p.token_depth)
        m.submodules.outputs = outputs = Fifo(shape=p.token_bits, depth=p.token_depth)
        m.submodules.first = first = FirstError(parameters=p)
        busy, done, enable = Signal(), Signal(), Signal(3)
        cycles, high = Signal(64), Signal(32)
        word, read = lite.write_data, lite.read
        room = Signal(7)
        m.d.comb += room.eq(p.token_depth - inputs.waiting)

        # The condition under which a write to a register is legal and has its effect.
        accepts: dict[str, Value] = {
            "control": ~(word[0] & (busy | self.flush)),
            "interrupt_enable": Const(1, 1),
            "interrupt_status": Const(1, 1),
            "token_in": inputs.source.ready & ~self.flush,
        }
        for number in range(p.bases):
            low_bits = min(p.axi_address_bits, 32)
            fits = (word >> low_bits == 0) & (word % p.alignment == 0)
            accepts[f"base_{number}_low"] = ~busy & fits
            high_fits = word >> (p.axi_address_bits - low_bits) == 0
            accepts[f"base_{number}_high"] = ~busy & high_fits
        written = self._write_hits(m, lite, accepts)
        # Tokens that a flush is about to discard cannot be read.
        has_token = outputs.sink.valid & ~self.flush
        values: dict[str, ValueLike] = {
            "identification": IDENTIFICATION,
            "map_version": MAP_VERSION,
            "digest": p.digest,
            "status": Cat(busy, self.flush),
            "interrupt_enable": enable,
            "interrupt_status": Cat(done, first.valid, has_token),
            "error_cause": Cat(Value.cast(first.error.cause), Const(0, 6), first.source),
            "error_address_low": first.error.address[:32],
            "error_address_high": first.error.address[32:],
            "cycles_low": cycles[:32],
            "cycles_high": high,
            "token_out": outputs.sink.payload,
            "token_levels": Cat(room, Const(0, 9), outputs.waiting),
        }
        for number in range(p.bases):
            values[f"base_{number}_low"] = self.bases[number][:32]
            values[f"base_{number}_high"] = self.bases[number][32:]
        hits = self._read_hits(m, lite, values, {"token_out": has_token})

        start, stop = written["control"] & word[0], written["control"] & word[1]
        m.d.comb += [
            # A command with both bits flushes.
            self.start.eq(start & ~stop),
            self.interrupt_request.eq((enable & Cat(done, first.valid, has_token)).any()),
            first.errors.eq(self.errors),
            first.clear.eq(written["interrupt_status"] & word[1]),
            self.clear_errors.eq(first.clear),
            inputs.source.payload.eq(word),
            inputs.source.valid.eq(written["token_in"]),
            self.tokens_in.payload.eq(inputs.sink.payload),
            self.tokens_in.valid.eq(inputs.sink.valid & ~self.flush),
            # A flush empties both FIFOs, one token per cycle.
            inputs.sink.ready.eq(self.tokens_in.ready | self.flush),
            outputs.sink.ready.eq((hits["token_out"] & has_token) | self.flush),
        ]
        connect_streams(m, self.tokens_out, outputs.source)
        # The counter stops with `busy`, so that a host can read it afterwards.
        with m.If(busy):
            m.d.sync += cycles.eq(cycles + 1)
        with m.If(written["interrupt_status"] & word[0]):
            m.d.sync += done.eq(0)
        with m.If(busy & self.finish):
            m.d.sync += [busy.eq(0), done.eq(1)]
        # A start in the cycle of an old `finish` cannot occur: it needs `busy` to be 0.
        with m.If(self.start):
            m.d.sync += [busy.eq(1), done.eq(0), cycles.eq(0)]
        with m.If(self.flush & self.idle & (inputs.waiting == 0) & (outputs.waiting == 0)):
            m.d.sync += self.flush.eq(0)
        # The flush ends the work without `done`.
        with m.If(stop):
            m.d.sync += [self.flush.eq(1), busy.eq(0)]
        with m.If(written["interrupt_enable"]):
            m.d.sync += enable.eq(word)
        with m.If(hits["cycles_low"] & read):
            # The two halves belong to one moment.
            m.d.sync += high.eq(cycles[32:])
        for number in range(p.bases):
            low, upper = self.bases[number][:32], self.bases[number][32:]
            with m.If(written[f"base_{number}_low"]):
                m.d.sync += low.eq(word)
            with m.If(written[f"base_{number}_high"]):
                m.d.sync += upper.eq(word)
        return m

    def _write_hits(
        self, m: Module, lite: AxiLitePort, accepts: dict[str, Value]
    ) -> dict[str, Value]:
        """Set the response to a write; return for each register whether it is written."""
        written: dict[str, Value] = {name: Signal(name=f"write_{name}") for name in accepts}
        m.d.comb += lite.write_response.eq(Response.DECERR)
        with m.Switch(lite.write_address[2:]):
            for one in registers(self.parameters):
                with m.Case(one.offset // WORD_BYTES):
                    # A register that refuses the write keeps this response.
                    m.d.comb += lite.write_response.eq(Response.SLVERR)
                    if one.writable:
                        with m.If(accepts[one.name] & lite.write_whole):
                            m.d.comb += lite.write_response.eq(Response.OKAY)
                            m.d.comb += written[one.name].eq(lite.write)
        return written

    def _read_hits(
        self,
        m: Module,
        lite: AxiLitePort,
        values: dict[str, ValueLike],
        accepts: dict[str, Value],
    ) -> dict[str, Value]:
        """Set data and response of a read; return for each register whether it is read."""
        hits: dict[str, Value] = {}
        m.d.comb += lite.read_response.eq(Response.DECERR)
        with m.Switch(lite.read_address[2:]):
            for one in registers(self.parameters):
                with m.Case(one.offset // WORD_BYTES):
                    m.d.comb += lite.read_response.eq(Response.OKAY)
                    # Only these reads have an effect.
                    if one.name in ("token_out", "cycles_low"):
                        hits[one.name] = hit = Signal(name=f"read_{one.name}")
                        m.d.comb += hit.eq(lite.read)
                    with m.If(~accepts.get(one.name, Const(1, 1))):
                        m.d.comb += lite.read_response.eq(Response.SLVERR)
                    if one.readable:
                        with m.If(accepts.get(one.name, Const(1, 1))):
                            m.d.comb += lite.read_data.eq(values[one.name])
        return hits
