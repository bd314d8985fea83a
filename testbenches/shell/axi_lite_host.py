"""Driver of an AXI4-Lite port with random pauses; checks the rules of the responses."""

from collections.abc import Iterator
from typing import Any

from testbenches.shell.axi_memory import Channel
from testbenches.streams import Port


class LiteHost:
    """One write and one read at a time; a part of a `testbenches.bench.Bench`.

    Parameters
    ----------
    bench : Bench
        Clock and design.
    prefix : str
        Prefix of the port, such as ``s_axi_``.
    pauses : tuple[Iterator[bool], Iterator[bool]]
        Pauses of requests and of responses.

    Members
    -------
    written : int | None
        Response of the last write; None while it is in progress.
    answer : tuple[int, int] | None
        Data and response of the last read; None while it is in progress.
    """

    def __init__(
        self, bench: Any, prefix: str, pauses: tuple[Iterator[bool], Iterator[bool]]
    ) -> None:
        self.bench, self.pauses = bench, pauses
        names = {"aw": ("addr",), "w": ("data", "strb"), "ar": ("addr",)}
        self.ports = {
            channel: {
                name: Port(getattr(bench.dut, f"{prefix}{channel}{name}"))
                for name in (*fields, "valid", "ready")
            }
            for channel, fields in names.items()
        }
        self.responses = Channel(bench.dut, f"{prefix}b", ("resp",), bench)
        self.data = Channel(bench.dut, f"{prefix}r", ("data", "resp"), bench)
        self.waiting: dict[str, dict[str, int]] = {}
        self.offered: set[str] = set()
        self.expects_write = self.expects_read = False
        self.written: int | None = 0
        self.answer: tuple[int, int] | None = (0, 0)
        self.clear()

    def clear(self) -> None:
        """Discard all accesses, as in a reset."""
        self.waiting.clear()
        self.offered.clear()
        self.expects_write = self.expects_read = False
        for ports in self.ports.values():
            ports["valid"].value = 0
        for channel in (self.responses, self.data):
            channel.clear()
            channel.ready.value = 0

    def start_write(self, address: int, value: int, strobes: int) -> None:
        """Begin a write; both parts are offered independently."""
        self.waiting |= {"aw": {"addr": address}, "w": {"data": value, "strb": strobes}}
        self.expects_write, self.written = True, None

    def start_read(self, address: int) -> None:
        """Begin a read."""
        self.waiting["ar"] = {"addr": address}
        self.expects_read, self.answer = True, None

    def drive(self) -> None:
        """Offer the parts of accesses; decide whether to accept responses."""
        for channel, fields in self.waiting.items():
            if channel not in self.offered and not next(self.pauses[0]):
                self.offered.add(channel)
                for name, value in fields.items():
                    self.ports[channel][name].value = value
                self.ports[channel]["valid"].value = 1
        for channel in self.ports.keys() - self.waiting.keys():
            self.ports[channel]["valid"].value = 0
        for channel in (self.responses, self.data):
            channel.ready.value = not next(self.pauses[1])

    def sample(self) -> None:
        """Record transfers; no response may precede its access."""
        if response := self.responses.receive():
            complete = self.expects_write and not {"aw", "w"} & self.waiting.keys()
            self.responses.require(complete, "a response must follow address and data")
            self.expects_write, self.written = False, response["resp"]
        if answer := self.data.receive():
            complete = self.expects_read and "ar" not in self.waiting
            self.data.require(complete, "data must follow their address")
            self.expects_read, self.answer = False, (answer["data"], answer["resp"])
        for channel in sorted(self.offered):
            if self.ports[channel]["ready"].value:
                self.offered.discard(channel)
                del self.waiting[channel]
