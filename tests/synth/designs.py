"""Small designs that the tests of the flow use."""

from pathlib import Path

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hdl.emit import Emission, write_verilog
from hdl.unit import Unit


class Counter(Unit):
    """A counter; with a memory, its value is stored and read back."""

    enable: Signal
    count: Signal
    stored: Signal

    def __init__(self, *, width: int = 8, memory: bool = False) -> None:
        self._width, self._memory = width, memory
        super().__init__({"enable": In(1), "count": Out(width), "stored": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.enable):
            m.d.sync += self.count.eq(self.count + 1)
        if self._memory:
            m.submodules.memory = memory = Memory(shape=self._width, depth=16, init=[])
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [
                write.addr.eq(self.count[:4]),
                write.data.eq(self.count),
                write.en.eq(self.enable),
                read.addr.eq(self.count[:4] - 1),
                read.en.eq(1),
                self.stored.eq(read.data),
            ]
        return m


class Adder(Unit):
    """A sum in two registers, used twice in `Pair`."""

    a: Signal
    b: Signal
    result: Signal

    def __init__(self, *, width: int = 8) -> None:
        super().__init__({"a": In(width), "b": In(width), "result": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.result.eq(self.a + self.b)
        return m


class Pair(Unit):
    """Two equal modules below a top."""

    a: Signal
    b: Signal
    result: Signal

    def __init__(self, *, width: int = 8) -> None:
        self._width = width
        super().__init__({"a": In(width), "b": In(width), "result": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first, second = Adder(width=self._width), Adder(width=self._width)
        m.submodules += [first, second]
        m.d.comb += [
            first.a.eq(self.a),
            first.b.eq(self.b),
            second.a.eq(first.result),
            second.b.eq(self.b),
            self.result.eq(second.result),
        ]
        return m


class Broadcast(Unit):
    """One operand for many modules: its register and a port drive hundreds of pins."""

    a: Signal
    b: Signal
    result: Signal

    def __init__(self, *, copies: int) -> None:
        self._copies = copies
        super().__init__({"a": In(4), "b": In(4), "result": Out(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a = Signal(4)
        m.d.sync += a.eq(self.a)
        total: Signal = a
        for index in range(self._copies):
            m.submodules[f"adder_{index}"] = adder = Adder(width=4)
            m.d.comb += [adder.a.eq(a ^ index % 16), adder.b.eq(self.b)]
            chained = Signal(4)
            m.d.sync += chained.eq(adder.result ^ total)
            total = chained
        m.d.comb += self.result.eq(total)
        return m


class Doubler(Unit):
    """A stream stage with one register that doubles each value."""

    source: stream.Interface
    sink: stream.Interface
    mode: Signal

    def __init__(self, *, width: int = 5) -> None:
        self._width = width
        super().__init__(
            {
                "source": In(stream.Signature(width)),
                "sink": Out(stream.Signature(width + 1)),
                "mode": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        full, value = Signal(), Signal(self._width + 1)
        m.d.comb += [
            self.sink.valid.eq(full),
            self.sink.payload.eq(value),
            self.source.ready.eq(~full | self.sink.ready),
        ]
        with m.If(self.source.ready):
            m.d.sync += [full.eq(self.source.valid), value.eq(self.source.payload << 1)]
        return m


class One(Unit):
    """An output that is always one."""

    one: Signal

    def __init__(self) -> None:
        super().__init__({"one": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.one.eq(1)
        return m


class Choice(Unit):
    """One of two inputs."""

    select: Signal
    a: Signal
    b: Signal
    result: Signal

    def __init__(self) -> None:
        super().__init__({"select": In(1), "a": In(8), "b": In(8), "result": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.result.eq(Mux(self.select, self.a, self.b))
        return m


class Chosen(Unit):
    """An input that another module's constant chooses over a register."""

    count: Signal
    result: Signal

    def __init__(self) -> None:
        super().__init__({"count": In(8), "result": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.one = one = One()
        m.submodules.choice = choice = Choice()
        held = Signal(8)
        m.d.sync += held.eq(held ^ self.count)
        m.d.comb += [
            choice.select.eq(one.one),
            choice.a.eq(self.count),
            choice.b.eq(held),
            self.result.eq(choice.result),
        ]
        return m


def emit(unit: Unit, directory: Path, top: str = "design_under_test") -> list[Path]:
    """Write a unit's Verilog and return the files."""
    files = write_verilog(Emission(top=unit, name=top), directory)
    return [file for file in files if file.suffix == ".v"]
