"""Execution of the instructions of Kelle with the AXI shell."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.memory.burst_port import BurstReadPort
from hdl.nonlinear.row_norm import EPSILON_BITS
from hdl.shell.kelle_axi_parameters import LOADS, Command, KelleAxiParameters
from hdl.unit import Unit


class KelleCommands(Unit):
    """Offer steps and loads to Kelle one after the other, and request the weights of each step.

    The weights of a step are requested while the step before it is in progress, so that the latency
    of memory does not delay a step.

    **Latency** 1 cycle from an instruction to a step or load. **Throughput** one step or load at a
    time.

    Parameters
    ----------
    parameters : KelleAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    instructions : In(stream)
        See `KelleAxiParameters.instruction_layout`.
    requests : Out(stream)
        The burst of weights of each step.
    positions : Out(stream)
        The position of each step.
    layer, predicts, follows : Out
        Of the offered step or load.
    starts : Out(1)
        A step is accepted in this cycle.
    step : Out(struct)
        Layer, position and epsilon of the step in progress; constant during the step.
    loads : Out(struct)
        A bit for each of `LOADS`: its words may be transferred.
    loaded : In(1)
        A word of a load is transferred.
    rests : In(1)
        Kelle has finished everything before the offered load.
    recorded : In(1)
        All placements of the steps before are written.
    illegal : Out(1)
        An instruction's layer does not exist; it and all later ones are not executed.
    clear_flags : In(1)
        Clear `illegal`.
    """

    def __init__(self, *, parameters: KelleAxiParameters) -> None:
        self.parameters = p = parameters
        kelle = p.kelle
        weights = BurstReadPort(
            address_bits=p.address_bits, word_shape=kelle.channel_layout, longest=p.longest
        )
        super().__init__(
            {
                "instructions": In(stream.Signature(p.instruction_layout)),
                "requests": Out(stream.Signature(weights.request_layout)),
                "positions": Out(stream.Signature(kelle.position_bits)),
                "layer": Out(kelle.layer_bits),
                "predicts": Out(1),
                "follows": Out(1),
                "starts": Out(1),
                "step": Out(
                    data.StructLayout(
                        {
                            "layer": kelle.layer_bits,
                            "position": kelle.position_bits,
                            "epsilon": EPSILON_BITS,
                        }
                    )
                ),
                "loads": Out(data.StructLayout(dict.fromkeys(LOADS, 1))),
                "loaded": In(1),
                "rests": In(1),
                "recorded": In(1),
                "illegal": Out(1),
                "clear_flags": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Hold an instruction until its step is accepted, or its load is complete."""
        m = Module()
        p, one = self.parameters, self.instructions.payload
        is_step = one.command == Command.STEP
        legal = one.layer < p.kelle.layers if p.kelle.layers & p.kelle.layers - 1 else Const(1)
        offered = self.instructions.valid & legal
        # `requested`: the weights of the offered step; `loading`: the load is in progress.
        requested, loading, left = Signal(), Signal(), Signal.like(one.words)
        loaded = loading & (left == 0)
        m.d.comb += [
            self.requests.payload.address.eq(one.weights),
            self.requests.payload.length.eq(Mux(one.predicts, p.vocabulary_words, p.layer_words)),
            self.requests.valid.eq(offered & is_step & ~requested),
            self.positions.payload.eq(one.position),
            self.positions.valid.eq(offered & is_step & requested & self.recorded),
            self.layer.eq(one.layer),
            self.predicts.eq(one.predicts),
            self.follows.eq(one.follows),
            self.starts.eq(self.positions.valid & self.positions.ready),
            self.instructions.ready.eq(self.starts | loaded),
        ]
        with m.If(self.requests.valid & self.requests.ready):
            m.d.sync += requested.eq(1)
        with m.If(self.starts):
            m.d.sync += [
                requested.eq(0),
                self.step.layer.eq(one.layer),
                self.step.position.eq(one.position),
                self.step.epsilon.eq(one.epsilon),
            ]
        for name, command in LOADS.items():
            m.d.comb += self.loads[name].eq(loading & (left != 0) & (one.command == command))
        # A load waits for the end of the step before it: scales of results in flight must not be
        # written, and rows of the step's own requests are counted.
        with m.If(offered & ~is_step & ~loading & self.rests):
            m.d.sync += [loading.eq(1), left.eq(one.words)]
        with m.If(self.loaded):
            m.d.sync += left.eq(left - 1)
        with m.If(loaded):
            m.d.sync += loading.eq(0)
        with m.If(self.clear_flags):
            m.d.sync += self.illegal.eq(0)
        with m.Elif(self.instructions.valid & ~offered):
            m.d.sync += self.illegal.eq(1)
        return m
