"""Buffer of the newest token's keys and values in FP16, to quantise them one step later."""

from typing import Annotated

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.memory.memory import Memory
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require
from hdl.unit import Unit


@parameter_object
class ResidualTokenParameters(Parameters):
    """Dimensions of the residual token.

    Parameters
    ----------
    lanes : int
        Elements per slice.
    head_size : int
        Elements of a head, a multiple of `lanes`.
    heads : int
        Key/value heads; each has a key and a value.
    residual : bool
        A token is quantised in the step after its own, instead of in its own step.

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
        """Number of slices of a token, with all of its keys and values."""
        return 2 * self.heads * self.head_size // self.lanes

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of a token; `first` in all slices of the first token after a prompt."""
        values = data.ArrayLayout(16, self.lanes)
        return data.StructLayout({"values": values, "first": 1, "last": 1})

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of the newest token, and if `some` a slice of the token to be quantised."""
        values = data.ArrayLayout(16, self.lanes)
        return data.StructLayout({"newest": values, "quantise": values, "some": 1, "last": 1})


class ResidualToken(Unit):
    """Exchange each slice of the newest token for the same slice of the previous token.

    In the authors' code a token attends to its own key and value in FP16, and they are quantised in
    the next step; the paper's text quantises at once (Section V-B). Parameter `residual` selects
    the first scheme, which stores a token in a memory; the second passes it on.

    **Latency** 1 cycle. **Throughput** one slice per cycle. **Numerics** none: FP16 codes are not
    changed.

    Parameters
    ----------
    parameters : ResidualTokenParameters
        Lanes, heads and whether a token is held for one step.

    Members
    -------
    tokens : In(stream)
        `values` in FP16, with the slices of every token in the same order; `first` if there is no
        previous token; `last`, which is passed on.
    results : Out(stream)
        `newest` is the input slice; `quantise`, valid if `some`, is for smoothing and quantiser;
        `last`.

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

    def elaborate(self, platform: object) -> Module:
        """Register the slice; read the previous token's slice, and overwrite it."""
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
        # All tokens have the same order of slices, so that a counter addresses the previous token.
        with m.If(take):
            m.d.sync += [
                place.eq(Mux(place == p.slices - 1, 0, place + 1)),
                out.some.eq(~source.payload.first),
            ]
        m.d.comb += [
            held.read_enable.eq(take),
            held.read_address.eq(place),
            # A read in the cycle of a write to the same address returns the previous token.
            held.write_enable.eq(take),
            held.write_address.eq(place),
            held.write_data.eq(Value.cast(source.payload.values)),
            Value.cast(out.quantise).eq(held.read_data),
        ]
        return m
