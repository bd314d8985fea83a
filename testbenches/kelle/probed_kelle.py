"""The accelerator with an additional port to observe its transient data."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from hdl.kelle.instructions import Operation
from hdl.kelle.kelle import Kelle
from hdl.kelle.parameters import KelleParameters

WRITES = ("inputs", "queries", "computed_keys", "computed_values", "probabilities")
"""Observed writes; the port has a strobe for each."""


def probe_layout(p: KelleParameters) -> data.StructLayout:
    """Return the port's layout: writes, and the operation whose last vector is being read."""
    return data.StructLayout(
        {name: 1 for name in WRITES} | {"ends": 1, "operation": Operation, "head": p.head_bits}
    )


class ProbedKelle(Kelle):
    """The accelerator, and `probe`: see `probe_layout`."""

    def __init__(self, *, parameters: KelleParameters) -> None:
        self.parameters = parameters
        members = dict(Kelle(parameters=parameters).signature.members)
        wiring.Component.__init__(self, members | {"probe": Out(probe_layout(parameters))})

    def elaborate(self, platform: object) -> Module:
        """Connect the port to those of the parts."""
        m = super().elaborate(platform)
        issue, router = m.submodules.vector_issue, m.submodules.router
        taken = issue.operations
        m.d.comb += [
            self.probe.inputs.eq(issue.inputs.strobe),
            self.probe.queries.eq(router.queries.strobe),
            # Only the arriving token's keys and values, whose vector follows all stored vectors.
            *(
                self.probe[name].eq(
                    getattr(router, name).strobe
                    & (getattr(router, name).vector == self.parameters.layer_vectors)
                )
                for name in ("computed_keys", "computed_values")
            ),
            self.probe.probabilities.eq(issue.probabilities.strobe),
            self.probe.ends.eq(taken.valid & taken.ready),
            self.probe.operation.eq(taken.payload.operation),
            self.probe.head.eq(taken.payload.head),
        ]
        return m
