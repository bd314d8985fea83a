"""The newest token's keys and values in FP16, which are quantised one step later."""

from typing import Annotated, Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.memory.memory import Memory
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require
from hdl.unit import Unit


@parameter_object
class ResidualTokenParameters(Parameters):
    """Dimensions of the residual token; they also drive its golden model and its testbench.

    Parameters
    ----------
    lanes : int
        Elements in a slice.
    head_size : int
        Elements of a head, a multiple of `lanes`.
    heads : int
        Key/value heads; each has a key and a value.
    residual : bool
        Whether a token is quantised in the step behind its own, not in its own.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    lanes: Annotated[int, PowerOfTwo(1, 64, "elements")] = 32
    head_size: Annotated[int, Range(2, 512, "elements")] = 128
    heads: Annotated[int, Range(1, 1024, "heads")] = 8
    residual: bool = True

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        require(
            self.head_size % self.lanes == 0,
            "head_size must be a multiple of lanes",
            self.head_size,
        )

    @property
    def slices(self) -> int:
        """Slices of a token: all of its keys and values."""
        return 2 * self.heads * self.head_size // self.lanes

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of a token; `first` in all slices of a text's first one behind its prompt."""
        values = data.ArrayLayout(16, self.lanes)
        return data.StructLayout({"values": values, "first": 1, "last": 1})

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of the newest token, and that of the one to be quantised, if there is one."""
        values = data.ArrayLayout(16, self.lanes)
        return data.StructLayout({"newest": values, "quantise": values, "some": 1, "last": 1})


class ResidualToken(Unit):
    """Exchanges each slice of the newest token for the same slice of the one before.

    The authors' code lets a token attend to its own key and value in FP16 and quantises them in the
    next step; the paper's text quantises at once (Section V-B). Both are here, by `residual`: the
    one keeps a token in a memory, the other passes it on.

    **Latency** 1 cycle. **Throughput** one slice per cycle. **Numerics** none: FP16 codes pass as
    they are.

    Parameters
    ----------
    parameters : ResidualTokenParameters
        Lanes, heads and whether a token is held for one step.

    Members
    -------
    tokens : In(stream)
        `values` in FP16, all slices of a token in one order, the same for every token; `first`
        where no token is before; `last`, which is passed on.
    results : Out(stream)
        `newest` is what came; `quantise`, where there is `some`, goes to smoothing and quantiser.

    Raises
    ------
    ValueError
        If `ResidualTokenParameters` rejects a value.
    """

    def __init__(self, *, parameters: ResidualTokenParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "tokens": In(stream.Signature(parameters.slice_layout)),
                "results": Out(stream.Signature(parameters.result_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Register what comes; read what is before it, and write it there."""
        m = Module()
        p = self.parameters
        source, results, out = self.tokens, self.results, self.results.payload
        move, take = Signal(), Signal()
        m.d.comb += [
            move.eq(~results.valid | results.ready),
            take.eq(source.valid & move),
            source.ready.eq(move),
        ]
        with m.If(move):
            m.d.sync += [
                results.valid.eq(source.valid),
                out.newest.eq(source.payload.values),
                out.last.eq(source.payload.last),
            ]
        if not p.residual:
            m.d.comb += [out.quantise.eq(out.newest), out.some.eq(1)]
            return m
        m.submodules.held = held = Memory(depth=p.slices, width=16 * p.lanes)
        place = Signal(ceil_log2(p.slices))
        # All tokens come in one order, so that one counter finds the token before.
        with m.If(take):
            m.d.sync += [
                place.eq(Mux(place == p.slices - 1, 0, place + 1)),
                out.some.eq(~source.payload.first),
            ]
        m.d.comb += [
            held.read_enable.eq(take),
            held.read_address.eq(place),
            # A read of what is written in the same cycle gives the token before.
            held.write_enable.eq(take),
            held.write_address.eq(place),
            held.write_data.eq(Value.cast(source.payload.values)),
            Value.cast(out.quantise).eq(held.read_data),
        ]
        return m
