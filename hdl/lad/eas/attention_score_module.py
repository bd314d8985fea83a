"""LAD's attention score module: scores of a step, and the new key's centre."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.lad.eas.centre_updater import CentreUpdater
from hdl.lad.eas.eas_parameters import AttentionScoreModuleParameters
from hdl.lad.eas.score_rescaler import ScoreRescaler
from hdl.lad.vpu.vector_processing_unit import Operation
from hdl.lad.vpu.vector_units import unit_members, vector_units
from hdl.stream.connect import connect_streams
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

UNITS = 2
"""Vector units: one with the query, one with the new key."""

IN_FLIGHT = 4
"""Steps whose centre is not fetched yet, at most."""


class AttentionScoreModule(Unit):
    """Score all positions of a step, and find the centre of its new key.

    One vector unit holds the query (EAS.1, EAS.3), the other the new key (EAS.4, EAS.5): so each
    key is fetched once, where two lanes of one task would fetch the centres twice. The new key
    comes first, by itself.

    **Latency** with f keys, of n positions: ``2 + f + scalar_latency`` cycles to the last score,
    then ``ceil(n / lanes) + 3 + multiply_stages + ceil(log2(lanes))`` to the maximum; the centre
    comes `cosine_stages` + `divide_stages` + 1 cycles behind the last dot product. **Throughput** a
    step in ``max(2 + f, ceil(n / lanes))`` cycles, and one for its divider.

    **Numerics** FP16. A position of M has its own score, another ``dnorm * <q, centre>``; their
    maximum is IEEE 754's. LAD, Section IV-B (2), Algorithm 1.

    Parameters
    ----------
    parameters : AttentionScoreModuleParameters
        Dimensions.
    shared : bool
        Whether the vector units stand outside.

    Members
    -------
    steps : In(stream)
        The `query`, divided by the root of the head size, the new `key`, and the `length` with it.
    keys : In(stream)
        Every centre and every position of M before the newest, ascending: `key`, `position`,
        `norm`, whether it is a `centre`, `last`; none of the first step, where there are none.
    groups : In(stream)
        Of G, for the next `lanes` positions, the `centres`, their `ratios`, `modes` and `counts`;
        M are the two top modes, the first position and the `recent` latest.
    headers : Out(stream)
        For the active position module: `length` and `maximum`.
    scores : Out(stream)
        For the same: `scores`, `modes` and `counts` of `lanes` positions.
    centres : Out(stream)
        Of the new `position` its `centre`, the `norm` and the `ratio` of both norms.
    units : Out(VectorPort).array(2)
        The vector units; only with `shared`.
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

    def elaborate(self, platform: Any) -> Module:
        """Send the keys through both units; hand the products on."""
        m = Module()
        p = self.parameters
        # Both units get the same keys in the same cycles; only what their rows hold differs.
        units = vector_units(m, self, p.vector, UNITS)
        m.submodules.rescaler = rescaler = ScoreRescaler(parameters=p)
        m.submodules.updater = updater = CentreUpdater(parameters=p)
        m.submodules.found = found = Fifo(shape=p.centre_layout, depth=IN_FLIGHT)
        connect_streams(m, self.groups, rescaler.groups)
        connect_streams(m, rescaler.steps, self.headers)
        connect_streams(m, rescaler.scores, self.scores)
        connect_streams(m, found.sink, self.centres)

        item = self._keys(m, units, rescaler.lengths, found)
        # Whose product it is comes out of the units' pipeline with it.
        ended = delay_line(m, item, p.vector.scalar_latency, name="item")[-1]
        m.d.comb += [
            rescaler.write.eq(units[0].o_scal_valid),
            rescaler.position.eq(ended.position),
            rescaler.score.eq(units[0].o_scal),
            rescaler.last.eq(ended.last),
            updater.valid.eq(units[1].o_scal_valid),
            updater.product.eq(units[1].o_scal),
            updater.item.eq(ended),
            # Its room was kept when the step began.
            found.source.valid.eq(updater.found),
            found.source.payload.eq(updater.result),
        ]
        return m

    def _keys(self, m: Module, units: list[Any], lengths: Any, found: Any) -> Any:
        """Load both units, issue the newest key, then the others; return what goes with each."""
        p = self.parameters
        step, key = self.steps.payload, self.keys.payload
        issue, free, loads = Signal(), Signal(), Signal()
        item = Signal(p.item_layout)
        # Steps on their way: their centres have room, and their scores a half of the tables.
        pending = Signal(range(IN_FLIGHT + 1))
        taken = found.sink.valid & found.sink.ready
        m.d.sync += pending.eq(pending + loads - taken)
        with m.FSM(name="keys") as fsm:
            # Query and new key into the two register rows.
            with m.State("LOAD"):
                m.d.comb += loads.eq(self.steps.valid & lengths.ready & (pending != IN_FLIGHT))
                with m.If(loads):
                    m.next = "NEWEST"
            # The new key first: its norm is needed by every cosine behind it.
            with m.State("NEWEST"):
                m.d.comb += [issue.eq(free), self.steps.ready.eq(free)]
                with m.If(free):
                    m.next = "KEYS"
                    with m.If(item.last):
                        m.next = "LOAD"
            # EAS.1, EAS.3 and EAS.5 at once: each key passes both units.
            with m.State("KEYS"):
                m.d.comb += [issue.eq(self.keys.valid & free), self.keys.ready.eq(free)]
                with m.If(issue & item.last):
                    m.next = "LOAD"
        newest = fsm.ongoing("NEWEST")
        # The cycle in which the divider takes the norms: nothing arrives there beside them.
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
            # The new key is no centre yet, whatever stands on the stream beside it.
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
