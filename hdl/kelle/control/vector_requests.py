"""Requests of the input vectors of tokens that became popular, which the host writes.

Section 4.1 of the paper: a popular token is stored as its input vector x.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.parameters import KelleParameters
from hdl.unit import Unit


class VectorRequests(Unit):
    """Pass requests to the host, and count the rows that it has not yet written.

    A token may lead to a request while the rows of an earlier token's request are outstanding.

    **Latency** 0 cycles from a request to the host, 1 to `pending`. **Throughput** one request and
    one row per cycle.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    promoted : In(stream)
        A token that became popular, as in `EvictionController`.
    sequence : In
        The sequence of this token.
    vector_stores : Out(stream)
        The token with its sequence.
    writes : In(1)
        A row from the host is written.
    pending : Out(1)
        Requested rows are outstanding.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "promoted": In(stream.Signature(p.eviction.promoted_layout)),
                "sequence": In(max(p.sequence_bits, 1)),
                "vector_stores": Out(stream.Signature(p.store_layout)),
                "writes": In(1),
                "pending": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Add a vector's rows with each request, and subtract one with each write."""
        m = Module()
        p, stores, promoted = self.parameters, self.vector_stores, self.promoted
        vector_rows = p.memory.edram.vector_entries * p.memory.edram.entry_words
        rows = Signal(bits_for(p.step_tokens * vector_rows))
        m.d.comb += [
            stores.valid.eq(promoted.valid),
            promoted.ready.eq(stores.ready),
            stores.payload.position.eq(promoted.payload.position),
            stores.payload.vector.eq(promoted.payload.vector),
            stores.payload.valid.eq(promoted.payload.valid),
            stores.payload.sequence.eq(self.sequence),
            self.pending.eq(rows != 0),
        ]
        requested = Mux(stores.valid & stores.ready, vector_rows, 0)
        # Rows of keys and values, which a prefill writes, were not requested.
        m.d.sync += rows.eq(rows + requested - (self.writes & self.pending))
        return m
