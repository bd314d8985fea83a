"""Windows of consecutive positions of DRAM banks that are held on the chip."""

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, exact_log2

from hdl.memory.burst_port import BurstReadPort
from hdl.shell.p3llm_axi_parameters import FETCH, P3llmAxiParameters
from hdl.stream.connect import connect_registered
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

REQUESTS = 32
"""Most requests whose words have not all arrived."""

FIRST_REACH = 16
"""Positions that a new window reads ahead of its first access, or half of its size if that is less.

An access this far after what a window has requested continues the window, because a new one takes
the latency of memory.
"""


class BankWindows(Unit):
    """Decide which positions are on the chip: read ahead of the accesses, and replace windows.

    Accesses to banks are runs of ascending positions. A window follows one run: it holds the
    positions before the last access, to half of its size, and reads ahead of it. The distance grows
    with each access, from `FIRST_REACH` to half of the size: a run may end at once. Only the window
    of the last access reads ahead, and the others keep what they have. So a run continues without
    a wait after accesses elsewhere. An access that no window has and none will soon have replaces
    the window that was not used for the longest time. Words that were requested for a replaced
    window are discarded when they arrive.

    The place of a position is its window, and the position modulo the size of a window.

    **Latency** 0 cycles from an access to `hit`; 2 cycles from one without a window to its request.
    **Throughput** one access per cycle.

    Parameters
    ----------
    parameters : P3llmAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    access : In(1)
        The banks are commanded to read or write `position`. A command that is not served is
        repeated in the next cycle.
    position : In
        Position of the access.
    run : In(1)
        The access is probably part of a long run.
    write : In(1)
        The access is a write, which is served in this cycle.
    hit, place : Out
        A window has the position, at this place.
    announced : In(stream)
        Positions at which runs will begin.
    requests : Out(stream)
        Positions to read: the first `address`, and the `length`.
    arrives, last : In(1)
        A word of a request is transferred; the last one of the request.
    filled_place : Out
        Place of the word that is transferred. A word that is to be discarded has the place of the
        next one of its window, which overwrites it.
    unwritten : In(struct)
        With `valid`, writes from position `first` to position `last` may not be visible yet.
    restart : In(1)
        Forget all positions.
    """

    def __init__(self, *, parameters: P3llmAxiParameters) -> None:
        self.parameters = p = parameters
        self.port_signature = BurstReadPort(
            address_bits=p.address_bits, word_shape=p.columns_layout, longest=p.longest
        )
        place = self.place_bits(p)
        super().__init__(
            {
                "access": In(1),
                "position": In(p.position_bits),
                "run": In(1),
                "write": In(1),
                "hit": Out(1),
                "place": Out(place),
                "announced": In(stream.Signature(p.position_bits)),
                "requests": Out(stream.Signature(self.port_signature.request_layout)),
                "arrives": In(1),
                "last": In(1),
                "filled_place": Out(place),
                "unwritten": In(self.unwritten_layout(p)),
                "restart": In(1),
            }
        )

    @staticmethod
    def place_bits(p: P3llmAxiParameters) -> int:
        """Return the bits of a place."""
        return exact_log2(p.window_positions) + exact_log2(p.windows)

    @staticmethod
    def unwritten_layout(p: P3llmAxiParameters) -> data.StructLayout:
        """Return the layout of the range of positions that are being written."""
        position = p.position_bits
        return data.StructLayout({"valid": 1, "first": position, "last": position})

    @property
    def offset_bits(self) -> int:
        """Bits of a difference of positions.

        Modulo this power of two, no position before a window is one that the window may reach.
        """
        p = self.parameters
        return bits_for(p.positions + p.window_positions + FIRST_REACH)

    @property
    def window_layout(self) -> data.StructLayout:
        """The state of a window.

        Positions from `first` to `filled`, exclusive, are on the chip, those to `requested` in
        flight. `last` is the position of the last access, and `reach` how many positions the window
        reads ahead of it. `stale` words in flight are to be discarded.
        """
        p = self.parameters
        position = p.position_bits
        return data.StructLayout(
            {
                "live": 1,
                "first": position,
                "filled": position,
                "requested": position,
                "last": position,
                "reach": range(p.window_positions // 2 + 1),
                "stale": range(REQUESTS * FETCH + 1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Compare the access with all windows; update them, and request further positions."""
        m = Module()
        p = self.parameters
        names = range(p.windows)
        windows = [Signal(self.window_layout, name=f"window_{i}") for i in names]
        m.submodules.in_flight = in_flight = Fifo(shape=range(p.windows), depth=REQUESTS)
        half = p.window_positions // 2
        first_reach = min(FIRST_REACH, half)
        size = self.offset_bits
        has, covers, near, ahead = (
            Signal(p.windows, name=name) for name in ("has", "covers", "near", "ahead")
        )
        for number, own in enumerate(windows):
            offset, to_come, span = (
                Signal(size, name=f"{name}_{number}") for name in ("offset", "to_come", "span")
            )
            m.d.comb += [
                offset.eq(self.position - own.first),
                to_come.eq(self.announced.payload - own.first),
                span.eq(own.requested - own.first),
                has[number].eq(own.live & (offset < (own.filled - own.first)[:size])),
                covers[number].eq(own.live & (offset < span)),
                near[number].eq(own.live & (offset < span + first_reach)),
                ahead[number].eq(own.live & (to_come < span)),
            ]
        # The windows of the last access and of the last announcement, and whether they wait.
        current, coming = (Signal(range(p.windows), name=name) for name in ("current", "coming"))
        waits = Signal(2)
        restarts, announces = Signal(), Signal()
        chosen, oldest = (Signal(range(p.windows), name=name) for name in ("chosen", "oldest"))
        m.d.comb += [
            self.hit.eq(has.any()),
            restarts.eq(self.access & ~near.any()),
            # No position is requested in this cycle.
            self.announced.ready.eq(~(self.access | waits.any() | self.restart)),
            announces.eq(self.announced.valid & self.announced.ready & ~ahead.any()),
            oldest.eq(self._oldest(m, self.access | announces, chosen)),
            chosen.eq(oldest),
        ]
        # A window that has the position precedes one that will have it, and one that may reach it.
        for mask in (near, covers, has):
            for number in reversed(names):
                with m.If(mask[number] & self.access):
                    m.d.comb += chosen.eq(number)
        bits = exact_log2(p.window_positions)
        m.d.comb += self.place.eq(Cat(self.position[:bits], chosen))

        with m.If(self.access):
            m.d.sync += current.eq(chosen)
        with m.If(announces):
            m.d.sync += coming.eq(chosen)
        for number, which in enumerate((current, coming)):
            m.d.comb += waits[number].eq(self._waits(m, windows, which))
        turn, start = Signal(range(p.windows)), Signal(len(self.position))
        m.d.comb += turn.eq(Mux(waits[0], current, coming))
        length = self._request(m, windows, turn, in_flight, waits.any() & ~restarts)
        m.d.comb += start.eq(Mux(self.access, self.position, self.announced.payload))
        arriving = Signal(p.windows)
        m.d.comb += [
            arriving.eq(self.arrives << in_flight.sink.payload),
            in_flight.sink.ready.eq(self.arrives & self.last),
            self.filled_place.eq(
                Cat(
                    Array(own.filled[:bits] for own in windows)[in_flight.sink.payload],
                    in_flight.sink.payload,
                )
            ),
        ]
        for number, own in enumerate(windows):
            accessed = Signal(name=f"accessed_{number}")
            replaced, forgotten = (
                Signal(name=f"{name}_{number}") for name in ("replaced", "forgotten")
            )
            m.d.comb += [
                accessed.eq(self.access & (chosen == number)),
                replaced.eq((accessed & restarts) | (announces & (chosen == number))),
                # Another window's copy of a position that is written is old.
                forgotten.eq(self.restart | (self.write & covers[number] & ~accessed)),
            ]
            with m.If(arriving[number]):
                with m.If(own.stale == 0):
                    m.d.sync += own.filled.eq(own.filled + 1)
                with m.Else():
                    m.d.sync += own.stale.eq(own.stale - 1)
            with m.If(turn == number):
                m.d.sync += own.requested.eq(own.requested + length)
            # Release positions far before the last access, one per cycle.
            with m.If(
                (current == number)
                & ((own.last - own.first)[:size] > half)
                & (own.first != own.filled)
            ):
                m.d.sync += own.first.eq(own.first + 1)
            with m.If(accessed):
                m.d.sync += own.last.eq(self.position)
                with m.If(self.run & (own.last != self.position) & (own.reach < half)):
                    m.d.sync += own.reach.eq(own.reach + FETCH)
            with m.If(replaced | forgotten):
                m.d.sync += [
                    own.live.eq(replaced),
                    own.first.eq(start),
                    own.filled.eq(start),
                    own.requested.eq(start),
                    own.last.eq(start),
                    own.reach.eq(first_reach),
                    # No request is issued in this cycle.
                    own.stale.eq(
                        own.stale + (own.requested - own.filled)[:size] - arriving[number]
                    ),
                ]
        return m

    def _oldest(self, m: Module, uses: Value, chosen: Value) -> Value:
        """Return the window that was not used for the longest time."""
        names = range(self.parameters.windows)
        newer = {(i, j): Signal(name=f"newer_{i}_{j}") for i in names for j in names if i < j}
        for (i, j), own in newer.items():
            with m.If(uses & (chosen == i)):
                m.d.sync += own.eq(1)
            with m.Elif(uses & (chosen == j)):
                m.d.sync += own.eq(0)
        found: Value = Const(0, len(chosen))
        for i in names:
            oldest = Cat(newer[min(i, j), max(i, j)] ^ (i < j) for j in names if j != i).all()
            found = Mux(oldest, i, found)
        return found

    def _waits(self, m: Module, windows: Sequence[data.View], which: Value) -> Value:
        """Return whether a window has further positions to request."""
        p, size = self.parameters, self.offset_bits
        own, span = Signal(self.window_layout), Signal(size)
        m.d.comb += [
            own.as_value().eq(Array(one.as_value() for one in windows)[which]),
            span.eq(own.requested - own.first),
        ]
        # The last access may be at a position that is not requested yet.
        short = (own.last - own.first)[:size] >= span
        return (
            own.live
            & (short | ((own.requested - own.last)[:size] < own.reach))
            & (span + FETCH <= p.window_positions)
            & (own.requested != p.positions)
        )

    def _request(
        self, m: Module, windows: Sequence[data.View], turn: Value, in_flight: Fifo, permit: Value
    ) -> Value:
        """Request positions for a window; return how many in this cycle."""
        p, size = self.parameters, len(self.position)
        requested = Signal(size)
        whole, left, length = Signal(range(FETCH + 1)), Signal(size), Signal(range(FETCH + 1))
        overlaps, issues = Signal(), Signal()
        stage = stream.Signature(self.requests.payload.shape()).create(path=("stage",))
        connect_registered(m, stage, self.requests)
        m.d.comb += [
            requested.eq(Array(own.requested for own in windows)[turn]),
            # Requests end at multiples of their length, and at the end of the banks.
            whole.eq(FETCH - requested[: exact_log2(FETCH)]),
            left.eq(p.positions - requested),
            length.eq(Mux(left < whole, left, whole)),
            overlaps.eq(
                self.unwritten.valid
                & (requested + FETCH > self.unwritten.first)
                & (requested <= self.unwritten.last)
            ),
            stage.payload.address.eq(requested),
            stage.payload.length.eq(length),
            stage.valid.eq(
                permit & ~overlaps & in_flight.source.ready & ~(self.write | self.restart)
            ),
            issues.eq(stage.valid & stage.ready),
            in_flight.source.valid.eq(issues),
            in_flight.source.payload.eq(turn),
        ]
        return Mux(issues, length, 0)
