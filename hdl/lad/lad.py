# amaranth: UnusedElaboratable=no
"""LAD: hidden states through decoder layers, with attention of head-samples in tiles."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.layer_sequencer import LayerSequencer
from hdl.lad.lad_parameters import LadParameters
from hdl.lad.lad_tiles import LadTiles
from hdl.stream.connect import connect_streams
from hdl.unit import Unit

MEMORY = (
    "appends",
    "group_requests",
    "key_requests",
    "active_requests",
    "counter_requests",
    "cache_requests",
    "centres",
    "marks",
    "counters",
    "columns",
)
"""Streams of a tile to the memory outside."""

FETCHED = ("weights", "groups", "keys", "active", "tallies", "caches")
"""Streams of a tile from there."""

LED = ("tasks", "inputs", "vectors", "factors", "addends", "steps")
"""Streams of a tile that the sequencer leads; the others are its answers."""

COUNTED = ("hits", "misses")
"""Counters of a tile that fetches ahead."""


class Lad(Unit):
    """Take the hidden states of a batch through all decoder layers, token after token.

    The sequencer leads RMSNorm, projections, rotary embedding, all heads' attention with its
    write-back, gated layer and residual sums; what it needs from outside comes in the program's
    order. Groups of head-samples are dealt to the tiles in turns, group after group of
    ``(layer * kv_heads + kv_head) * batch + sample`` and the query head's place among those of its
    key/value head; a group is `tile.shared` of them, and stays in one tile.

    With a `vocabulary` a token that `predicts` goes on: its states' norm meets the matrix of all
    tokens, piece by piece, and the token with the largest sum leaves.

    **Latency** that of its operations, one behind the other; see the page. **Throughput** a token
    of each sample at a time.

    **Numerics** those of the modules. LAD, Section IV, Figures 4 and 5.

    Parameters
    ----------
    parameters : LadParameters
        Dimensions.

    Members
    -------
    slices : In(stream)
        `values` from outside, a head's size of FP16 numbers each: cosines of all samples, sines of
        all samples, each with its sample's `length` from 1 on, and with a vocabulary whether the
        token `predicts`; the hidden states, slice by slice of all samples; of each layer the
        weights of the first norm, then those of the second one; those of the last norm, if the
        token predicts.
    weights : In(stream)
        As of the linear module: in each layer the rows of queries, keys and values as one matrix,
        the output's, gate and up as one, down. Queries are divided by the root of the head size.
        If the token predicts, `LadParameters.pieces` of the vocabulary, each with as many groups.
    states : Out(stream)
        The hidden states behind the last layer, as they came, and whether any denominator of the
        token was `not_positive`; with a vocabulary behind each layer, and any until there.
    predictions : Out(stream)
        Sample by sample the `token` with the largest `sum`, the smallest of equal ones; only with a
        vocabulary.
    groups, keys, active, tallies, caches : In(stream)
        As of the tile.
    appends, group_requests, key_requests, active_requests, counter_requests : Out(stream)
        As of the tile.
    cache_requests : Out(stream)
        As of the tile.
    centres, marks, counters, columns : Out(stream)
        As of the tile.
    hits, misses : Out(32)
        As of the tile.

    Raises
    ------
    ValueError
        By `LadParameters`.
    """

    def __init__(self, *, parameters: LadParameters) -> None:
        self.parameters = p = parameters
        self.tile = LadTiles(parameters=p.shared_tiles)
        self.sequencer = LayerSequencer(parameters=p)
        # The tile's own members say what passes through.
        members = self.tile.signature.members
        super().__init__(
            {
                "slices": In(stream.Signature(p.slice_layout)),
                "states": Out(stream.Signature(p.state_layout)),
            }
            | ({"predictions": Out(stream.Signature(p.prediction_layout))} if p.vocabulary else {})
            | {name: members[name] for name in (*FETCHED, *MEMORY)}
            | ({name: members[name] for name in COUNTED} if p.tile.prefetched else {})
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect the sequencer with the tile, and both with what is outside."""
        m = Module()
        m.submodules.tile, m.submodules.sequencer = tile, sequencer = self.tile, self.sequencer
        for name in LED:
            connect_streams(m, getattr(sequencer, name), getattr(tile, name))
        for name in ("sums", "results", "outputs"):
            connect_streams(m, getattr(tile, name), getattr(sequencer, name))
        for name in FETCHED:
            connect_streams(m, getattr(self, name), getattr(tile, name))
        for name in MEMORY:
            connect_streams(m, getattr(tile, name), getattr(self, name))
        if self.parameters.tile.prefetched:
            connect_streams(m, sequencer.coming, tile.coming)
            m.d.comb += [getattr(self, name).eq(getattr(tile, name)) for name in COUNTED]
        connect_streams(m, self.slices, sequencer.slices)
        connect_streams(m, sequencer.states, self.states)
        if self.parameters.vocabulary:
            connect_streams(m, sequencer.predictions, self.predictions)
        return m
