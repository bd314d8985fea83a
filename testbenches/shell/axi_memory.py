"""Model of an AXI4 memory that checks the rules of the specification at its port.

`AxiReads` and `AxiWrites` are parts of a `testbenches.bench.Bench`, each with `clear`, `drive` and
`sample`. Every violation of a rule by the master is an `AssertionError` with the cycle.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from hdl.shell.axi import INCREMENTING, MOST_BEATS, PAGE_BYTES
from testbenches.streams import Port, read

Pauses = Iterator[bool]

WAITING = 12
"""Bursts that the memory accepts ahead of their data."""


class SparseMemory:
    """A memory of 2**64 bytes; a byte that was not written has a value that depends on its address.

    Parameters
    ----------
    salt : int
        Selects the initial contents.
    """

    def __init__(self, salt: int = 0) -> None:
        self.salt = salt
        self.written: dict[int, int] = {}

    def read(self, address: int, count: int) -> bytes:
        """Return a number of bytes from an address."""
        return bytes(self.byte(address + number) for number in range(count))

    def byte(self, address: int) -> int:
        """Return the byte at an address."""
        # Multiplication by an odd constant carries every address bit into the upper bits.
        mixed = (address + self.salt) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
        return self.written.get(address, mixed >> 56)


class Channel:
    """The signals of one AXI4 channel; checks that an offer is unchanged until its transfer.

    Parameters
    ----------
    dut : Any
        The design under test.
    prefix : str
        Prefix of the ports, such as ``m_axi_ar``.
    fields : tuple[str, ...]
        Names of the payload signals.
    clock : Any
        Object with the present `cycle`.
    """

    def __init__(self, dut: Any, prefix: str, fields: tuple[str, ...], clock: Any) -> None:
        self.name, self.clock = prefix, clock
        self.valid, self.ready = (
            Port(getattr(dut, f"{prefix}{one}")) for one in ("valid", "ready")
        )
        self.fields = {name: Port(getattr(dut, f"{prefix}{name}")) for name in fields}
        self._offer: dict[str, str] | None = None

    def clear(self) -> None:
        """Expect no offer, as after a reset."""
        self._offer = None

    def require(self, holds: bool, rule: str) -> None:
        """Check a rule in this cycle."""
        assert holds, f"cycle {self.clock.cycle}: {self.name}: {rule}"

    def receive(self) -> dict[str, int] | None:
        """Return the payload of a transfer from the master in this cycle, and check stability."""
        valid, ready = self.valid.value, self.ready.value
        offer = {name: port.bits for name, port in self.fields.items()} if valid else None
        if self._offer is not None:
            self.require(offer is not None, "valid must stay asserted until the transfer")
            self.require(offer == self._offer, "the payload must be stable until the transfer")
        self._offer = None if ready else offer
        if not (valid and ready):
            return None
        return {name: read(port) for name, port in self.fields.items()}


def check_burst(channel: Channel, burst: dict[str, int], data_bytes: int) -> tuple[int, int]:
    """Check an accepted burst; return its byte address and its number of beats."""
    address, beats = burst["addr"], burst["len"] + 1
    channel.require(burst["burst"] == INCREMENTING, "a burst must be incrementing")
    channel.require(1 << burst["size"] == data_bytes, "a beat must have the width of the port")
    channel.require(beats <= MOST_BEATS, "a burst must have at most 256 beats")
    channel.require(address % data_bytes == 0, "a burst of whole beats must be aligned")
    end = address + beats * data_bytes - 1
    same_page = address // PAGE_BYTES == end // PAGE_BYTES
    channel.require(same_page, "a burst must not cross a page of 4 KB")
    channel.require(burst["id"] == 0, "all bursts must have ID 0")
    return address, beats


ADDRESS_FIELDS = ("id", "addr", "len", "size", "burst", "cache", "prot")


class AxiReads:
    """The read channels of the memory.

    Parameters
    ----------
    bench : Bench
        Clock and design.
    prefix : str
        Prefix of the port, such as ``m_axi_``.
    data_bytes : int
        Bytes per beat.
    memory : SparseMemory
        The contents.
    pauses : tuple[Iterator[bool], Iterator[bool]]
        Pauses of addresses and of data.
    latency : int
        Cycles from the acceptance of a burst to its first beat.
    respond : Callable[[int], int], optional
        Return the response code of the beat at an address.

    Members
    -------
    bursts : list[tuple[int, int]]
        Byte address and number of beats of each accepted burst.
    cycles : list[int]
        Cycle of each transferred beat.
    """

    def __init__(
        self,
        bench: Any,
        prefix: str,
        *,
        data_bytes: int,
        memory: SparseMemory,
        pauses: tuple[Pauses, Pauses],
        latency: int = 4,
        respond: Callable[[int], int] | None = None,
    ) -> None:
        self.bench, self.data_bytes, self.memory = bench, data_bytes, memory
        self.pauses, self.latency = pauses, latency
        self.respond = respond or (lambda _address: 0)
        self.addresses = Channel(bench.dut, f"{prefix}ar", ADDRESS_FIELDS, bench)
        self.data = Channel(bench.dut, f"{prefix}r", ("id", "data", "resp", "last"), bench)
        self.bursts: list[tuple[int, int]] = []
        self.cycles: list[int] = []
        self.waiting: deque[tuple[int, int, bool]] = deque()
        self.offered = False
        self.clear()

    def clear(self) -> None:
        """Discard all bursts, as in a reset."""
        self.bursts.clear()
        self.cycles.clear()
        self.waiting.clear()
        self.offered = False
        self.addresses.clear()
        self.addresses.ready.value = 0
        self.data.valid.value = 0

    @property
    def idle(self) -> bool:
        """Whether all accepted bursts are complete."""
        return not self.waiting

    def drive(self) -> None:
        """Decide whether to accept a burst; offer the next beat if it is due."""
        self.addresses.ready.value = len(self.waiting) < WAITING * MOST_BEATS and not next(
            self.pauses[0]
        )
        due = self.waiting and self.waiting[0][1] <= self.bench.cycle
        if not self.offered:
            self.offered = bool(due and not next(self.pauses[1]))
            self.data.valid.value = self.offered
            fields = self.data.fields
            if self.offered:
                address, _due, last = self.waiting[0]
                beat = self.memory.read(address, self.data_bytes)
                fields["id"].value, fields["last"].value = 0, last
                fields["resp"].value = self.respond(address)
                fields["data"].value = int.from_bytes(beat, "little")
            else:
                # Without `valid`, the other signals have no meaning.
                for name in ("id", "resp", "last"):
                    fields[name].value = self.bench.rng.getrandbits(fields[name].width)

    def sample(self) -> None:
        """Accept a burst, and record the transfer of a beat."""
        if burst := self.addresses.receive():
            address, beats = check_burst(self.addresses, burst, self.data_bytes)
            self.bursts.append((address, beats))
            due = self.bench.cycle + self.latency
            self.waiting.extend(
                (address + number * self.data_bytes, due, number == beats - 1)
                for number in range(beats)
            )
        if self.offered and self.data.ready.value:
            self.waiting.popleft()
            self.cycles.append(self.bench.cycle)
            self.offered = False


class AxiWrites:
    """The write channels of the memory.

    Parameters
    ----------
    bench, prefix, data_bytes, memory
        As for `AxiReads`.
    pauses : tuple[Iterator[bool], Iterator[bool], Iterator[bool]]
        Pauses of addresses, of data and of responses.
    latency : int
        Cycles from the end of a burst to its response.
    respond : Callable[[int], int], optional
        Return the response code of the burst at an address.
    order : str
        ``"any"``, or ``"data"`` to accept an address only after all data of its burst, or
        ``"address"`` to accept data only after their address. AXI4 allows all three.
    late : bool
        Store each burst when its response is transferred, the latest time that AXI4 allows, instead
        of when it is complete.

    Members
    -------
    bursts : list[tuple[int, int]]
        Byte address and number of beats of each accepted burst.
    written : list[tuple[int, int]]
        Address and value of each byte, in order.
    cycles : list[int]
        Cycle of each transferred beat of data.
    responses : int
        Number of transferred responses.
    """

    def __init__(
        self,
        bench: Any,
        prefix: str,
        *,
        data_bytes: int,
        memory: SparseMemory,
        pauses: tuple[Pauses, Pauses, Pauses],
        latency: int = 4,
        respond: Callable[[int], int] | None = None,
        order: str = "any",
        late: bool = False,
    ) -> None:
        self.bench, self.data_bytes, self.memory = bench, data_bytes, memory
        self.pauses, self.latency, self.order = pauses, latency, order
        self.late = late
        self.respond = respond or (lambda _address: 0)
        self.addresses = Channel(bench.dut, f"{prefix}aw", ADDRESS_FIELDS, bench)
        self.data = Channel(bench.dut, f"{prefix}w", ("data", "strb", "last"), bench)
        self.answers = Channel(bench.dut, f"{prefix}b", ("id", "resp"), bench)
        self.bursts: list[tuple[int, int]] = []
        self.written: list[tuple[int, int]] = []
        self.cycles: list[int] = []
        self.responses = 0
        self.beats: list[dict[str, int]] = []
        # Beats of complete bursts, and number of complete bursts; address, time and beats of
        # responses.
        self.stored, self.complete = 0, 0
        self.waiting: deque[tuple[int, int, list[dict[str, int]]]] = deque()
        self.offered = False
        self.clear()

    def clear(self) -> None:
        """Discard all bursts, as in a reset."""
        for kept in (self.bursts, self.written, self.cycles, self.beats, self.waiting):
            kept.clear()
        self.stored = self.complete = self.responses = 0
        self.offered = False
        for channel in (self.addresses, self.data):
            channel.clear()
            channel.ready.value = 0
        self.answers.valid.value = 0

    @property
    def idle(self) -> bool:
        """Whether all accepted bursts have their responses, and no beat is without its burst."""
        return self.responses == len(self.bursts) and self.stored == len(self.beats)

    def forget(self) -> None:
        """Forget all complete bursts, without a reset."""
        for kept in (self.bursts, self.written, self.cycles, self.beats):
            kept.clear()
        self.stored = self.complete = self.responses = 0

    @property
    def _lasts(self) -> int:
        """Number of bursts whose data are transferred completely."""
        return sum(beat["last"] for beat in self.beats)

    def drive(self) -> None:
        """Decide what to accept; offer the next response if it is due."""
        address_first = self.order == "address"
        data_first = self.order == "data"
        accepts = not next(self.pauses[0])
        self.addresses.ready.value = accepts and (not data_first or self._lasts > len(self.bursts))
        accepts = not next(self.pauses[1])
        self.data.ready.value = accepts and (not address_first or self._lasts < len(self.bursts))
        due = self.waiting and self.waiting[0][1] <= self.bench.cycle
        if not self.offered:
            self.offered = bool(due and not next(self.pauses[2]))
            self.answers.valid.value = self.offered
            fields = self.answers.fields
            if self.offered:
                fields["id"].value = 0
                fields["resp"].value = self.respond(self.waiting[0][0])
            else:
                for port in fields.values():
                    port.value = self.bench.rng.getrandbits(port.width)

    def sample(self) -> None:
        """Accept addresses and data, and record the transfer of a response."""
        if self.offered and self.answers.ready.value:
            address, _due, beats = self.waiting.popleft()
            if self.late:
                self._store(address, beats)
            self.responses += 1
            self.offered = False
        if burst := self.addresses.receive():
            self.bursts.append(check_burst(self.addresses, burst, self.data_bytes))
        if beat := self.data.receive():
            self.beats.append(beat)
            self.cycles.append(self.bench.cycle)
        while self.complete < len(self.bursts):
            address, count = self.bursts[self.complete]
            own = self.beats[self.stored : self.stored + count]
            for number, one in enumerate(own):
                ends = number == count - 1
                self.data.require(bool(one["last"]) == ends, "wlast must mark a burst's last beat")
            if len(own) < count:
                break
            if not self.late:
                self._store(address, own)
            self.stored += count
            self.complete += 1
            self.waiting.append((address, self.bench.cycle + self.latency, own))

    def _store(self, address: int, beats: list[dict[str, int]]) -> None:
        """Write the bytes whose strobes are set."""
        for number, beat in enumerate(beats):
            for byte in range(self.data_bytes):
                if beat["strb"] >> byte & 1:
                    place = address + number * self.data_bytes + byte
                    self.written.append((place, beat["data"] >> 8 * byte & 255))
                    self.memory.written[place] = self.written[-1][1]
