"""The maximum of a step's scores for the three modules that subtract it."""

from amaranth.hdl import Module
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.lad.control.steps_in_flight import MOST_STEPS
from hdl.lad.fp16 import FP16
from hdl.lad.parameters import LadTileParameters
from hdl.stream.connect import connect_registered, fork_handshake, join_handshake
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

USERS = ("md", "ac")
"""Modules that take the maximum together with the query of the step."""


class MaximumSharing(Unit):
    """Send a step's maximum to APID, and together with the query to MD and AC.

    **Latency** 2 cycles. **Throughput** one step per cycle.

    Parameters
    ----------
    parameters : LadTileParameters
        Payloads.

    Members
    -------
    found : In(stream)
        `length` and `maximum` of a step, from the EAS module.
    apid_steps : Out(stream)
        The same, for the APID module.
    md_queries, ac_queries : In(stream)
        The query of the step, for each module.
    md_steps, ac_steps : Out(stream)
        `query` and `maximum`.
    md_offered, ac_offered : Out(1)
        Both are available.
    md_admitted, ac_admitted : In(1)
        The step may enter the module; only if it is offered, and constant until it enters.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        header = stream.Signature(p.apid.step_layout)
        steps = {"md": p.md.step_layout, "ac": p.ac.step_layout}
        super().__init__(
            {"found": In(header), "apid_steps": Out(header)}
            | {f"{user}_queries": In(stream.Signature(p.query_layout)) for user in USERS}
            | {f"{user}_steps": Out(stream.Signature(steps[user])) for user in USERS}
            | {f"{user}_offered": Out(1) for user in USERS}
            | {f"{user}_admitted": In(1) for user in USERS}
        )

    def elaborate(self, platform: object) -> Module:
        """Queue the maximum for each module; all queues accept it in the same cycle."""
        m = Module()
        p = self.parameters
        m.submodules.apid = headers = Fifo(shape=p.apid.step_layout, depth=MOST_STEPS)
        # APID subtracts the maximum in the cycle in which it arrives, hence the register.
        connect_registered(m, headers.sink, self.apid_steps)
        maxima = []
        for user in USERS:
            shape = data.StructLayout({"maximum": FP16})
            m.submodules[user] = fifo = Fifo(shape=shape, depth=MOST_STEPS)
            maxima.append(fifo.source)
            queries, steps = getattr(self, f"{user}_queries"), getattr(self, f"{user}_steps")
            admitted = getattr(self, f"{user}_admitted")
            both = (queries, fifo.sink)
            m.d.comb += [
                getattr(self, f"{user}_offered").eq(
                    join_handshake(m, both, steps.ready & admitted)
                ),
                steps.valid.eq(admitted),
                steps.payload["query"].eq(queries.payload["query"]),
                steps.payload.maximum.eq(fifo.sink.payload.maximum),
            ]
        # The register separates the maximum from the room for scores, which is tested in the same
        # cycle.
        found = stream.Signature(p.apid.step_layout).create(path=("registered",))
        connect_registered(m, self.found, found)
        m.d.comb += [
            found.ready.eq(fork_handshake(m, found.valid, [headers.source, *maxima])),
            headers.source.payload.eq(found.payload),
        ]
        m.d.comb += [one.payload.maximum.eq(found.payload.maximum) for one in maxima]
        return m
