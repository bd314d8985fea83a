"""The external memory: bandwidth, latency and refresh of the data sheets, and legal commands."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from math import ceil
from pathlib import Path

import numpy as np
import pytest

from golden.p3llm.pim.bank_timing import PICOSECONDS, Event, RuleChecker
from hdl.errors import UserError
from testbenches import verilated
from testbenches.external_memory import (
    CAUSES,
    MEMORIES,
    ExternalMemory,
    memory_of,
    named_memories,
    tomllib,
)
from testbenches.external_memory import External as Attached
from testbenches.veda import hbm_timing

SOURCES = "EXTERNAL_SOURCES"
"""Environment variable with a folder of faulty sources."""

NAMES = ("ddr4", "hbm2", "lpddr4")
START = 50
"""Cycle of the first access."""

LONG = 1_000_000.0
"""Interval of refreshes that no short trial reaches, in ns."""


@dataclass(frozen=True)
class Trial:
    """The cycle of each read's completion, and the counts."""

    done: list[int]
    counts: dict[str, int]

    @property
    def waits(self) -> dict[str, int]:
        return {cause: self.counts[cause] for cause in CAUSES}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.environ.get(SOURCES) or Path(verilated.__file__).parent)
    source = folder / "external_trial.cpp"
    built = tmp_path_factory.mktemp("trial") / "trial"
    subprocess.run([verilated.COMPILER, "-std=c++17", "-O2", source, "-o", built], check=True)
    return built


def trial(
    program: Path,
    memory: ExternalMemory,
    accesses: Sequence[tuple[int, str, str, int, int]],
    *,
    mhz: int = 1000,
    trace: Path | None = None,
) -> Trial:
    external = Attached(memory, mhz, trace)
    (settings,) = external.settings({})
    lines = [settings.removeprefix("external "), *(" ".join(map(str, a)) for a in accesses)]
    file = program.with_name("accesses")
    file.write_text("\n".join(lines) + "\n")
    output = subprocess.run([program, file], check=True, capture_output=True, text=True).stdout
    *done, counts = output.splitlines()
    pairs = (word.split("=") for word in counts.split())
    external.receive({name: int(value) for name, value in pairs})
    return Trial([int(cycle) for cycle in done], external.counts)


def without_refresh(name: str, **changes: float) -> ExternalMemory:
    return replace(named_memories()[name], refi=LONG, **changes)  # type: ignore[arg-type]


def test_hbm2_has_the_times_of_the_other_models() -> None:
    """P3-LLM's rules, and VEDA's model of rows for short simulations in Python."""
    m = named_memories()["hbm2"]
    times = {"rrd": m.rrd_s}
    own = {name: 1000 * (times.get(name) or getattr(m, name)) for name in PICOSECONDS}
    assert own == PICOSECONDS
    assert (hbm_timing.ROW_TO_COLUMN, hbm_timing.PRECHARGE) == (m.rcd, m.rp)
    assert (hbm_timing.ROW_CYCLE, hbm_timing.ROW_TO_ROW) == (m.ras + m.rp, m.rrd_s)
    assert (hbm_timing.REFRESH, hbm_timing.REFRESH_INTERVAL) == (m.rfc, m.refi)
    assert hbm_timing.BANKS == m.bank_groups * m.banks


def row_address(m: ExternalMemory, *, bank: int, row: int) -> int:
    """Return an address in channel 0 and bank group 0."""
    stripe = m.page_bytes * m.bank_groups * m.channels
    return (row * m.banks + (bank - row) % m.banks) * stripe


@pytest.mark.parametrize(("name", "gb_s"), [("ddr4", 19.2), ("hbm2", 256.0), ("lpddr4", 64.0)])
def test_peak_bandwidth_is_that_of_the_paper(name: str, gb_s: float) -> None:
    assert named_memories()[name].gb_s == pytest.approx(gb_s)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_source(name: str) -> None:
    content = tomllib.loads((MEMORIES / f"{name}.toml").read_text())
    assert content["values"].keys() == content["sources"].keys()
    assert all(content["sources"].values())


@pytest.mark.parametrize("name", NAMES)
def test_one_read_takes_activation_latency_and_burst(program: Path, name: str) -> None:
    m = without_refresh(name)
    (done,) = trial(program, m, [(START, "port", "read", 0, m.burst_bytes)]).done
    # tRCD + RL + burst + controller, and at most two clock cycles and two cycles of rounding.
    least = m.rcd + m.rl + m.burst + m.controller
    assert least <= done - START <= least + 2 * m.clock + 2


@pytest.mark.parametrize("name", NAMES)
def test_sequential_stream_has_the_peak_bandwidth(program: Path, name: str) -> None:
    """Rows of the next banks are opened while the current ones are read."""
    m = without_refresh(name)
    size = 200 * m.burst_bytes * m.channels * m.bank_groups
    (done,) = trial(program, m, [(START, "port", "read", 0, size)]).done
    least = size / m.gb_s + m.rcd + m.rl + m.controller
    assert least <= done - START <= least * 1.01 + 4


@pytest.mark.parametrize("name", NAMES)
def test_refresh_takes_its_share_of_a_long_stream(program: Path, name: str) -> None:
    m = named_memories()[name]
    # Twelve intervals of refresh.
    size = int(12 * m.refi * m.gb_s)
    run = trial(program, m, [(1, "port", "read", 0, size)])
    share = 1 - size / m.gb_s / run.done[0]
    # A refresh also takes the time to close and to reopen the rows.
    around = m.rtp + m.rp + m.rcd + m.burst + 4 * m.clock
    assert m.rfc / m.refi * 0.98 <= share <= (m.rfc + around) / m.refi * 1.02 + 0.01
    assert run.counts["refreshes"] in (12 * m.channels, 13 * m.channels)
    assert run.waits["refresh"] == pytest.approx(share * run.done[0], rel=0.35)


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_one_bank_follow_at_trc(program: Path, name: str) -> None:
    m = without_refresh(name)
    count = 100
    reads = [(START, "port", "read", row_address(m, bank=0, row=row), 1) for row in range(count)]
    run = trial(program, m, reads)
    cycle = m.ras + m.rp
    assert run.counts["activations"] == count
    span = run.done[-1] - run.done[0]
    assert (count - 1) * cycle <= span + 1
    assert span - 1 <= (count - 1) * (cycle + 2 * m.clock)
    assert run.waits["row"] + run.waits["queue"] > 0.9 * sum(run.waits.values())


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_many_banks_follow_at_tfaw(program: Path, name: str) -> None:
    """Of one channel and bank group: the limit is tFAW, tRRD_L, or tRC of all its banks."""
    m = without_refresh(name)
    count = 200
    reads = [
        (START, "port", "read", row_address(m, bank=n % m.banks, row=n // m.banks), 1)
        for n in range(count)
    ]
    run = trial(program, m, reads)
    each = max(m.faw / 4, m.rrd_l, (m.ras + m.rp) / m.banks, m.ccd_l)
    span = run.done[-1] - run.done[0]
    assert run.counts["activations"] == count
    assert (count - 4) * each <= span + 1
    assert span - 1 <= (count - 1) * (each + m.clock) + m.ras + m.rp


def test_link_limits_the_bandwidth(program: Path) -> None:
    m = without_refresh("ddr4", limit=12.0)
    size = 64_000
    (done,) = trial(program, m, [(START, "port", "read", 0, size)], mhz=100).done
    least = size / 1.5 / 10
    assert least <= done - START <= 1.01 * least + 10


def test_waiting_for_one_read_is_latency_and_row(program: Path) -> None:
    m = without_refresh("hbm2")
    run = trial(program, m, [(START, "port", "read", 0, 32)])
    waits = run.waits
    assert sum(waits.values()) == run.done[0] - START - 1 == run.counts["waiting"]
    assert waits["latency"] >= m.rl + m.controller
    assert 0 < waits["row"] <= m.rcd + 1
    assert waits["bandwidth"] == waits["refresh"] == waits["queue"] == 0


def test_short_queue_is_a_cause_of_waiting(program: Path) -> None:
    """Rows of many banks: with one place in the queue, they are opened one at a time."""
    reads = []
    m = without_refresh("hbm2")
    for n in range(64):
        reads.append((START, "port", "read", row_address(m, bank=n % 4, row=n // 4), 1))
    deep, short = (trial(program, replace(m, queue_depth=depth), reads) for depth in (32, 1))
    assert short.done[-1] > 2 * deep.done[-1] - START
    assert short.waits["queue"] > short.waits["row"]


def test_open_row_is_read_before_it_is_closed(program: Path) -> None:
    """Columns of two open rows arrive after a request of another row of one of their banks."""
    m = without_refresh("lpddr4")
    step = m.burst_bytes * m.channels
    rows = [row_address(m, bank=bank, row=0) for bank in (0, 1)]
    first = [(START, "port", "read", row, 1) for row in rows]
    other = (START + 1, "other", "read", row_address(m, bank=0, row=1), 1)
    later = [(START + 2, "port", "read", rows[n % 2] + n // 2 * step, 1) for n in range(2, 24)]
    run = trial(program, m, [*first, other, *later])
    assert run.counts["activations"] == 3
    assert max(run.done) == run.done[2]


def test_old_access_is_not_passed_for_ever(program: Path) -> None:
    """Columns of the open row keep arriving as fast as they are read."""
    m = without_refresh("hbm2", queue_depth=4)
    step = m.burst_bytes * m.channels * m.bank_groups
    columns = m.page_bytes // m.burst_bytes
    count = 20 * columns
    every = int(m.ccd_l)
    reads = [(START + every * n, "port", "read", n % columns * step, 1) for n in range(count)]
    reads.insert(11, (START + 10 * every, "other", "read", row_address(m, bank=0, row=1), 1))
    run = trial(program, m, reads)
    # Its row, its data, and the accesses that may pass it.
    most = m.ras + m.rp + m.rcd + m.rl + m.controller + (4 * m.queue_depth + 3) * m.ccd_l
    assert run.done[11] - reads[11][0] <= most + m.rcd


def test_a_port_holds_its_latest_bursts(program: Path) -> None:
    """Bytes of one burst are fetched once; the ninth other burst replaces it."""
    m = without_refresh("hbm2")
    reads = [(START + 20 * n, "port", "read", 4 * n, 4) for n in range(8)]
    assert trial(program, m, reads).counts["bytes_read"] == 32
    others = [(START, "port", "read", 32 * n, 32) for n in range(9)]
    assert trial(program, m, [*others, (900, "port", "read", 0, 32)]).counts["bytes_read"] == 320


def test_adjacent_writes_are_combined(program: Path) -> None:
    m = without_refresh("hbm2")
    writes = [(START + n, "port", "write", 8 * n, 8) for n in range(16)]
    end = [(400, "other", "read", 1 << 20, 1)]
    assert trial(program, m, [*writes, *end]).counts["bytes_written"] == 128


def test_incomplete_burst_is_written_after_a_while(program: Path) -> None:
    m = without_refresh("hbm2")
    end = (400, "other", "read", 1 << 20, 1)
    run = trial(program, m, [(START, "port", "write", 0, 8), end])
    assert run.counts["bytes_written"] == 32


def test_writes_do_not_wait_for_the_end_of_a_stream(program: Path) -> None:
    """More writes than queue and port hold; a read of the same program order follows them."""
    m = without_refresh("hbm2", channels=1)
    stream = (START, "port", "read", 0, 2000 * m.burst_bytes)
    place = 1 << 24
    writes = [
        (START + 1, "writes", "write", place + n * m.burst_bytes, m.burst_bytes) for n in range(100)
    ]
    run = trial(program, m, [stream, *writes, (START + 2, "other", "read", 2 * place, 1)])
    assert run.done[1] < run.done[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_command_is_legal(program: Path, tmp_path: Path, name: str, seed: int) -> None:
    """Random reads and writes, of which some are adjacent; rules of a model of its own."""
    m = replace(named_memories()[name], channels=1)
    rng = np.random.default_rng(seed)
    accesses, cycle = [], 1
    for _ in range(1500):
        # Dense, with idle times in which the memory refreshes without any access.
        cycle += int(rng.choice([0, 1, 30, 800], p=[0.6, 0.3, 0.08, 0.02]))
        kind = "write" if rng.random() < 0.3 else "read"
        place = int(rng.integers(0, 64)) * m.page_bytes + int(rng.integers(0, 8)) * m.burst_bytes
        size = int(rng.integers(1, 6)) * m.burst_bytes
        accesses.append((cycle, f"port{rng.integers(0, 3)}", kind, place, size))
    trace = tmp_path / "commands"
    run = trial(program, m, accesses, trace=trace)
    check_commands(m, trace, run)


def check_commands(m: ExternalMemory, trace: Path, run: Trial) -> None:
    """Check all commands of one channel by the rules of its data sheet, in clock cycles."""
    nanoseconds = {name: getattr(m, name) for name in ("rcd", "rp", "ras", "rtp", "rfc", "refi")}
    nanoseconds |= {"ccd_s": max(m.ccd_s, m.burst), "ccd_l": m.ccd_l, "rrd": m.rrd_s}
    nanoseconds |= {"wr": m.wl + m.burst + m.wr, "wtr": m.wl + m.burst + m.wtr}
    # The period need not be whole picoseconds: the checker gets cycles, as times at 1 MHz.
    times = {name: 1_000_000 * ceil(ns / m.clock - 1e-3) for name, ns in nanoseconds.items()}
    banks = m.bank_groups * m.banks
    # The checker has four bank groups: those of a memory with fewer have no common rule here.
    checker = RuleChecker(max(banks, 4), times, clock_mhz=1)
    by_cycle: dict[int, list[Event]] = {}
    commands: list[tuple[float, str, int]] = []
    for line in trace.read_text().splitlines():
        when, _channel, kind, bank = line.split()
        group, place = int(bank) % m.bank_groups, int(bank) // m.bank_groups
        time = int(when) / 1e6
        commands.append((time, kind, group))
        own = frozenset({group * m.banks + place})
        event = Event(
            cycle=round(time / m.clock),
            kind=kind,
            banks=frozenset(range(banks)) if kind == "refresh" else own,
        )
        by_cycle.setdefault(event.cycle, []).append(event)
    for events in by_cycle.values():
        assert not checker.check(events), events
    kinds = [kind for _time, kind, _group in commands]
    assert kinds.count("read") * m.burst_bytes == run.counts["bytes_read"]
    assert min(kinds.count(kind) for kind in ("read", "write", "activate", "refresh")) > 2
    activations = np.array([time for time, kind, _ in commands if kind == "activate"])
    assert (activations[4:] - activations[:-4] >= m.faw - 1e-3).all()
    for kinds_of, least_same, least in (
        (("activate",), m.rrd_l, m.rrd_s),
        (("read", "write"), m.ccd_l, max(m.ccd_s, m.burst)),
    ):
        own = [(time, group) for time, kind, group in commands if kind in kinds_of]
        for (before, first), (after, second) in pairwise(own):
            needed = least_same if first == second else least
            assert after - before >= needed - 1e-3
    latency = {"read": m.rl, "write": m.wl}
    starts = sorted(time + latency[kind] for time, kind, _ in commands if kind in latency)
    assert (np.diff(starts) >= m.burst - 1e-3).all(), "two bursts use the data bus"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lpddr5", "MEMORY must be one of .*lpddr4.* not 'lpddr5'; did you mean"),
        ("", "MEMORY must be one of"),
        ("none refi=5", "MEMORY must be one of"),
        ("hbm2 width=5", "a number of MEMORY must be one of"),
        ("hbm2 channels=two", "channels of MEMORY must be an integer, not 'two'"),
        ("hbm2 rcd=fast", "rcd of MEMORY must be a number, not 'fast'"),
        ("hbm2 channels=0", "channels must be from 1 to 128, not 0"),
        ("hbm2 banks=3", "banks must be a power of two from 1 to 32, not 3"),
        ("hbm2 page_bytes=100", "page_bytes must be a multiple of the 32 bytes of a burst"),
        ("hbm2 refi=100", "refi must exceed rfc [+] rp [+] ras, not 100"),
        ("ddr4 limit=-1", "limit must be 0, or from 0.001"),
        ("ddr4 rcd=nan", "rcd must be from 0 to 1000000 ns, not nan"),
    ],
)
def test_rejects_an_illegal_memory(text: str, message: str) -> None:
    with pytest.raises((UserError, ValueError), match=message):
        memory_of(text)


def test_changes_numbers_of_a_named_memory() -> None:
    memory = memory_of("ddr4 limit=12 queue_depth=4")
    assert memory == replace(named_memories()["ddr4"], limit=12.0, queue_depth=4)
    assert memory is not None and memory.gb_s == 1.5
    assert memory_of("none") is None
    assert {one.name for one in fields(ExternalMemory)} - {"name"} >= set(
        tomllib.loads((MEMORIES / "ddr4.toml").read_text())["values"]
    )
