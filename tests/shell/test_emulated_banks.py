"""The emulated banks of P3-LLM: what is read and written, and when the accelerator waits."""

import random
from dataclasses import replace

import pytest

from hdl.catalog import entry_named
from hdl.shell.p3llm_axi_parameters import P3llmAxiParameters
from tests.shell.banks_bench import Access, BanksBench

pytestmark = pytest.mark.depends("p3llm_axi")

ENTRY = entry_named("p3llm_axi")
TINY: P3llmAxiParameters = ENTRY.parameters("tiny")
CHANNELS: P3llmAxiParameters = ENTRY.parameters("tiny_channels")


def random_accesses(p: P3llmAxiParameters, rng: random.Random, count: int) -> list[Access]:
    """Return short and long runs at few places, some of which are written, with jumps."""
    column = p.p3llm.channel.unit.column_bits
    places = [rng.randrange(p.positions) for _ in range(4)] + [0, p.positions - 6]
    found: list[Access] = []
    while len(found) < count:
        place = rng.choice(places) + rng.randrange(-3, 12)
        for _ in range(rng.choice((1, 3, 10, 60))):
            if not 0 <= place < p.positions:
                break
            unit = rng.choice((None, rng.randrange(p.p3llm.units)))
            mask, words = 0, ()
            if unit is not None and rng.random() < 0.4:
                mask = rng.randrange(1, 1 << column // 8)
                words = tuple(rng.getrandbits(column) for _ in range(p.p3llm.pseudo_channels))
            found.append(Access(place, unit, mask, words, rng.choice((0, 0, 1, 1, 5))))
            place += rng.choice((0, 1, 1, 1, 1, 2, 9))
    return found


@pytest.mark.parametrize(("latency", "pauses"), [(0, 0.4), (40, 0.0), (7, 0.2)])
@pytest.mark.parametrize("p", [TINY, CHANNELS], ids=["tiny", "channels"])
def test_random_accesses_read_what_was_written(
    p: P3llmAxiParameters, latency: int, pauses: float
) -> None:
    rng = random.Random(latency)
    accesses = random_accesses(p, rng, 500)
    announced = [one.position for one in accesses[::20]]
    bench = BanksBench(p, latency=latency, pauses=pauses, seed=latency, announced=announced)
    bench.run(accesses)
    assert max(bench.waits) > latency and min(bench.waits) == 0


def test_a_long_run_waits_for_its_first_position_only() -> None:
    """A column takes two cycles, and so does a position at the port."""
    bench = BanksBench(TINY, latency=24, cycles_per_word=2)
    bench.run([Access(300 + number, idle=1) for number in range(200)])
    assert bench.waits[0] < 24 + 6
    assert sum(bench.waits[1:]) == 0
    # No position is read twice.
    assert len(bench.reads) == len(set(bench.reads))
    assert bench.reads[0] == 300 and len(bench.reads) <= 200 + TINY.window_positions // 2 + 4


def test_the_distance_of_a_long_run_grows() -> None:
    """To more than the positions that arrive within the latency."""
    bench = BanksBench(TINY, latency=50)
    bench.run([Access(300 + number, idle=1) for number in range(200)])
    assert sum(bench.waits[60:]) == 0


def test_half_a_window_before_the_last_access_is_held() -> None:
    bench = BanksBench(TINY, latency=10)
    run = [Access(3 + number, idle=1) for number in range(100)]
    back = [Access(102 - TINY.window_positions // 2 + number, idle=200) for number in range(3)]
    bench.run([*run, *back])
    assert sum(bench.waits[1:]) == 0


def test_a_run_continues_after_accesses_elsewhere() -> None:
    run = [Access(number, idle=1) for number in range(60)]
    elsewhere = [Access(place, 0) for place in (700, 900, 701)]
    after = [Access(60 + number, idle=1) for number in range(60)]
    bench = BanksBench(TINY, latency=24, cycles_per_word=2)
    bench.run([*run, *elsewhere, *after])
    assert [wait > 0 for wait in bench.waits[60:63]] == [True, True, False]
    assert sum(bench.waits[63:]) == 0


def test_position_is_not_read_before_its_write_is_visible() -> None:
    """Windows are replaced until the written position is read from memory again."""
    elsewhere = [Access(place, 0) for place in (300, 700)]
    bench = BanksBench(replace(TINY, windows=2), latency=5, write_latency=500)
    bench.run([Access(5, 1, 0xF0, (0x0123_4567_89AB_CDEF,)), *elsewhere, Access(5, 1)])
    assert bench.reads.count(5) == 2
    assert bench.waits[-1] > 400


def test_announced_run_does_not_wait() -> None:
    """Its first positions are read while another run has what it needs."""
    run = [Access(number, idle=1) for number in range(100)]
    bench = BanksBench(TINY, latency=24, announced=[500])
    bench.run([*run, *(Access(500 + number, idle=1) for number in range(20))])
    assert bench.waits[0] > 0 and sum(bench.waits[1:]) == 0
    assert bench.reads.count(500) == 1


def test_written_position_is_forgotten_elsewhere() -> None:
    """Two windows have a position: the copy in the other one is not used after a write."""
    bench = BanksBench(TINY, latency=10, announced=[40])
    run = [Access(place, idle=3) for place in range(30, 44)]
    write = [Access(42, unit, 0xFF, (unit,)) for unit in (1, 2)]
    back = [Access(place, 2) for place in (300, 41, 42, 43, 42)]
    bench.run([*run, *write, *back])


def test_first_position_does_not_follow_the_last_one() -> None:
    """The number of positions is just below a power of two."""
    p = replace(TINY, p3llm=replace(TINY.p3llm, vocabulary_size=340))
    assert p.positions == 2**11 - 1
    bench = BanksBench(p, latency=10)
    bench.run([Access(place) for place in (p.positions - 2, p.positions - 1, 0, 1)])
    assert [wait > 0 for wait in bench.waits] == [True, False, True, False]


def test_positions_are_read_again_after_a_job() -> None:
    bench = BanksBench(TINY, latency=10)
    bench.run([Access(30), Access(31), Access(31, idle=100, changed=True), Access(30)])
    assert [wait > 0 for wait in bench.waits] == [True, False, True, True]
