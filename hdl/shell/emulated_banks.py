"""DRAM banks of P3-LLM whose contents are in an external memory with bursts."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.memory.burst_port import BurstReadPort, BurstWritePort
from hdl.memory.memory import Memory
from hdl.p3llm.control.bank_scheduler import ALTERNATING_BITS
from hdl.p3llm.pim.pim_channel import ROW_BITS
from hdl.shell.bank_windows import BankWindows
from hdl.shell.coming_positions import ComingPositions
from hdl.shell.p3llm_axi_parameters import P3llmAxiParameters
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit


class EmulatedBanks(Unit):
    """Execute commands of the banks of all pseudo-channels on words of memory, one per position.

    The accelerator executes a cycle if `enable` is asserted. A read or write of a position that is
    not on the chip disables it until the position has arrived, so that the banks answer in the next
    cycle that the accelerator executes. `BankWindows` reads ahead of the accesses. A write changes
    the position on the chip in the next cycle, in which no access is served, and is then written to
    memory as a whole word. The positions of writes that may not be visible yet are not read.

    All pseudo-channels have the same commands. All banks of a parity are opened together, and each
    unit has a bank of each parity, as `BankScheduler` requests. The other times of the banks are
    those of the accelerator's cycles: `precharge` and `refresh` have no effect.

    **Latency** 0 cycles, or that of memory and 4 cycles. **Throughput** one command per cycle.

    Parameters
    ----------
    parameters : P3llmAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    command : In(struct)
        As `bank_command` of the first pseudo-channel.
    data : In(ArrayLayout)
        The column to write of each pseudo-channel.
    enable : Out(1)
        The command takes effect in this cycle. It does not depend on `data`.
    columns : Out(ArrayLayout)
        The position that was last read: for each pseudo-channel, `bank_data`.
    access : Out(struct)
        The position that the command accesses, if `valid`.
    announced : In(stream)
        Positions at which runs of accesses will begin.
    reads, writes : Out(BurstReadPort, BurstWritePort)
        The ports of the banks' positions.
    written : In(1)
        All words that were written are visible.
    restart : In(1)
        The contents of memory have changed.
    idle : Out(1)
        All writes have been transferred to `writes`.
    """

    def __init__(self, *, parameters: P3llmAxiParameters) -> None:
        self.parameters = p = parameters
        layout = p.p3llm.channel.bank_command_layout
        port = {"address_bits": p.address_bits, "longest": p.longest}
        word = p.columns_layout.size
        super().__init__(
            {
                "command": In(layout),
                "data": In(data.ArrayLayout(layout["data"].width, p.p3llm.pseudo_channels)),
                "enable": Out(1),
                "columns": Out(p.columns_layout),
                "access": Out(ComingPositions.access_layout(p)),
                "announced": In(stream.Signature(p.position_bits)),
                "reads": Out(BurstReadPort(word_shape=word, **port)),
                "writes": Out(BurstWritePort(word_shape=word, **port)),
                "written": In(1),
                "restart": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Serve commands from the windows."""
        m = Module()
        p, command = self.parameters, self.command
        m.submodules.windows = windows = BankWindows(parameters=p)
        m.submodules.held = held = Memory(
            depth=p.windows * p.window_positions, width=p.columns_layout.size
        )
        access, write, odd, merges = Signal(), Signal(), Signal(), Signal()
        position = self._position(m, odd)
        m.d.comb += [
            access.eq((command.read | command.write).any()),
            write.eq(command.write.any()),
            odd.eq(self._of_parity(command.read | command.write, 1).any()),
            windows.access.eq(access & ~merges),
            windows.position.eq(position),
            # Columns of all units are those of matrices; runs of other columns are short.
            windows.run.eq((command.read & command.read - 1).any()),
            windows.write.eq(write & self.enable & ~merges),
            windows.restart.eq(self.restart),
            held.read_enable.eq(access & self.enable),
            held.read_address.eq(windows.place),
            Value.cast(self.columns).eq(held.read_data),
        ]
        ready = self._write(m, windows, held, position, merges)
        connect_streams(m, self.announced, windows.announced)
        connect_streams(m, windows.requests, self.reads.requests)
        m.d.comb += [self.access.valid.eq(access), self.access.position.eq(position)]
        m.d.comb += self.enable.eq(~access | (windows.hit & ~merges & (~write | ready)))
        words = self.reads.words
        m.d.comb += [
            # The port of `held` is used by a write.
            words.ready.eq(~merges),
            windows.arrives.eq(words.valid & words.ready),
            windows.last.eq(words.payload.last),
        ]
        with m.If(~merges):
            m.d.comb += [
                held.write_enable.eq(windows.arrives),
                held.write_address.eq(windows.filled_place),
                held.write_data.eq(Value.cast(words.payload.word)),
            ]
        return m

    def _of_parity(self, banks: Value, parity: int) -> Value:
        """Return the bits of the banks of a parity."""
        return Cat(banks[bank] for bank in range(parity, len(banks), 2))

    def _position(self, m: Module, odd: Value) -> Value:
        """Return the position of the command: that of its column in the open row."""
        p, command = self.parameters, self.command
        rows = [Signal(ROW_BITS, name=f"row_{parity}") for parity in range(2)]
        for parity, row in enumerate(rows):
            with m.If(self.enable & self._of_parity(command.activate, parity).any()):
                m.d.sync += row.eq(command.row)
        position = Signal(p.position_bits)
        row = Mux(odd, rows[1], rows[0])
        # The parity of a row's index is that of its banks, or the opposite one: `parity_of` has no
        # other bit of it.
        m.d.comb += position.eq(Cat(command.column, odd ^ row[ALTERNATING_BITS - 1], row))
        return position

    def _write(
        self,
        m: Module,
        windows: BankWindows,
        held: Memory,
        position: Value,
        merges: Signal,
    ) -> Value:
        """Merge the bytes of a write into its position; return whether a write can be accepted."""
        p, command = self.parameters, self.command
        word = p.columns_layout.size
        queued = data.StructLayout({"position": p.position_bits, "word": word})
        m.submodules.queue = queue = Fifo(shape=queued, depth=1)
        kept = Signal(
            data.StructLayout(
                {
                    "place": len(windows.place),
                    "position": p.position_bits,
                    "units": p.p3llm.units,
                    "mask": command.mask.shape(),
                    "data": Value.cast(self.data).shape(),
                }
            ),
            reset_less=True,
        )
        units = Cat(command.write[2 * u] | command.write[2 * u + 1] for u in range(p.p3llm.units))
        # The position is read with the write, and the merged word is written in the next cycle.
        m.d.sync += [
            merges.eq(windows.write),
            kept.place.eq(windows.place),
            kept.position.eq(position),
            kept.units.eq(units),
            kept.mask.eq(command.mask),
            kept.data.eq(self.data),
        ]
        merged = Signal(word)
        column = p.p3llm.channel.unit.column_bits
        for channel in range(p.p3llm.pseudo_channels):
            for unit in range(p.p3llm.units):
                for byte in range(column // 8):
                    place = (channel * p.p3llm.units + unit) * column // 8 + byte
                    new = kept.data.word_select(channel * column // 8 + byte, 8)
                    old = held.read_data.word_select(place, 8)
                    m.d.comb += merged.word_select(place, 8).eq(
                        Mux(kept.units[unit] & kept.mask[byte], new, old)
                    )
        with m.If(merges):
            m.d.comb += [
                held.write_enable.eq(1),
                held.write_address.eq(kept.place),
                held.write_data.eq(merged),
            ]
        m.d.comb += [
            queue.source.valid.eq(merges),
            queue.source.payload.position.eq(kept.position),
            queue.source.payload.word.eq(merged),
            self.idle.eq(~merges & ~queue.sink.valid),
        ]
        self._send(m, queue)
        # Read no position between the first and the last one that may not be visible.
        unwritten = windows.unwritten
        first, last = (Signal(p.position_bits, name=name) for name in ("first", "last"))
        some = Signal()
        m.d.comb += [unwritten.valid.eq(some), unwritten.first.eq(first), unwritten.last.eq(last)]
        with m.If(merges):
            m.d.sync += some.eq(1)
            with m.If(~some | (kept.position < first)):
                m.d.sync += first.eq(kept.position)
            with m.If(~some | (kept.position > last)):
                m.d.sync += last.eq(kept.position)
        with m.Elif(self.written & ~queue.sink.valid):
            m.d.sync += some.eq(0)
        return queue.waiting == 0

    def _send(self, m: Module, queue: Fifo) -> None:
        """Transfer the request and the word of a write independently of each other."""
        port, sink = self.writes, queue.sink
        requested, sent, done = Signal(), Signal(), Signal()
        m.d.comb += [
            port.requests.payload.address.eq(sink.payload.position),
            port.requests.payload.length.eq(1),
            port.requests.valid.eq(sink.valid & ~requested),
            Value.cast(port.words.payload.word).eq(sink.payload.word),
            port.words.payload.last.eq(1),
            port.words.valid.eq(sink.valid & ~sent),
            done.eq((requested | port.requests.ready) & (sent | port.words.ready)),
            sink.ready.eq(done),
        ]
        with m.If(sink.valid):
            m.d.sync += [
                requested.eq(~done & (requested | port.requests.ready)),
                sent.eq(~done & (sent | port.words.ready)),
            ]
