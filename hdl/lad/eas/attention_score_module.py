"""LAD's efficient attention score (EAS) module: Section IV-B (2), Algorithm 1."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.lad.eas.centre_updater import CentreUpdater
from hdl.lad.eas.eas_parameters import AttentionScoreModuleParameters
from hdl.lad.eas.score_rescaler import ScoreRescaler
from hdl.lad.vpu.vector_processing_unit import Operation, VectorInterface
from hdl.lad.vpu.vector_units import unit_members, vector_units
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

UNITS = 2
"""Vector units: one holds the query, the other the new key."""

IN_FLIGHT = 4
"""Maximum number of steps whose centre has not been transferred yet."""


class AttentionScoreModule(Unit):
    """Compute the scores of all positions of a step, and the key centre of its new key.

    One vector unit holds the query (EAS.1, EAS.3), the other one the new key (EAS.4, EAS.5), so
    that each key is fetched once; two lanes of one task would fetch the centres twice. The new key
    is processed before all others.

    **Latency** with f keys and n positions: ``2 + f + scalar_latency`` cycles to the last score,
    then ``ceil(n / lanes) + 3 + multiply_stages + ceil(log2(lanes))`` to the maximum. The centre is
    output `cosine_stages` + `divide_stages` + 1 cycles after the last dot product. **Throughput**
    one step per ``max(2 + f, ceil(n / lanes))`` cycles, and one cycle for the step's division.

    **Numerics** FP16. The score of a position in M (large modes) is the dot product with its key;
    that of any other position is ``dnorm * <q, centre>``. The maximum is that of IEEE 754. LAD,
    Section IV-B (2), Algorithm 1.

    Parameters
    ----------
    parameters : AttentionScoreModuleParameters
        Vector size, lanes, intervals and register stages.
    shared : bool
        Use vector units outside the module, through `units`.

    Members
    -------
    steps : In(stream)
        The `query` divided by the square root of the head size, the new `key`, and the `length`
        including the new position.
    keys : In(stream)
        Every key centre and every position of M below the newest position, in ascending order:
        `key`, `position`, `norm`, `centre` if it is a centre, `last`. A step of length 1 has none.
    groups : In(stream)
        For the next `lanes` positions of G: `centres` (the paper's cid), `ratios` (dnorm), `modes`
        (mode) and `counts` (cnt). M consists of the positions with the two top modes, position 0,
        and the `recent` latest positions.
    headers : Out(stream)
        To APID: the step's `length` and the `maximum` (max_s) of its scores.
    scores : Out(stream)
        To APID: `scores`, `modes` and `counts` of `lanes` positions.
    centres : Out(stream)
        For the new `position`: its `centre` (cid), `norm`, and the signed `ratio` (dnorm) of its
        norm to the centre's.
    units : Out(VectorPort).array(2)
        Ports of the vector units; only with `shared`.
    """

    def __init__(self, *, parameters: AttentionScoreModuleParameters, shared: bool = False) -> None:
        self.parameters = p = parameters
        self.shared = shared
        super().__init__(
            {
                "steps": In(stream.Signature(p.step_layout)),
                "keys": In(stream.Signature(p.key_layout)),
                "groups": In(stream.Signature(p.group_layout)),
                "headers": Out(stream.Signature(p.apid.step_layout)),
                "scores": Out(stream.Signature(p.apid.group_layout)),
                "centres": Out(stream.Signature(p.centre_layout)),
            }
            | unit_members(p.vector, UNITS, shared=shared)
        )

    def elaborate(self, platform: object) -> Module:
        """Send each key through both units; forward the dot products."""
        m = Module()
        p = self.parameters
        # Both units process the same keys in the same cycles; only their register rows differ.
        units = vector_units(m, self.units if self.shared else None, p.vector, UNITS)
        m.submodules.rescaler = rescaler = ScoreRescaler(parameters=p)
        m.submodules.updater = updater = CentreUpdater(parameters=p)
        m.submodules.found = found = Fifo(shape=p.centre_layout, depth=IN_FLIGHT)
        connect_streams(m, self.groups, rescaler.groups)
        connect_streams(m, rescaler.steps, self.headers)
        connect_streams(m, rescaler.scores, self.scores)
        connect_streams(m, found.sink, self.centres)

        item = self._keys(m, units, rescaler.lengths, found.sink)
        # Position and norm of a key are delayed by the latency of the units.
        ended = delay_line(m, item, p.vector.scalar_latency, name="item")[-1]
        m.d.comb += [
            rescaler.write.eq(units[0].o_scal_valid),
            rescaler.position.eq(ended.position),
            rescaler.score.eq(units[0].o_scal),
            rescaler.last.eq(ended.last),
            updater.valid.eq(units[1].o_scal_valid),
            updater.product.eq(units[1].o_scal),
            updater.item.eq(ended),
            # The FIFO has room: it was reserved when the step began.
            found.source.valid.eq(updater.found),
            found.source.payload.eq(updater.result),
        ]
        return m

    def _keys(
        self,
        m: Module,
        units: list[VectorInterface],
        lengths: stream.Interface,
        centres: stream.Interface,
    ) -> data.View:
        """Load both units; issue the newest key, then the others; return their side information."""
        p = self.parameters
        step, key = self.steps.payload, self.keys.payload
        issue, free, loads = Signal(), Signal(), Signal()
        item = Signal(p.item_layout)
        # Steps in flight; each has reserved an entry for its centre and a half of the score tables.
        pending = Signal(range(IN_FLIGHT + 1))
        taken = centres.valid & centres.ready
        m.d.sync += pending.eq(pending + loads - taken)
        with m.FSM(name="keys") as fsm:
            # Load query and new key into the register rows.
            with m.State("LOAD"):
                m.d.comb += loads.eq(self.steps.valid & lengths.ready & (pending != IN_FLIGHT))
                with m.If(loads):
                    m.next = "NEWEST"
            # The new key is first, since all cosines need its norm.
            with m.State("NEWEST"):
                m.d.comb += [issue.eq(free), self.steps.ready.eq(free)]
                with m.If(free):
                    m.next = "KEYS"
                    with m.If(item.last):
                        m.next = "LOAD"
            # EAS.1, EAS.3 and EAS.5 in parallel: each key passes through both units.
            with m.State("KEYS"):
                m.d.comb += [issue.eq(self.keys.valid & free), self.keys.ready.eq(free)]
                with m.If(issue & item.last):
                    m.next = "LOAD"
        newest = fsm.ongoing("NEWEST")
        # The divider needs one cycle for the two norms; no key is issued for that cycle.
        decides = delay_line(m, issue & item.last, p.divide_stages + 1, name="decides", reset=True)[
            -1
        ]
        m.d.comb += [
            free.eq(~decides),
            lengths.valid.eq(loads),
            lengths.payload.length.eq(step.length),
            item.newest.eq(newest),
            item.position.eq(Mux(newest, step.length - 1, key.position)),
            item.norm.eq(key.norm),
            # The new key is not a centre yet, whatever value `keys` has in that cycle.
            item.centre.eq(key.centre & ~newest),
            item.last.eq(Mux(newest, step.length == 1, key.last)),
        ]
        rows = (step.query, step.key)
        for unit, row in zip(units, rows, strict=True):
            m.d.comb += [
                unit.load.eq(loads),
                unit.i_vec1.eq(row),
                unit.valid.eq(issue),
                unit.operation.eq(Operation.DOT_PRODUCT),
                unit.i_vec2.eq(Mux(newest, step.key, key.key)),
            ]
        return item
