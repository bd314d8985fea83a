"""Bench of P3-LLM's system: streams, banks, and the comparison of their contents."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from golden.p3llm.dram_layout import row_number
from golden.p3llm.pim.bank_timing import POSTPONED, Event, RefreshRule, RuleChecker
from hdl.p3llm.p3llm import P3llm
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.pim_channel import COLUMN_BITS
from testbenches.bench import Bench, catalog_parameters
from testbenches.p3llm.layer_run import state_words
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.streams import Port, read

KINDS = ("activate", "precharge", "refresh", "read", "write")
"""Kinds of commands to the banks."""

APART = {
    "rp": ("precharge", "activate"),
    "rcd": ("activate", "read"),
    "rfc": ("refresh", "activate"),
    "ccd_s": ("alone", "alone"),
}
"""Pairs of commands to a bank with a minimum distance that every layer reaches; and reads of single
banks, which are tCCD_S apart, as the bank groups alternate."""


class Banks:
    """Model of the banks' arrays: bytes by position, opened, read and written by commands.

    Parameters
    ----------
    dut : Any
        The design under test.
    p : P3llmParameters
        Parameters of the system.
    number : int
        Index of the pseudo-channel.
    """

    def __init__(self, dut: Any, p: P3llmParameters, number: int = 0) -> None:
        self.p = p
        self.issued, self.data = (
            Port(getattr(dut, P3llm.banks_port(name, number)))
            for name in ("bank_command", "bank_data")
        )
        self.layout = p.channel.bank_command_layout
        self.field = {name: field for name, field in self.layout}
        self.image = np.zeros((0, p.units, 2 * p.elements), np.uint8)
        self.rows = [0] * self.p.channel.timing.banks
        self.columns = [0] * self.p.units
        self.counts: dict[str, int] = dict.fromkeys((*KINDS, "multiplies"), 0)
        self.cycle = 0
        self.rules = RuleChecker.of(p.channel.timing)
        self.refreshes = RefreshRule(self.rules)
        self.issued_in: list[dict[str, int]] = [{} for _ in self.rows]
        # The minimum cycles between commands to the same bank, and between single reads.
        self.closest: dict[str, int] = {}
        self.alone_in: dict[str, int] = {}
        self.clear()

    def clear(self) -> None:
        """Close all rows."""
        self.rows = [0] * self.p.channel.timing.banks
        self.columns = [0] * self.p.units
        self.counts = dict.fromkeys((*KINDS, "multiplies"), 0)
        self.data.value = 0
        self.cycle = 0
        self.rules = RuleChecker.of(self.p.channel.timing)
        self.refreshes = RefreshRule(self.rules)
        self.issued_in = [{} for _ in self.rows]
        self.closest = {}
        self.alone_in = {}

    def drive(self) -> None:
        """Output the columns that were read in the previous cycle."""
        size = self.p.channel.unit.column_bits
        self.data.value = sum(column << unit * size for unit, column in enumerate(self.columns))

    def _field(self, issued: int, name: str) -> int:
        field = self.field[name]
        return issued >> field.offset & ((1 << field.width) - 1)

    def sample(self) -> None:
        """Execute the issued command, which must be legal by the data sheet."""
        issued = read(self.issued)
        masks = {name: self._field(issued, name) for name in KINDS}
        self._judge(masks)
        for name, mask in masks.items():
            self.counts[name] += mask != 0
        column, row = self._field(issued, "column"), self._field(issued, "row")
        self.counts["multiplies"] += masks["read"].bit_count() == self.p.units
        self.cycle += 1
        if masks["read"].bit_count() == 1:
            self._time(["alone"], self.alone_in)
        for bank in range(self.p.channel.timing.banks):
            names = [name for name in KINDS if masks[name] >> bank & 1]
            # A refresh of one bank has a time of its own.
            if masks["refresh"].bit_count() == 1:
                names = ["refresh_bank" if name == "refresh" else name for name in names]
            self._time(names, self.issued_in[bank])
            unit, side = divmod(bank, 2)
            place = (row_number(self.rows[bank], side) << COLUMN_BITS) + column
            if masks["read"] >> bank & 1:
                inside = place < len(self.image)
                data_bytes = self.image[place, unit].tobytes() if inside else b""
                self.columns[unit] = int.from_bytes(data_bytes, "little")
            if masks["write"] >> bank & 1:
                size = 2 * self.p.elements
                chosen = (self._field(issued, "mask") >> np.arange(size) & 1).astype(bool)
                data_bytes = self._field(issued, "data").to_bytes(size, "little")
                self.image[place, unit, chosen] = np.frombuffer(data_bytes, np.uint8)[chosen]
            if masks["activate"] >> bank & 1:
                self.rows[bank] = row

    def _judge(self, masks: dict[str, int]) -> None:
        """Require that a cycle's commands keep all times, and that no refresh is overdue."""
        everything = range(self.p.channel.timing.banks)
        events = []
        for kind, mask in masks.items():
            banks = frozenset(bank for bank in everything if mask >> bank & 1)
            of_bank = kind == "refresh" and len(banks) < len(everything)
            kind = "refresh_bank" if of_bank else kind
            if mask:
                assert not of_bank or len(banks) == 1, "one bank per command is refreshed"
                events.append(Event(cycle=self.cycle, kind=kind, banks=banks))
        before = self.rules.refreshes
        broken = self.rules.check(events)
        assert not broken, f"cycle {self.cycle}: {events} violate {broken}"
        late = self.refreshes.pass_cycle(self.cycle, refreshes=self.rules.refreshes > before)
        assert not late, f"cycle {self.cycle}: more refreshes are postponed than allowed"

    def _time(self, names: list[str], issued_in: dict[str, int]) -> None:
        """Record the distances of a bank's commands from earlier ones."""
        for time, (first, second) in APART.items():
            if second in names and first in issued_in:
                cycles = self.cycle - issued_in[first]
                self.closest[time] = min(cycles, self.closest.get(time, cycles))
        issued_in.update(dict.fromkeys(names, self.cycle))


class SystemBench:
    """The system with its banks and streams.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Stall patterns.
    """

    def __init__(self, dut: Any, salt: str, *, source: str = "none", sink: str = "none") -> None:
        self.p = p = catalog_parameters()
        self.dut = dut
        self.bench = Bench(dut, salt, timeout=20_000 + 20 * p.layer_positions)
        self.channels = [
            self.bench.add(Banks(dut, p, number)) for number in range(p.pseudo_channels)
        ]
        self.instructions = self.bench.source("instructions", source)
        self.states_in = self.bench.source("states_in", source)
        self.states_out = self.bench.sink("states_out", sink)
        if p.vocabulary_size:
            self.predictions = self.bench.sink("predictions", sink)
        self.status = Port(dut.status)

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of commands, which are the same for all pseudo-channels."""
        first, *others = (banks.counts for banks in self.channels)
        assert all(counts == first for counts in others), "pseudo-channels have the same commands"
        return first

    @property
    def image(self) -> np.ndarray:
        """All bytes: the units of all pseudo-channels, one pseudo-channel after the other."""
        return np.concatenate([banks.image for banks in self.channels], axis=1)

    def compare_times(self) -> None:
        """Compare the minimum distances of commands since the reset with the banks' times.

        A longer wait violates no rule but costs cycles. No refresh is issued in advance, and some
        were issued while the memory side waited: without these, seven or eight would be owed.
        """
        for banks in self.channels:
            for name, cycles in banks.closest.items():
                least = getattr(self.p.channel.timing, name)
                self.bench.compare(f"cycles of {name}", np.array([least]), np.array([cycles]))
            due = banks.cycle // self.p.channel.timing.refi
            owed = due - banks.rules.refreshes
            assert 0 <= owed < POSTPONED - 2, f"{owed} of {due} refreshes are owed"

    def fill(self, image: np.ndarray) -> None:
        """Write bytes into the banks."""
        own = np.split(image, len(self.channels), axis=1)
        for banks, part in zip(self.channels, own, strict=True):
            banks.image = part.copy()

    def begin(self, layer: int, positions: Sequence[int], states: np.ndarray) -> None:
        """Send an instruction and its hidden states [requests, width]."""
        p = self.p
        layout = p.instruction_layout
        given = {"layer": np.array([layer]), "position": np.array([positions])}
        self.instructions.send(to_integers(pack(layout, given)))
        self.states_in.send(to_integers(state_words(p, states)))

    def _last(self) -> np.ndarray:
        """Return a mask of the last slices of requests."""
        slices = self.p.hidden_size // self.p.lanes
        return np.tile(np.arange(slices) == slices - 1, self.p.batch).astype(np.int64)

    async def predict(self, states: np.ndarray) -> list[list[int]]:
        """Return the predicted token of each request, and the code of its logit."""
        self.predictions.received.clear()
        batch, layout = self.p.batch, self.p.prediction_layout
        self.begin(self.p.layers, [0] * batch, states)
        await self.bench.run(until=lambda: len(self.predictions.received) == batch)
        payloads = [payload for _cycle, payload in self.predictions.received]
        got = unpack(layout, from_integers(payloads, layout.size))
        self.bench.compare("status", np.zeros(1, np.int64), np.array([read(self.status)]))
        return np.stack([got["token"], got["sum"]], axis=1).tolist()

    async def finish(self) -> tuple[np.ndarray, dict[str, int]]:
        """Return the output hidden states [requests, width], and counts and cycles of the layer."""
        p = self.p
        count = p.batch * p.hidden_size // p.lanes
        self.states_out.received.clear()
        start, before = self.bench.cycle, dict(self.counts)
        await self.bench.run(until=lambda: len(self.states_out.received) == count)
        facts = {name: count - before[name] for name, count in self.counts.items()}
        facts["cycles"] = self.bench.cycle - start
        payloads = [payload for _cycle, payload in self.states_out.received]
        layout = p.state_layout
        got = unpack(layout, from_integers(payloads, layout.size))
        assert got["last"].tolist() == self._last().tolist()
        self.bench.compare("status", np.zeros(1, np.int64), np.array([read(self.status)]))
        return got["values"].reshape(p.batch, -1).astype(np.uint32).view(np.float32), facts
