# amaranth: UnusedElaboratable=no
"""LAD: an accelerator for all decoder layers of a model (Section IV, Figures 4 to 6)."""

from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.sequencer import LayerSequencer
from hdl.lad.lad_tiles import LadTiles
from hdl.lad.parameters import LadParameters
from hdl.stream.connect import connect_streams
from hdl.unit import Unit

TO_MEMORY = (
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
"""Streams of the tiles to the memory outside."""

FROM_MEMORY = ("weights", "groups", "keys", "active", "tallies", "caches")
"""Streams of the tiles from the memory outside."""

OPERANDS = ("tasks", "inputs", "vectors", "factors", "addends", "steps")
"""Streams from the sequencer to the tiles."""

RESULTS = ("sums", "results", "outputs")
"""Streams from the tiles to the sequencer."""

COUNTERS = ("hits", "misses")
"""Counters of tiles that prefetch."""


class Lad(Unit):
    """Take the hidden states of a batch through all decoder layers, one token after another.

    The sequencer controls RMSNorm, projections, rotary embedding, the attention of all heads with
    its write-back, the SwiGLU layer and the residual additions. Data from outside is read in the
    order of the program. No position is evicted: a step of attention reads values of the active
    positions only, and keys of these, of centres and of large modes. The intermediate caches A to F
    contain all positions but the latest, active ones included, which are corrected. Keys, values,
    modes, counters and caches of all heads are stored outside; a step requests what it needs and
    outputs what it has changed. Each sample's query heads form groups of `tile.shared`; a group
    stays in one tile. Groups are assigned to the tiles round-robin, in the order of
    ``(layer * kv_heads + kv_head) * batch + sample``, then of the query head within its key/value
    head.

    Before a text, the caches A to F of all heads are 0 outside; no other row needs an initial
    value. With `tile.prefetched`, a new text begins with a reset. No port has settings or
    thresholds: they are constants of the parameters.

    With a `vocabulary`, a token that `predicts` continues after the last layer: the states are
    normalised and multiplied by the LM head, piece by piece, and the argmax is output.

    **Latency** the sum of its instructions, which run sequentially; that of the attention ends when
    its last step has begun. See `docs/lad/lad.md`. **Throughput** one token per sample at a time.

    **Numerics** those of the modules: operands and sums of linear layers in FP16, intermediate
    caches and attention sums in `cache_format`, FP32 by default. LAD, Section IV, Figures 4 and 5.

    Parameters
    ----------
    parameters : LadParameters
        Model, batch, tiles and their modules.

    Members
    -------
    slices : In(stream)
        `values` from outside, slices of `head_size` FP16 numbers in this order: cosines of all
        samples, sines of all samples, with equal halves, since a rotary embedding rotates elements
        i and ``i + head_size / 2`` by one angle; with both each sample's `length` (1 or more) and,
        with a vocabulary, the flag `predicts` of the token; hidden states, for each slice index all
        samples; per layer the weights of the first norm, then those of the second; if the token
        predicts, the weights of the last norm.
    weights : In(stream)
        FP16, `tile.linear.units` rows of a matrix per transfer, `head_size` elements of each: the
        first slice of every group of rows of the matrix, then the second slice of every group, and
        so on. Per layer four matrices: the rows of queries, keys and values, for each of the
        `periods`; the output projection; `gate_proj` and `up_proj`; `down_proj`. Queries are
        divided by the square root of the head size. If the token predicts, `LadParameters.pieces`
        pieces of the LM head follow, each with the same number of groups. Rows after a matrix's
        last one, in its last group, are ignored.
    states : Out(stream)
        The hidden states after the last layer, in the order of the input; `not_positive` if any
        denominator of the token was not above 0. With a vocabulary, the states after every layer,
        and the flag for the layers so far.
    predictions : Out(stream)
        For each sample in order the `token` with the largest `sum`; ties resolve to the lowest
        token. Only with a vocabulary.
    appends : Out(stream)
        Key and value of each head's new position. This stream and all below are as in `LadTiles`.
    group_requests, key_requests, active_requests, counter_requests, cache_requests : Out(stream)
        Requests for rows of a head: for all positions the data G (the paper's cid, dnorm, mode,
        cnt); keys of centres and large modes; keys and values of active positions; their counters;
        the caches A to F.
    groups, keys, active, tallies, caches : In(stream)
        The requested rows, in the order of the requests.
    centres, marks, counters, columns : Out(stream)
        Changes to store: the new position's part of G; modes and counts of all positions; counters
        of active positions; the caches.
    hits, misses : Out(32)
        Active positions that were on chip, and that were not; only with `tile.prefetched`.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `LadParameters`.
    """

    def __init__(self, *, parameters: LadParameters) -> None:
        self.parameters = p = parameters
        self.tiles = LadTiles(parameters=p.shared_tiles)
        self.sequencer = LayerSequencer(parameters=p)
        # Streams that only pass through have the signature of the tiles.
        members = self.tiles.signature.members
        super().__init__(
            {
                "slices": In(stream.Signature(p.slice_layout)),
                "states": Out(stream.Signature(p.state_layout)),
            }
            | (
                {"predictions": Out(stream.Signature(p.prediction_layout))}
                if p.vocabulary_size
                else {}
            )
            | {name: members[name] for name in (*FROM_MEMORY, *TO_MEMORY)}
            | ({name: members[name] for name in COUNTERS} if p.tile.prefetched else {})
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the sequencer with the tiles, and both with the ports."""
        m = Module()
        m.submodules.tiles, m.submodules.sequencer = tiles, sequencer = self.tiles, self.sequencer
        for name in OPERANDS:
            connect_streams(m, getattr(sequencer, name), getattr(tiles, name))
        for name in RESULTS:
            connect_streams(m, getattr(tiles, name), getattr(sequencer, name))
        for name in FROM_MEMORY:
            connect_streams(m, getattr(self, name), getattr(tiles, name))
        for name in TO_MEMORY:
            connect_streams(m, getattr(tiles, name), getattr(self, name))
        if self.parameters.tile.prefetched:
            connect_streams(m, sequencer.coming, tiles.coming)
            m.d.comb += [getattr(self, name).eq(getattr(tiles, name)) for name in COUNTERS]
        connect_streams(m, self.slices, sequencer.slices)
        connect_streams(m, sequencer.states, self.states)
        if self.parameters.vocabulary_size:
            connect_streams(m, sequencer.predictions, self.predictions)
        return m
