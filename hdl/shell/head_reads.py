"""Address generators of the rows that LAD requests of its heads."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.shell.head_places import place_of, position_place, quotient
from hdl.shell.lad_axi_parameters import POSITION_BYTES, LadAxiParameters
from hdl.shell.run_requests import RunRequests
from hdl.stream.connect import connect_handshake, connect_streams, fork_handshake, join_handshake
from hdl.unit import Unit

ALWAYS = Const(1, 1)
"""Permission of requests that wait for no write."""

READS = {
    "group_requests": "groups",
    "key_requests": "keys",
    "active_requests": "active",
    "counter_requests": "tallies",
    "cache_requests": "caches",
}
"""Requests of LAD, and their answers."""

PORTS = (
    "group_reads",
    "norm_reads",
    "key_reads",
    "active_key_reads",
    "active_value_reads",
    "counter_reads",
    "cache_reads",
)
"""Ports of the rows. No request waits for an answer that LAD takes later at another port."""


class HeadReads(Unit):
    """Answer LAD's requests for G, keys, values, counters and caches from memory.

    All records of G of a step are a burst, as are the columns of its caches. Other rows are
    requested one by one; `RunRequests` makes bursts of them. A key's norm is in the record of its
    position. The newest position is always active: active positions are requested when all keys and
    values have been written. All other rows were written by earlier tokens.

    **Latency** 1 cycle. **Throughput** one answer per cycle.

    Parameters
    ----------
    parameters : LadAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    group_requests, key_requests, active_requests, counter_requests, cache_requests : In(stream)
        As in `Lad`.
    groups, keys, active, tallies, caches : Out(stream)
        As in `Lad`.
    <port> : Out(BurstReadPort)
        Each of `PORTS`.
    appended : In(1)
        All keys and values that LAD has written are visible.
    """

    def __init__(self, *, parameters: LadAxiParameters) -> None:
        self.parameters = p = parameters
        tile, named = p.lad.tile, p.lad.shared_tiles.named
        asked = {
            "group_requests": tile.group_request_layout,
            "key_requests": tile.row_request_layout,
            "active_requests": tile.row_request_layout,
            "counter_requests": tile.row_request_layout,
            "cache_requests": tile.head_layout,
        }
        given = {
            "groups": tile.eas.group_layout,
            "keys": tile.key_layout,
            "active": tile.active_layout,
            "tallies": tile.tally_layout,
            "caches": tile.ac.cache_layout,
        }
        ports = p.core_ports()
        super().__init__(
            {
                **{name: In(stream.Signature(named(layout))) for name, layout in asked.items()},
                **{name: Out(stream.Signature(layout)) for name, layout in given.items()},
                **{name: ports[name] for name in PORTS},
                "appended": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect each kind of request to its ports, and the words to their answers."""
        m = Module()
        p, ac = self.parameters, self.parameters.lad.tile.ac
        asked = self.group_requests.payload
        # The number of groups that contain `length` positions.
        newest = (asked.length - 1)[: len(asked.length)]
        groups = quotient(newest, p.lad.tile.apid.lanes) + 1
        place = place_of(p.record_layout, asked, Const(0))
        self._request_burst(m, self.group_requests, self.group_reads, place, groups)
        place = place_of(p.column_layout, self.cache_requests.payload, Const(0))
        self._request_burst(m, self.cache_requests, self.cache_reads, place, Const(ac.columns))
        # A key's norm is in the record of its position, not next to the key.
        row = place_of(p.row_layout, self.key_requests.payload, self.key_requests.payload.position)
        position = position_place(p, self.key_requests.payload)
        self._request_rows(m, self.key_requests, {"key_reads": row, "norm_reads": position})
        asked = self.active_requests
        row = place_of(p.row_layout, asked.payload, asked.payload.position)
        ports = {"active_key_reads": row, "active_value_reads": row}
        self._request_rows(m, asked, ports, self.appended)
        asked = self.counter_requests
        row = place_of(p.row_layout, asked.payload, asked.payload.position)
        self._request_rows(m, asked, {"counter_reads": row})
        self._answer(m)
        return m

    def _request_burst(
        self, m: Module, asked: stream.Interface, port: Any, address: Value, length: Value
    ) -> None:
        """Request consecutive words at once."""
        connect_handshake(m, asked, port.requests)
        m.d.comb += [
            port.requests.payload.address.eq(address),
            port.requests.payload.length.eq(length),
        ]

    def _request_rows(
        self,
        m: Module,
        asked: stream.Interface,
        places: dict[str, Value],
        permit: Value = ALWAYS,
    ) -> None:
        """Request one word at each port, whose addresses are `places`."""
        p, sinks = self.parameters, []
        for name, place in places.items():
            m.submodules[f"{name}_runs"] = runs = RunRequests(
                address_bits=p.address_bits, longest=p.longest
            )
            connect_streams(m, runs.requests, getattr(self, name).requests)
            m.d.comb += runs.rows.payload.eq(place)
            sinks.append(runs.rows)
        m.d.comb += asked.ready.eq(fork_handshake(m, asked.valid & permit, sinks) & permit)

    def _answer(self, m: Module) -> None:
        """Give the words of each answer, which arrive at one or two ports."""
        p, groups = self.parameters, self.groups.payload
        words = {name: Value.cast(getattr(self, name).words.payload.word) for name in PORTS}
        record, bits = words["group_reads"], 8 * POSITION_BYTES
        for lane in range(p.lad.tile.apid.lanes):
            position = data.View(p.position_layout, record[bits * lane :][: p.position_layout.size])
            m.d.comb += [
                groups.centres[lane].eq(position.centre),
                groups.ratios[lane].eq(position.ratio),
            ]
        marks = record[8 * (p.record_bytes - p.mark_bytes) :][: p.mark_layout.size]
        norm = data.View(p.position_layout, words["norm_reads"][: p.position_layout.size]).norm
        m.d.comb += [
            Cat(Value.cast(groups.modes), Value.cast(groups.counts)).eq(marks),
            Value.cast(self.keys.payload.key).eq(words["key_reads"]),
            self.keys.payload.norm.eq(norm),
            Value.cast(self.active.payload.key).eq(words["active_key_reads"]),
            Value.cast(self.active.payload.value).eq(words["active_value_reads"]),
            Value.cast(self.tallies.payload).eq(words["counter_reads"]),
            Value.cast(self.caches.payload).eq(words["cache_reads"]),
        ]
        # Both parts of a row arrive at their own time; the first one waits in its port.
        for answer, names in (
            (self.groups, ("group_reads",)),
            (self.keys, ("key_reads", "norm_reads")),
            (self.active, ("active_key_reads", "active_value_reads")),
            (self.tallies, ("counter_reads",)),
            (self.caches, ("cache_reads",)),
        ):
            ports = [getattr(self, name).words for name in names]
            m.d.comb += answer.valid.eq(join_handshake(m, ports, answer.ready))
