"""Softmax of a step: one row of scores per query head, the arriving token's own score last.

Section 6 of the paper: the softmax runs in parallel with the array, between scores and values.
"""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory import Memory
from hdl.nonlinear.softmax import Softmax
from hdl.unit import Unit


class SoftmaxRows(Unit):
    """Store the scores of a step, and convert them to probabilities head by head.

    **Latency** that of `Softmax`, and 1 cycle. **Throughput** one slice per cycle.

    **Numerics** as `Softmax`; a probability p of 16 fraction bits becomes ``(p + 1) >> 1``, at most
    ``2**15 - 1``, since the array's operands are signed.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    start : In(1)
        A step begins.
    scores : In
        Writes of slices of scores.
    scored : In
        Number of key/value heads whose scores are complete, token by token.
    residents : In
        For each key/value head and token, the number of slots that hold another token.
    probabilities : Out
        Writes of slices of probabilities, in the order of their addresses.
    ended : Out(1)
        The slice on `probabilities` is the last of a key/value head.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        depth = p.token_heads * p.group_size * (p.cache_tiles + 1)
        super().__init__(
            {
                "start": In(1),
                "scores": In(p.slice_write(depth)),
                "scored": In(p.count_shape),
                "residents": In(data.ArrayLayout(bits_for(p.slots), p.token_heads)),
                "probabilities": Out(p.slice_write(depth)),
                "ended": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read the scores in order, mask empty slots, and count the softmax's results."""
        m = Module()
        p = self.parameters
        depth = p.token_heads * p.group_size * (p.cache_tiles + 1)
        m.submodules.scores = memory = Memory(depth=depth, width=p.slice_layout.size)
        m.submodules.softmax = softmax = Softmax(parameters=p.softmax)
        into = softmax.scores

        # Scores are read in the order of their addresses: queries of a head, tiles of a query.
        address = Signal(range(depth))
        part, query = Signal(range(p.cache_tiles + 1)), Signal(range(max(p.group_size, 2)))
        head = Signal(p.count_shape)
        keep = Signal(p.rows, reset_less=True)
        last = Signal(reset_less=True)
        move = ~into.valid | into.ready
        reads, own, last_query = Signal(), Signal(), Signal()
        residents = Array(self.residents[n] for n in range(p.token_heads))[head]
        # Slots fill in order: those with a token have the lowest numbers.
        used = [part * p.rows + row < residents for row in range(p.rows)]
        m.d.comb += [
            # A head is read when the scores of all its queries are complete.
            reads.eq(move & (head < self.scored)),
            own.eq(part == p.cache_tiles),
            last_query.eq(query == p.group_size - 1),
            memory.write_enable.eq(self.scores.strobe),
            memory.write_address.eq(self.scores.address),
            memory.write_data.eq(self.scores["values"]),
            memory.read_enable.eq(reads),
            memory.read_address.eq(address),
            into.payload["values"].eq(memory.read_data),
            into.payload.keep.eq(keep),
            into.payload.last.eq(last),
        ]
        # The memory's output is the softmax's payload: it is held until the transfer.
        with m.If(move):
            m.d.sync += into.valid.eq(head < self.scored)
        with m.If(reads):
            m.d.sync += [
                address.eq(address + 1),
                part.eq(Mux(own, 0, part + 1)),
                # All rows of the arriving token's tile hold its score; only the first one is kept.
                keep.eq(Mux(own, 1, Cat(used))),
                last.eq(own),
            ]
            with m.If(own):
                m.d.sync += query.eq(Mux(last_query, 0, query + 1))
                with m.If(last_query):
                    m.d.sync += head.eq(head + 1)

        answer = self._send_probabilities(m, softmax)
        # All heads of the previous step are complete, so part and query are zero already.
        with m.If(self.start):
            m.d.sync += [address.eq(0), head.eq(0), answer.eq(0)]
        return m

    def _send_probabilities(self, m: Module, softmax: Softmax) -> Signal:
        """Halve and count the results: rows keep their order, so that a count is the address.

        Returns
        -------
        Signal
            Address of the next slice.
        """
        p = self.parameters
        out = softmax.probabilities
        answer = Signal.like(self.probabilities.address)
        rows_done = Signal(range(max(p.group_size, 2)))
        ends = out.valid & out.payload.last
        m.d.comb += [
            out.ready.eq(1),
            self.probabilities.strobe.eq(out.valid),
            self.probabilities.address.eq(answer),
            self.ended.eq(ends & (rows_done == p.group_size - 1)),
        ]
        for i in range(p.rows):
            # A row's largest probability is never so near 1 that its rounded half overflows.
            m.d.comb += self.probabilities["values"][i].eq((out.payload["values"][i] + 1) >> 1)
        with m.If(out.valid):
            m.d.sync += answer.eq(answer + 1)
        with m.If(ends):
            m.d.sync += rows_done.eq(Mux(self.ended, 0, rows_done + 1))
        return answer
