"""VEDA's off-chip memory: accepts writes and vote counts, and serves bursts beat by beat."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from amaranth.lib import data

from golden.veda.veda import Codes
from hdl.veda.instructions import Space
from hdl.veda.parameters import VedaParameters
from testbenches.burst_memory import BurstReads, BurstWrites
from testbenches.packing import pack, to_integers
from testbenches.streams import Stream, read
from testbenches.veda.hbm_timing import HbmTiming


class Lines:
    """Content of the memory: keys, values, matrices and angles at their addresses.

    Parameters
    ----------
    p : VedaParameters
        Dimensions of the accelerator.

    Members
    -------
    lines : dict[int, int]
        The written lines by address.
    """

    def __init__(self, p: VedaParameters) -> None:
        self.p = p
        self.line_bits = p.array.plane_width * 16
        self.lines: dict[int, int] = {}

    def store(self, heads: Codes, *, layer: int, value: bool) -> None:
        """Store tokens' keys or values, shape (kv_heads, tokens, head_size)."""
        places = self._cache_places(len(heads), heads.shape[1], value)
        self._keep(Space.CACHE, layer, self.p.cache_line, places, heads)

    def store_weights(self, lines: Codes, *, layer: int) -> None:
        """Store a layer's matrices, shape (lines, channels, plane width)."""
        line, channel = np.indices(lines.shape[:2])
        places = {"line": line, "channel": channel}
        self._keep(Space.WEIGHTS, layer, self.p.weight_line, places, lines)

    def store_vocabulary(self, lines: Codes) -> None:
        """Store the LM head, with the same shape as in `store_weights`."""
        line, channel = np.indices(lines.shape[:2])
        places = {"line": line, "channel": channel}
        # The address is as wide as the fields line and layer together.
        joined = [self.p.address_layout[name].width for name in ("line", "layer")]
        wide = data.StructLayout({"place": sum(joined), "space": Space})
        rows = lines.astype("<u2").reshape(-1, self.p.array.plane_width)
        place = pack(self.p.vocabulary_line, {name: np.ravel(n) for name, n in places.items()})
        number = place.astype(np.int64) @ (1 << np.arange(place.shape[-1], dtype=np.int64))
        space = np.full_like(number, Space.VOCABULARY.value)
        addresses = to_integers(pack(wide, {"place": number, "space": space}))
        packed = [int.from_bytes(line.tobytes(), "little") for line in rows]
        self.lines.update(zip(addresses, packed, strict=True))

    def store_angles(self, lines: Codes, *, position: int) -> None:
        """Store a position's rotary angles, shape (parts, plane width)."""
        part = np.arange(len(lines))
        places = {"position": np.full(len(lines), position), "part": part}
        self._keep(Space.ANGLES, 0, self.p.angle_line, places, lines)

    def cached(self, *, layer: int, value: bool, length: int) -> Codes:
        """Return the stored keys or values, in the shape of `store`."""
        p = self.p
        size = p.array.plane_width * 2
        places = self._cache_places(p.kv_heads, length, value)
        addresses = self._addresses_of(Space.CACHE, layer, p.cache_line, places)
        joined = b"".join(self.lines[address].to_bytes(size, "little") for address in addresses)
        return np.frombuffer(joined, "<u2").reshape(p.kv_heads, length, p.head_size)

    def _cache_places(self, kv_heads: int, tokens: int, value: bool) -> dict[str, Any]:
        kv_head, slot, part = np.indices((kv_heads, tokens, self.p.vector_lines))
        return {"slot": slot, "part": part, "value": np.full_like(slot, value), "kv_head": kv_head}

    def _keep(self, space: Space, layer: int, layout: Any, places: Any, lines: Codes) -> None:
        """Store lines at the given addresses."""
        rows = lines.astype("<u2").reshape(-1, self.p.array.plane_width)
        packed = [int.from_bytes(line.tobytes(), "little") for line in rows]
        addresses = self._addresses_of(space, layer, layout, places)
        self.lines.update(zip(addresses, packed, strict=True))

    def _addresses_of(self, space: Space, layer: int, layout: Any, places: Any) -> list[int]:
        """Return the packed addresses of address fields in a space."""
        flat = {name: np.ravel(numbers) for name, numbers in places.items()}
        bits = pack(layout, flat)
        line = bits.astype(np.int64) @ (1 << np.arange(bits.shape[-1], dtype=np.int64))
        return self._addresses(
            {
                "line": line,
                "layer": np.full_like(line, layer),
                "space": np.full_like(line, space.value),
            }
        )

    def _addresses(self, addresses: Any) -> list[int]:
        return to_integers(pack(self.p.address_layout, addresses))


class OffChipMemory(Lines):
    """Lines with the streams `writes`, `reads` and `words`.

    Parameters
    ----------
    dut : Any
        The design under test.
    p : VedaParameters
        Dimensions of the accelerator.
    pauses : tuple[Iterator[bool], Iterator[bool], Iterator[bool]]
        Stalls of writes, of bursts and of lines.
    timing : HbmTiming | None
        Banks, rows and refresh; without it, each burst has a latency of 24 cycles.

    Members
    -------
    written : list[int]
        Packed payloads of the writes.
    beats : int
        Number of transferred beats.
    """

    def __init__(
        self,
        dut: Any,
        p: VedaParameters,
        pauses: tuple[Iterator[bool], Iterator[bool], Iterator[bool]],
        timing: HbmTiming | None = None,
    ) -> None:
        super().__init__(p)
        self.timing = timing
        # Cached: a layout computes its offsets at each access.
        self.address_bits = p.address_layout.size
        self.first_line = p.write_layout["words"].offset
        self.first_enable = p.write_layout["enables"].offset
        self.first_beats = p.read_layout["beats"].offset
        self.writes = BurstWrites(dut, "writes", keep=self._write, pauses=pauses[0])
        self.reads = BurstReads(
            dut,
            requests="reads",
            words="words",
            fetch=self._fetch,
            pauses=pauses[1:],
            times=self._times if timing else None,
        )
        self.written: list[int] = []
        self.clear()

    @property
    def beats(self) -> int:
        """Number of transferred beats."""
        return self.reads.beats

    def clear(self) -> None:
        """Discard the bursts; written lines remain."""
        self.written = []
        self.writes.clear()
        self.reads.clear()

    def drive(self) -> None:
        """Offer the next beat."""
        self.writes.drive()
        self.reads.drive()

    def sample(self) -> None:
        """Process writes first: a burst returns all earlier writes."""
        self.writes.sample()
        self.reads.sample()

    def _write(self, packed: int) -> None:
        self.written.append(packed)
        lines, enables = packed >> self.first_line, packed >> self.first_enable
        for channel, address in enumerate(self._channels(packed)):
            if enables >> channel & 1:
                self.lines[address] = lines >> channel * self.line_bits & (1 << self.line_bits) - 1

    def _times(self, packed: int, cycle: int) -> list[int]:
        """Return the cycles in which the beats of a burst are available; all channels are equal."""
        assert self.timing
        return self.timing.burst(self._channels(packed)[0], packed >> self.first_beats, cycle)

    def _fetch(self, packed: int) -> list[int]:
        """Return the beats of a burst."""
        starts = self._channels(packed)
        return [
            sum(
                self.lines[start + beat] << channel * self.line_bits
                for channel, start in enumerate(starts)
            )
            for beat in range(packed >> self.first_beats)
        ]

    def _channels(self, packed: int) -> list[int]:
        """Return each channel's address: the first fields of a burst and of a write."""
        size = self.address_bits
        return [packed >> n * size & (1 << size) - 1 for n in range(self.p.channels)]


class CountMemory:
    """The vote counts of all layers: a step's output is the input of the layer's next step.

    Parameters
    ----------
    dut : Any
        The design under test.
    pauses : tuple[Iterator[bool], Iterator[bool]]
        Stalls of `counts_in` and of `counts_out`.
    """

    def __init__(self, dut: Any, pauses: tuple[Iterator[bool], Iterator[bool]]) -> None:
        self.pauses = pauses
        self.given, self.taken = Stream(dut, "counts_in"), Stream(dut, "counts_out")
        self.steps: list[tuple[int, int, int]] = []
        self.reading, self.place = 0, 0
        self.received: list[list[int]] = [[]]
        self.kept: dict[int, list[int]] = {}
        self.offered = self.accepts = False
        self.clear()

    def clear(self) -> None:
        """Discard all counts."""
        self.steps = []
        self.reading, self.place = 0, 0
        self.received = [[]]
        self.kept = {}
        self.offered = self.accepts = False
        self.given.valid.value = 0
        self.taken.ready.value = 0

    def expect(self, steps: list[tuple[int, int, int]]) -> None:
        """Serve steps, each with its layer, and the numbers of counts that it reads and outputs."""
        self.steps = steps
        self._pass_empty()

    def _pass_empty(self) -> None:
        """Skip steps that output no counts: all tokens are evicted."""
        for _layer, _length, left in self.steps[len(self.received) - 1 :]:
            if left:
                break
            self.received.append([])

    def drive(self) -> None:
        """Offer the next count, once the layer's previous step has output all of its counts."""
        self.accepts = not next(self.pauses[1])
        self.taken.ready.value = self.accepts
        if self.offered:
            return
        self.given.valid.value = 0
        if self.reading == len(self.steps):
            return
        done = len(self.received) - 1
        layer, _length, _left = self.steps[self.reading]
        earlier = [step for step in self.steps[done : self.reading] if step[0] == layer]
        if not earlier and not next(self.pauses[0]):
            counts = self.kept.get(layer, [])
            # The count of a new slot is undefined.
            known = self.place < len(counts)
            self.given.payload.value = counts[self.place] if known else 0xDEAD
            self.given.valid.value = 1
            self.offered = True

    def sample(self) -> None:
        """Process the transfers of the cycle."""
        if self.offered and self.given.ready.value:
            self.offered = False
            self.place += 1
            if self.place == self.steps[self.reading][1]:
                self.reading, self.place = self.reading + 1, 0
        if self.taken.valid.value and self.accepts:
            counts = self.received[-1]
            counts.append(read(self.taken.payload))
            layer, _length, left = self.steps[len(self.received) - 1]
            if len(counts) == left:
                self.kept[layer] = counts
                self.received.append([])
                self._pass_empty()
