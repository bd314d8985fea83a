"""Harnesses for the formal proof of the AXI4 masters: free partners, and the rules as assertions.

All inputs are free in every cycle, except that a partner keeps the rules of its interface. With
`flushes`, `flush` is also free, and the harness states only what holds during and after a flush.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value

from hdl.shell.axi_parameters import AxiMasterParameters
from hdl.shell.axi_read_master import AxiReadMaster
from hdl.shell.axi_write_master import AxiWriteMaster
from testbenches.formal import AnyConst, AnySeq, Assert, Assume

WIDE = AxiMasterParameters(
    address_bits=4,
    word_bytes=8,
    longest=3,
    axi_address_bits=12,
    data_bytes=4,
    burst_beats=2,
    outstanding=2,
)
"""Small dimensions of a proof: words of two beats, a burst for each word."""

LANES = replace(WIDE, address_bits=5, word_bytes=1, longest=7, burst_beats=1)
"""Small dimensions of a proof: four words per beat, a burst for each beat."""

COUNT = 6
"""Bits of the counters of a bounded proof."""


def free_stream(m: Module, name: str, source: Any) -> None:
    """Drive a stream freely, but hold an offer until its transfer."""
    payload = Value.cast(source.payload)
    offered, held = Signal(name=f"{name}_offered"), Signal.like(payload, name=f"{name}_held")
    m.d.comb += [
        source.valid.eq(offered | AnySeq(1)),
        payload.eq(Mux(offered, held, AnySeq(len(payload)))),
    ]
    m.d.sync += [offered.eq(source.valid & ~source.ready), held.eq(payload)]


def stable(m: Module, name: str, valid: Value, ready: Value, payload: Sequence[Value]) -> None:
    """Assert that an offer is unchanged until its transfer, and absent in the first cycle."""
    bits = Cat(*payload)
    offered, before = Signal(name=f"{name}_open"), Signal.like(bits, name=f"{name}_before")
    first = Signal(name=f"{name}_first", init=1)
    m.d.sync += [offered.eq(valid & ~ready), before.eq(bits), first.eq(0)]
    m.d.comb += [
        Assert(~offered | (valid & (bits == before))),
        # The state after reset: AXI4 requires the valid signals to be low.
        Assert(~(first & valid)),
    ]


def within_block(p: AxiMasterParameters, address: Value, length: Value) -> Value:
    """Return whether a burst of `length` + 1 beats is aligned and within its block."""
    block = p.block_beats * p.data_bytes
    offset = address & (block - 1)
    return (offset + (length + 1) * p.data_bytes <= block) & (address % p.data_bytes == 0)


def free_flush(m: Module, unit: Any) -> Value:
    """Drive `flush` freely, but hold it until the unit is idle."""
    flushing = Signal()
    m.d.comb += unit.flush.eq(flushing | AnySeq(1))
    m.d.sync += flushing.eq(unit.flush & ~unit.idle)
    return unit.flush


class MasterRules(Elaboratable):
    """A master between a free design and a free memory; each master adds its rules.

    Parameters
    ----------
    parameters : AxiMasterParameters
        Dimensions of the master.
    flushes : bool
        Let `flush` be free, and leave out what a flush may break.
    cover : str, optional
        An event of `reached`. The harness also asserts that it does not occur: a search that fails
        shows that it is reachable.

    Members
    -------
    reached : dict[str, Value]
        Events that must be reachable, after elaboration.
    """

    def __init__(
        self, *, parameters: AxiMasterParameters, flushes: bool = False, cover: str | None = None
    ) -> None:
        self.parameters, self.flushes, self.cover = parameters, flushes, cover
        self.reached: dict[str, Value] = {}

    def elaborate(self, platform: object) -> Module:
        """State the rules, and that the event to be covered does not occur."""
        m = Module()
        self.state_rules(m)
        if self.cover:
            m.d.comb += Assert(~self.reached[self.cover])
        return m

    def state_rules(self, m: Module) -> None:
        """Connect the partners, state the rules, and set `reached`."""
        raise NotImplementedError

    def free_design(self, m: Module, unit: Any) -> Value:
        """Drive the inputs that both masters have; return `flush`."""
        p, requests = self.parameters, unit.port.requests
        free_stream(m, "requests", requests)
        m.d.comb += [
            Assume(requests.payload.length <= p.longest),
            unit.base.eq(AnyConst(p.beat_address_bits)),
            unit.clear_error.eq(AnySeq(1)),
        ]
        return free_flush(m, unit) if self.flushes else Signal()


class ReadRules(MasterRules):
    """The read master between a free design and a memory whose data are its beat addresses.

    Parameters
    ----------
    parameters : AxiMasterParameters
        Dimensions; a beat must have 4 bytes, so that it contains its address.
    flushes, cover
        As in `MasterRules`.
    """

    def state_rules(self, m: Module) -> None:
        """Connect the partners, and state the rules."""
        p = self.parameters
        m.submodules.unit = unit = AxiReadMaster(parameters=p)
        axi, port = unit.m_axi, unit.port
        flush = self.free_design(m, unit)
        m.d.comb += [
            unit.hold.eq(AnySeq(1)),
            port.words.ready.eq(AnySeq(1)),
            axi.arready.eq(AnySeq(1)),
            axi.rid.eq(AnySeq(1)),
            Value.cast(axi.rresp).eq(AnySeq(2)),
            axi.rlast.eq(AnySeq(1)),
        ]
        asks, answers = axi.arvalid & axi.arready, axi.rvalid & axi.rready
        stable(m, "ar", axi.arvalid, axi.arready, [axi.araddr, axi.arlen])
        m.d.comb += Assert(~axi.arvalid | within_block(p, axi.araddr, axi.arlen))
        m.d.comb += Assert(~(flush & port.words.valid))

        # The memory answers the oldest burst, whenever it likes.
        depth = p.outstanding + 2
        addresses = [Signal(p.axi_address_bits, name=f"burst_{i}") for i in range(depth)]
        lengths = [Signal(8, name=f"length_{i}") for i in range(depth)]
        number, beat = Signal(range(depth + 1)), Signal(8)
        ends = answers & (beat == lengths[0])
        m.d.comb += [
            axi.rvalid.eq(AnySeq(1) & (number != 0)),
            axi.rdata.eq(addresses[0] + beat * p.data_bytes),
            Assert(number <= p.outstanding),
            Assert(~unit.idle | ((number == 0) & ~axi.arvalid)),
        ]
        m.d.sync += number.eq(number + asks - ends)
        with m.If(answers):
            m.d.sync += beat.eq(Mux(ends, 0, beat + 1))
        for queue, new in ((addresses, axi.araddr), (lengths, axi.arlen)):
            for place, item in enumerate(queue):
                following = queue[place + 1] if place + 1 < depth else item
                with m.If(asks & (number == place + ends)):
                    m.d.sync += item.eq(new)
                with m.Elif(ends):
                    m.d.sync += item.eq(following)

        self.reached = {
            "a burst in the middle of another": asks & (number != 0),
            "an error": Value.cast(unit.error.cause) == 2,
            "all bursts in flight": number == p.outstanding,
        }
        if self.flushes:
            restarts = Signal()
            with m.If(flush & (number != 0)):
                m.d.sync += restarts.eq(1)
            self.reached["work after a flush of bursts"] = (
                restarts & ~flush & port.words.valid & port.words.payload.last
            )
        else:
            self._check_words(m, unit)

    def _check_words(self, m: Module, unit: Any) -> None:
        """Compare one word of any request with its address, and its `last` with the length."""
        p, port = self.parameters, unit.port
        request, word = port.requests.payload, port.words.payload
        watched = AnyConst(COUNT)
        asked, given = Signal(COUNT), Signal(COUNT)
        known, address, last = Signal(), Signal(p.axi_address_bits), Signal()
        place = watched - asked
        accepts = port.requests.valid & port.requests.ready
        transfers = port.words.valid & port.words.ready
        inside = (watched >= asked) & (place < request.length)
        with m.If(accepts):
            m.d.sync += asked.eq(asked + request.length)
            with m.If(inside):
                m.d.sync += [
                    known.eq(1),
                    address.eq(unit.base * p.data_bytes + (request.address + place) * p.word_bytes),
                    last.eq(place == request.length - 1),
                ]
        m.d.sync += given.eq(given + transfers)
        beats = [
            (address + number * p.data_bytes)[: p.axi_address_bits] for number in range(p.beats)
        ]
        if p.lanes > 1:
            # The word is a part of a beat that contains the beat's address.
            lane = address[: p.byte_bits] // p.word_bytes
            whole = Signal(8 * p.data_bytes)
            m.d.comb += whole.eq(address & -p.data_bytes & (1 << p.axi_address_bits) - 1)
            expected: Value = whole.word_select(lane, 8 * p.word_bytes)
        else:
            padding = 8 * p.data_bytes - p.axi_address_bits
            expected = Cat(*(Cat(one, Const(0, padding)) for one in beats))
        m.d.comb += [
            # The proof is about runs in which the counters do not overflow.
            Assume(asked < (1 << COUNT) - p.longest),
            Assert(~(transfers & (given == watched)) | known),
            Assert(~(transfers & (given == watched)) | (word.word == expected)),
            Assert(~(transfers & (given == watched)) | (word.last == last)),
            Assert(given <= asked),
            Assert(~unit.idle | (given == asked)),
        ]
        self.reached |= {
            "the last word of a request of several bursts": transfers
            & (given == watched)
            & word.last
            & (given > p.block_beats * p.lanes // p.beats),
            "idle after a request of several words": unit.idle & (asked > 1),
        }


class WriteRules(MasterRules):
    """The write master between a free design and a free memory.

    Parameters
    ----------
    parameters : AxiMasterParameters
        Dimensions; a word must have at least 8 bits, which contain its number.
    flushes, cover
        As in `MasterRules`.
    """

    def state_rules(self, m: Module) -> None:
        """Connect the partners, and state the rules."""
        p = self.parameters
        m.submodules.unit = unit = AxiWriteMaster(parameters=p)
        axi, port = unit.m_axi, unit.port
        flush = self.free_design(m, unit)
        taken = Signal(COUNT)
        offered = Signal()
        m.d.comb += [
            axi.awready.eq(AnySeq(1)),
            axi.wready.eq(AnySeq(1)),
            axi.bid.eq(AnySeq(1)),
            Value.cast(axi.bresp).eq(AnySeq(2)),
            port.words.valid.eq(offered | AnySeq(1)),
            # A word contains its number in each of its beats.
            port.words.payload.word.eq(Cat(*self._parts(taken))),
        ]
        accepts = port.words.valid & port.words.ready
        m.d.sync += [
            offered.eq(port.words.valid & ~port.words.ready),
            taken.eq(taken + accepts),
        ]
        addressed, sent = axi.awvalid & axi.awready, axi.wvalid & axi.wready
        answered = axi.bvalid & axi.bready
        stable(m, "aw", axi.awvalid, axi.awready, [axi.awaddr, axi.awlen])
        stable(m, "w", axi.wvalid, axi.wready, [axi.wdata, axi.wstrb, axi.wlast])
        bursts, ends, responses = (
            Signal(COUNT, name=name) for name in ("bursts", "ends", "responses")
        )
        beats = Signal(COUNT)
        m.d.sync += [
            bursts.eq(bursts + addressed),
            ends.eq(ends + (sent & axi.wlast)),
            responses.eq(responses + answered),
        ]
        with m.If(sent):
            m.d.sync += beats.eq(Mux(axi.wlast, 0, beats + 1))
        m.d.comb += [
            axi.bvalid.eq(AnySeq(1) & (responses < bursts) & (responses < ends)),
            Assert(~axi.awvalid | within_block(p, axi.awaddr, axi.awlen)),
            Assert(bursts - responses <= p.outstanding),
            Assert(ends - responses <= p.outstanding),
            Assert(~unit.idle | ((bursts == responses) & (ends == responses))),
            Assert(~unit.idle | ~(axi.awvalid | axi.wvalid)),
        ]
        # One burst: the beats of its data are those of its address, whichever is first.
        watched = AnyConst(COUNT)
        length, size = Signal(9), Signal(9)
        with m.If(addressed & (bursts == watched)):
            m.d.sync += length.eq(axi.awlen + 1)
        with m.If(sent & axi.wlast & (ends == watched)):
            m.d.sync += size.eq(beats + 1)
        m.d.comb += [
            Assert((length == 0) | (size == 0) | (length == size)),
            Assert(~(axi.wvalid & (beats > p.block_beats - 1))),
            Assume(bursts < (1 << COUNT) - 8),
        ]
        self.reached = {
            "data before their address": ends > bursts,
            "addresses before their data": bursts > ends + 1,
            "an error": Value.cast(unit.error.cause) == 2,
            "a response of a burst of several beats": answered & (length > 1) & (size > 1),
        }
        if self.flushes:
            flushed = Signal()
            with m.If(flush & (bursts != responses)):
                m.d.sync += flushed.eq(1)
            m.d.comb += Assert(~(flush & port.words.ready))
            self.reached["a burst after a flush of bursts"] = flushed & ~flush & answered
        else:
            self._check_words(m, unit, taken)

    def _parts(self, number: Value) -> list[Value]:
        """Return the parts of a word, one per beat or the whole word."""
        p = self.parameters
        padding = 8 * min(p.word_bytes, p.data_bytes) - COUNT - 2
        return [Cat(number, Const(0, padding), Const(part, 2)) for part in range(p.beats)]

    def _check_words(self, m: Module, unit: Any, taken: Value) -> None:
        """Compare all data with the order of words, one word with its lane, and all counts."""
        p, axi, port = self.parameters, unit.m_axi, unit.port
        request = port.requests.payload
        sent = axi.wvalid & axi.wready
        requested, beat = Signal(COUNT), Signal(COUNT)
        with m.If(port.requests.valid & port.requests.ready):
            m.d.sync += requested.eq(requested + request.length)
        m.d.sync += beat.eq(beat + sent)
        m.d.comb += [
            Assume(requested < (1 << COUNT) - p.longest),
            Assert(taken <= requested),
            Assert(~unit.idle | (taken == requested)),
        ]
        if p.lanes == 1:
            word, part = Signal(COUNT), Signal(range(p.beats))
            with m.If(sent):
                m.d.sync += part.eq(Mux(part == p.beats - 1, 0, part + 1))
                with m.If(part == p.beats - 1):
                    m.d.sync += word.eq(word + 1)
            m.d.comb += [
                Assert(~axi.wvalid | axi.wstrb.all()),
                Assert(~axi.wvalid | (axi.wdata[:COUNT] == word)),
                Assert(~axi.wvalid | (axi.wdata[-2:] == part)),
            ]
            self.reached["the second word"] = axi.wvalid & (word == 1)
            return
        # Words of a beat are in ascending lanes; one word of any request is in its own lane.
        watched = AnyConst(COUNT)
        known, lane = Signal(), Signal(range(p.lanes))
        place = watched - requested
        with m.If(port.requests.valid & port.requests.ready):
            with m.If((watched >= requested) & (place < request.length)):
                m.d.sync += [known.eq(1), lane.eq(request.address + place)]
        first = Signal(COUNT)
        number: Value = first
        for index in range(p.lanes):
            bytes_ = axi.wstrb[index * p.word_bytes : (index + 1) * p.word_bytes]
            value = axi.wdata.word_select(index, 8 * p.word_bytes)[:COUNT]
            m.d.comb += [
                Assert(~axi.wvalid | (bytes_.all() == bytes_.any())),
                Assert(~(axi.wvalid & bytes_[0]) | (value == number[:COUNT])),
                Assert(~(axi.wvalid & bytes_[0] & (value == watched)) | (known & (lane == index))),
            ]
            number = (number + bytes_[0])[:COUNT]
        with m.If(sent):
            m.d.sync += first.eq(number)
        self.reached["a partial beat and a whole one"] = (first > p.lanes) & (
            first & (p.lanes - 1)
        ).any()
