"""Address generators of LAD with the AXI shell: bursts of rows, tokens, G, places of all rows."""

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.sim import Simulator

from golden.lad.lad_tiles import place
from golden.shell.lad_axi import LadProgram, first_word
from hdl.catalog import entry_named
from hdl.lad.lad import Lad
from hdl.shell import lad_memory
from hdl.shell.groups_ahead import GroupsAhead
from hdl.shell.head_places import quotient
from hdl.shell.head_reads import HeadReads
from hdl.shell.head_writes import HeadWrites
from hdl.shell.lad_axi_parameters import POSITION_BYTES, LadAxiParameters
from hdl.shell.lad_memory import LadMemory
from hdl.shell.lad_tokens import LadTokens
from hdl.shell.run_requests import LEAST, MOST, RunRequests
from hdl.shell.unit_weights import UnitWeights
from hdl.unit import Unit
from tests.shell.part_streams import send, simulated, take

pytestmark = pytest.mark.depends("lad_axi")

ENTRY = entry_named("lad_axi")
TINY: LadAxiParameters = ENTRY.parameters("tiny")
PAIRS: LadAxiParameters = ENTRY.parameters("tiny_pairs")
SMOLLM2: LadAxiParameters = ENTRY.parameters("smollm2")


def number_of(layout: Any, **fields: Any) -> int:
    """Return the packed payload of fields; missing fields are 0."""
    return layout.const(fields).as_value().value


async def runs_of(context: Any, unit: Any, addresses: list[int], *, accepts: Any) -> Any:
    """Offer addresses in consecutive cycles; return the bursts, taken in cycles of `accepts`."""
    found: list[tuple[int, int]] = []
    held, cycle, left, quiet = None, 0, list(addresses), 0
    # A burst is offered at most two cycles after its last address.
    while left or quiet < 3:
        context.set(unit.rows.valid, bool(left))
        context.set(unit.rows.payload, left[0] if left else 0)
        context.set(unit.requests.ready, accepts(cycle))
        request, offered = unit.requests.payload, None
        if context.get(unit.requests.valid):
            offered = context.get(request.address), context.get(request.length)
        assert held is None or offered == held, "an offered burst is constant"
        held = None if accepts(cycle) else offered
        if offered and accepts(cycle):
            found.append(offered)
        quiet = 0 if offered else quiet + 1
        if left and context.get(unit.rows.ready):
            left.pop(0)
        await context.tick()
        cycle += 1
    return found


RUNS = [
    [5],
    [5, 7, 8, 9, 3],
    [*range(100, 103), 200, *range(201, 207), 0, 1],
    [*range(MOST + LEAST + 3)],
    [7, 7, 7, 8],
]


@pytest.mark.parametrize("addresses", RUNS)
@pytest.mark.parametrize("pause", [0, 2, 90])
def test_bursts_are_the_requested_words(addresses: list[int], pause: int) -> None:
    """A port that accepts at once gets short bursts; while it does not, they grow."""
    unit = RunRequests(address_bits=20, longest=1 << 20)
    found: list[tuple[int, int]] = []

    async def run(context: Any) -> None:
        found.extend(
            await runs_of(
                context, unit, addresses, accepts=lambda cycle: cycle % (pause + 1) == pause
            )
        )

    simulated(unit, run)
    words = [first + n for first, length in found for n in range(length)]
    assert words == addresses
    assert all(1 <= length <= MOST for _first, length in found)
    if pause == 0:
        assert max(length for _first, length in found) <= LEAST
    elif pause == 90 and len(addresses) > MOST:
        assert max(length for _first, length in found) == MOST


def test_quotients_are_exact() -> None:
    """All positions, for every number of lanes."""

    class All(Elaboratable):
        def __init__(self, bits: int, divisor: int) -> None:
            self.value, self.found = Signal(bits), Signal(bits)
            self.divisor = divisor

        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.d.comb += self.found.eq(quotient(self.value, self.divisor))
            return m

    for bits in (1, 5, 9):
        for divisor in range(1, 33):
            unit = All(bits, divisor)

            async def check(context: Any, unit: All = unit) -> None:
                for value in range(1 << len(unit.value)):
                    context.set(unit.value, value)
                    assert context.get(unit.found) == value // unit.divisor

            simulator = Simulator(unit)
            simulator.add_testbench(check)
            simulator.run()
    # The product with the reciprocal, for the longest positions.
    for divisor in range(1, 33):
        shift = 16 + (divisor - 1).bit_length()
        factor = -(-(1 << shift) // divisor)
        assert all(n * factor >> shift == n // divisor for n in range(0, 1 << 16, 7))


@pytest.mark.parametrize("p", [TINY, PAIRS, SMOLLM2], ids=["tiny", "tiny_pairs", "smollm2"])
def test_all_rows_have_places_of_their_own(p: LadAxiParameters) -> None:
    tile = p.lad.tile
    counts = {"positions": tile.apid.groups, "caches": tile.ac.columns, "keys": tile.slots}
    for region, each in counts.items():
        numbers = range(tile.stored_heads * p.lad.tiles)
        firsts = sorted(first_word(p, region, number) for number in numbers)
        assert all(low + each <= high for low, high in pairwise(firsts))
        assert firsts[0] == 0 and firsts[-1] + each == p.region_words[region]
    # Words of positions, then the marks.
    assert tile.apid.lanes * POSITION_BYTES + p.mark_bytes <= p.record_bytes
    assert p.regions["positions"] == p.record_bytes


def token_of(p: LadAxiParameters, lengths: list[int], *, predict: bool) -> int:
    """Return the word of a token."""
    program = LadProgram(p)
    program.token(lengths, [], predict=predict)
    return program.words["tokens"][0]


@pytest.mark.parametrize("predict", [False, True])
def test_token_gives_slices_and_requests_all_weights(predict: bool) -> None:
    """Lengths alternate with the samples; nothing is given before `written`."""
    p, rng = TINY, random.Random(int(predict))
    unit, lad = LadTokens(parameters=p), TINY.lad
    lengths, slices = [7, 12], list(range(1, p.token_slices + 1))
    norms = (2 * lad.layers + predict) * lad.hidden_slices
    given: list[tuple[int, int, int]] = []
    weights: list[tuple[int, int]] = []

    async def tokens(context: Any) -> None:
        context.set(unit.grouped, 1)
        await context.tick().repeat(30)
        assert not given and not context.get(unit.given.valid)
        context.set(unit.written, 1)

    async def offer(context: Any) -> None:
        for number in range(2):
            await send(context, unit.tokens, [token_of(p, lengths, predict=predict)], rng)
            # All slices precede the transfer.
            assert len(given) == (number + 1) * (p.token_slices + norms)
            assert len(weights) == (number + 1) * (lad.layers + predict)

    async def program(context: Any) -> None:
        await send(context, unit.slices_stream, 2 * slices, rng)

    async def port(context: Any) -> None:
        layout = unit.norms.words.payload.shape()
        for _token in range(2):
            request = unit.norms.requests.payload.shape().from_bits(
                await take(context, unit.norms.requests, rng)
            )
            assert (request.address, request.length) == (0, norms)
            words = [number_of(layout, word=1000 + n, last=n == norms - 1) for n in range(norms)]
            await send(context, unit.norms.words, words, rng)

    async def requests(context: Any) -> None:
        for _burst in range(2 * (lad.layers + predict)):
            one = unit.requests.payload.shape().from_bits(await take(context, unit.requests, rng))
            weights.append((one.address, one.length))

    async def taken(context: Any) -> None:
        layout = unit.given.payload.shape()
        for _slice in range(2 * (p.token_slices + norms)):
            one = layout.from_bits(await take(context, unit.given, rng))
            value = sum(code << 16 * place for place, code in enumerate(one["values"]))
            given.append((value, one.length, one.predicts))

    # The stream's payload has no fields.
    unit.slices_stream = PlainStream(unit.slices)
    simulated(unit, tokens, offer, program, port, requests, taken)
    own = [(n, lengths[(n - 1) % lad.batch], int(predict)) for n in slices]
    values = [*slices, *range(1000, 1000 + norms)]
    assert [value for value, _length, _predicts in given] == 2 * values
    assert given[: len(own)] == own
    layers = [(n * lad.layer_transfers, lad.layer_transfers) for n in range(lad.layers)]
    head = [(lad.layers * lad.layer_transfers, lad.vocabulary_transfers)] * predict
    assert weights == 2 * (layers + head)


class PlainStream:
    """A stream whose payload is a signal, as `send` and `take` use it."""

    def __init__(self, stream: Any) -> None:
        self.valid, self.ready, self.payload = stream.valid, stream.ready, Plain(stream.payload)


class Plain:
    """A signal with the method of a view."""

    def __init__(self, signal: Any) -> None:
        self.signal = signal

    def as_value(self) -> Any:
        """Return the signal."""
        return self.signal


@pytest.mark.parametrize("length", [0, TINY.lad.tile.slots + 1])
@pytest.mark.parametrize("sample", range(TINY.lad.batch))
def test_token_of_illegal_length_requests_nothing(length: int, sample: int) -> None:
    unit, lengths = LadTokens(parameters=TINY), [1] * TINY.lad.batch
    lengths[sample] = length

    async def offer(context: Any) -> None:
        for port in (unit.slices, unit.requests, unit.norms.requests, unit.given):
            context.set(port.valid if port is unit.slices else port.ready, 1)
        context.set(unit.written, 1)
        context.set(unit.grouped, 1)
        context.set(unit.tokens.payload.as_value(), token_of(TINY, lengths, predict=False))
        context.set(unit.tokens.valid, 1)
        for _cycle in range(9):
            await context.tick()
            for port in (unit.requests, unit.norms.requests, unit.given):
                assert not context.get(port.valid)
            assert context.get(unit.illegal) and not context.get(unit.tokens.ready)
        context.set(unit.tokens.valid, 0)
        context.set(unit.clear_flags, 1)
        await context.tick()
        assert not context.get(unit.illegal)

    simulated(unit, offer)


def test_groups_of_all_steps_are_requested_in_order() -> None:
    """Two tokens; a head has the length of its sample."""
    p, rng = replace(TINY, lad=replace(TINY.lad, heads=2, kv_heads=1)), random.Random(1)
    unit, lad = GroupsAhead(parameters=p), p.lad
    steps = lad.layers * lad.heads * lad.batch
    lengths = [[3, 9], [4, 10]]
    found: list[tuple[int, int]] = []

    async def requests(context: Any) -> None:
        layout = unit.requests.payload.shape()
        for number, own in enumerate(lengths):
            context.set(unit.token.as_value(), token_of(p, own, predict=False))
            context.set(unit.begun, 1)
            for _step in range(steps):
                one = layout.from_bits(await take(context, unit.requests, rng))
                found.append((one.head, one.length))
            for _cycle in range(5):
                await context.tick()
                assert context.get(unit.complete) and not context.get(unit.requests.valid)
            context.set(unit.ends, 1)
            context.set(unit.begun, 0)
            await context.tick()
            context.set(unit.ends, 0)
            assert len(found) == (number + 1) * steps

    simulated(unit, requests)
    # Per layer and key/value head: all samples, and for each of them the query heads.
    own = [n // lad.group_size % lad.batch for n in range(steps)]
    assert found == [(n, token[own[n]]) for token in lengths for n in range(steps)]


def test_each_unit_requests_its_own_weights() -> None:
    """A burst at every port; a word of all units is output when each port has one."""
    p, rng = TINY, random.Random(4)
    unit = UnitWeights(parameters=p)
    found: list[tuple[int, int]] = []
    words = [100 + number for number in range(len(unit.ports))]

    async def requests(context: Any) -> None:
        layout = unit.requests.payload.shape()
        await send(context, unit.requests, [number_of(layout, address=3, length=5)], rng)

    async def ports(context: Any) -> None:
        for port, word in zip(unit.ports, words, strict=True):
            request = await take(context, port.requests, rng)
            one = port.requests.payload.shape().from_bits(request)
            found.append((one.address, one.length))
            assert not context.get(unit.weights.valid)
            context.set(port.words.payload.word, word)
            context.set(port.words.valid, 1)
        await context.tick()
        assert context.get(unit.weights.valid)
        rows = context.get(unit.weights.payload.as_value())
        bits = p.lad.tile.vector.vector_layout.size
        assert rows == sum(word << bits * number for number, word in enumerate(words))

    simulated(unit, requests, ports)
    assert found == [(number * p.unit_words + 3, 5) for number in range(len(words))]


@pytest.mark.parametrize("p", [TINY, PAIRS], ids=["tiny", "tiny_pairs"])
def test_requests_have_the_places_of_their_rows(p: LadAxiParameters) -> None:
    """One request of each kind; active positions wait until keys and values are written."""
    unit, rng, tile = HeadReads(parameters=p), random.Random(2), p.lad.tile
    number, position = tile.stored_heads * p.lad.tiles - 2, tile.slots - 3
    own = place(p.lad.shared_tiles, number)
    head = {"head": own.head, "tile": own.tile}
    lanes, words = tile.apid.lanes, p.record_bytes // POSITION_BYTES
    row = first_word(p, "keys", number) + position
    record = first_word(p, "positions", number)
    lane = (record + position // lanes) * words + position % lanes
    asked = {
        "group_requests": {**head, "length": position + 1},
        "key_requests": {**head, "position": position},
        "counter_requests": {**head, "position": position},
        "cache_requests": head,
    }
    expected = {
        "group_reads": (record, position // lanes + 1),
        "key_reads": (row, 1),
        "norm_reads": (lane, 1),
        "counter_reads": (row, 1),
        "cache_reads": (first_word(p, "caches", number), tile.ac.columns),
    }
    found: dict[str, Any] = {}

    async def send_all(context: Any) -> None:
        for name, fields in asked.items():
            port = getattr(unit, name)
            await send(context, port, [number_of(port.payload.shape(), **fields)], rng)

    async def take_all(context: Any) -> None:
        for name in expected:
            requests = getattr(unit, name).requests
            one = requests.payload.shape().from_bits(await take(context, requests, rng))
            found[name] = one.address, one.length

    async def active(context: Any) -> None:
        port, ports = unit.active_requests, (unit.active_key_reads, unit.active_value_reads)
        context.set(
            port.payload.as_value(), number_of(port.payload.shape(), **asked["key_requests"])
        )
        context.set(port.valid, 1)
        for _cycle in range(5):
            await context.tick()
            assert not context.get(port.ready)
            assert not any(context.get(one.requests.valid) for one in ports)
        context.set(unit.appended, 1)
        await context.tick()
        context.set(port.valid, 0)
        for _cycle in range(3):
            await context.tick()
        for one in ports:
            request = one.requests.payload
            assert context.get(one.requests.valid)
            assert (context.get(request.address), context.get(request.length)) == (row, 1)

    simulated(unit, send_all, take_all, active)
    assert found == expected


@pytest.mark.parametrize("p", [TINY, PAIRS], ids=["tiny", "tiny_pairs"])
def test_changes_have_the_places_of_their_rows(p: LadAxiParameters) -> None:
    """One change of each kind; an append writes its key, then its value."""
    unit, rng, tile = HeadWrites(parameters=p), random.Random(3), p.lad.tile
    number, position = tile.stored_heads * p.lad.tiles - 2, tile.slots - 3
    own = place(p.lad.shared_tiles, number)
    head = {"head": own.head, "tile": own.tile}
    lanes, words = tile.apid.lanes, p.record_bytes // POSITION_BYTES
    row, record = first_word(p, "keys", number) + position, first_word(p, "positions", number)
    key, value = [list(range(first, first + p.lad.head_size)) for first in (1, 1001)]
    changes = {
        "appends": {**head, "position": position, "key": key, "value": value},
        "centres": {**head, "position": position, "centre": 5, "norm": 6, "ratio": 7},
        "marks": {**head, "group": 4, "modes": [1] * lanes, "counts": [2] * lanes},
        "counters": {**head, "position": position, "counters": [3] * tile.table.intervals},
    }
    vectors = [sum(code << 16 * n for n, code in enumerate(codes)) for codes in (key, value)]
    marks = number_of(p.mark_layout, modes=[1] * lanes, counts=[2] * lanes)
    counters = sum(3 << 12 * n for n in range(tile.table.intervals))
    marked = (record + 4 + 1) * (p.record_bytes // p.mark_bytes) - 1
    lane = (record + position // lanes) * words + position % lanes
    expected = {
        "row_writes": [(row, vectors[0], 0), (row, vectors[1], 1)],
        "centre_writes": [(lane, 5 | 7 << 16 | 6 << 32, 0)],
        "mark_writes": [(marked, marks, 0)],
        "counter_writes": [(row, counters, 0)],
    }
    found: dict[str, list[tuple[int, int, int]]] = {name: [] for name in expected}

    async def send_all(context: Any) -> None:
        for name, fields in changes.items():
            port = getattr(unit, name)
            await send(context, port, [number_of(port.payload.shape(), **fields)], rng)

    async def take_all(context: Any) -> None:
        for name, words_of in expected.items():
            port = getattr(unit, name)
            for _word in words_of:
                await context.tick().until(port.requests.valid & port.words.valid)
                region = context.get(unit.row_writes_region) if name == "row_writes" else 0
                address = context.get(port.requests.payload.address)
                context.set(port.requests.ready, 1)
                word = await take(context, port.words, rng)
                context.set(port.requests.ready, 0)
                mask = (1 << len(port.words.payload.word)) - 1
                found[name].append((address, word & mask, region))

    simulated(unit, send_all, take_all)
    assert found == expected


def test_columns_of_several_tiles_are_counted_separately() -> None:
    """The columns of two tiles alternate; those of the next step follow."""
    p = PAIRS
    unit, columns = HeadWrites(parameters=p), PAIRS.lad.tile.ac.columns
    port, found = unit.columns, list[int]()
    steps = [
        (head, tile, column) for head in (1, 2) for column in range(columns) for tile in (0, 1)
    ]

    async def changes(context: Any) -> None:
        layout = port.payload.shape()
        context.set(unit.cache_writes.requests.ready, 1)
        context.set(unit.cache_writes.words.ready, 1)
        context.set(port.valid, 1)
        for head, tile, column in steps:
            last = column == columns - 1
            payload = number_of(layout, head=head, tile=tile, last=last)
            context.set(port.payload.as_value(), payload)
            assert context.get(port.ready)
            found.append(context.get(unit.cache_writes.requests.payload.address))
            await context.tick()

    simulated(unit, changes)
    firsts = {
        (head, tile): first_word(p, "caches", head * p.lad.tiles + tile)
        for head, tile, _column in steps
    }
    assert found == [firsts[head, tile] + column for head, tile, column in steps]


class OpenPorts(Unit):
    """LAD's ports without LAD: a test drives its outputs."""

    built: list[Any]

    def __init__(self, *, parameters: Any) -> None:
        self.parameters = parameters
        super().__init__(dict(Lad(parameters=parameters).signature.members))
        self.built.append(self)

    def elaborate(self, platform: object) -> Module:
        return Module()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ports of LAD in each `LadMemory` that is simulated."""
    found: list[Any] = []
    monkeypatch.setattr(OpenPorts, "built", found, raising=False)
    monkeypatch.setattr(lad_memory, "Lad", OpenPorts)
    return found


def idle_memory(unit: LadMemory) -> list[Any]:
    """Return the `ready` signals of all ports of writes."""
    ports = [getattr(unit, port.name) for port in TINY.ports if port.writes]
    return [one.ready for port in ports for one in (port.requests, port.words)]


ENDS: list[tuple[str, dict[str, int]]] = [
    ("centres", {}),
    ("marks", {"last": 1}),
    ("columns", {"last": 1}),
]
"""What ends a step."""


@pytest.mark.parametrize("late", range(len(ENDS)))
def test_next_token_and_the_end_of_a_job_wait_for_open_steps(built: list[Any], late: int) -> None:
    """A step is open until its centre, its last marks and its last column are transferred."""
    unit = LadMemory(parameters=TINY)
    ends = [*ENDS[:late], *ENDS[late + 1 :], ENDS[late]]

    async def step(context: Any) -> None:
        (lad,) = built
        for ready in idle_memory(unit):
            context.set(ready, 1)
        context.set(unit.written, 1)
        context.set(lad.slices.ready, 0)
        context.set(lad.appends.valid, 1)
        await context.tick().until(lad.appends.ready)
        context.set(lad.appends.valid, 0)
        context.set(unit.tokens.payload.as_value(), token_of(TINY, [1, 1], predict=False))
        context.set(unit.tokens.valid, 1)
        context.set(unit.slices.valid, 1)
        for name, fields in ends:
            port = getattr(lad, name)
            for own in ({}, fields):
                await context.tick()
                assert not context.get(unit.idle) and not context.get(lad.slices.valid), name
                if own == fields or name != "centres":
                    payload = number_of(port.payload.shape(), **own)
                    context.set(port.payload.as_value(), payload)
                    context.set(port.valid, 1)
                    await context.tick().until(port.ready)
                    context.set(port.valid, 0)
                if own == fields:
                    break
        await context.tick()
        assert context.get(unit.idle) and context.get(lad.slices.valid)

    simulated(unit, step)


@pytest.mark.parametrize("predict", [False, True])
def test_a_job_ends_with_the_last_result(built: list[Any], predict: bool) -> None:
    """All states of a token are written, and all predictions transferred."""
    unit, results = LadMemory(parameters=TINY), TINY.state_words

    async def token(context: Any) -> None:
        (lad,) = built
        context.set(unit.written, 1)
        context.set(lad.slices.ready, 1)
        context.set(unit.tokens.payload.as_value(), token_of(TINY, [1, 1], predict=predict))
        context.set(unit.tokens.valid, 1)
        context.set(unit.slices.valid, 1)
        await context.tick().repeat(3)
        context.set(unit.predictions.ready, 1)
        for _sample in range(TINY.lad.batch * predict):
            assert not context.get(unit.idle)
            context.set(lad.predictions.valid, 1)
            await context.tick()
            context.set(lad.predictions.valid, 0)
        # The states wait in the unit until memory accepts them.
        for number in range(results):
            if number == results - 1:
                for ready in idle_memory(unit):
                    context.set(ready, 1)
            assert not context.get(unit.idle)
            context.set(lad.states.valid, 1)
            await context.tick().until(lad.states.ready)
            context.set(lad.states.valid, 0)
            if number == 0:
                for ready in idle_memory(unit):
                    context.set(ready, 1)
        await context.tick().repeat(4)
        assert context.get(unit.idle)

    simulated(unit, token)
