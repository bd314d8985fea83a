"""Argmax over the LM head: the token that each sample predicts."""

from typing import Annotated, Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.float_format import BINARY16
from hdl.arith.running_argmax import RunningArgmax
from hdl.lad.fp16 import FP16
from hdl.lad.ordered import SIGN, is_nan, ordered
from hdl.parameters import Parameters, Range, parameter_object, require
from hdl.unit import Unit

LEAST = 0
"""Least key, below `ordered` of any number: for NaNs and for rows that are no tokens."""


@parameter_object
class LargestSumParameters(Parameters):
    """Dimensions of the argmax; they also configure its testbench.

    Parameters
    ----------
    units : int
        Sums per transfer.
    batch : int
        Number of samples, whose sums of the same rows follow each other.
    vocabulary : int
        Number of tokens, the rows of the LM head that can be selected.
    groups : int
        Transfers per sample; rows after the last token are ignored.

    Raises
    ------
    ValueError
        If a parameter breaks its rule, or `groups` is too small; the message contains the rule and
        the value.
    """

    units: Annotated[int, Range(2, 16, "sums")] = 7
    batch: Annotated[int, Range(1, 64, "samples")] = 1
    vocabulary: Annotated[int, Range(1, 1 << 20, "tokens")] = 49152
    groups: Annotated[int, Range(1, 1 << 20, "groups")] = 7024

    def __post_init__(self) -> None:
        """Check that the groups hold the vocabulary."""
        super().__post_init__()
        least = -(-self.vocabulary // self.units)
        rule = f"groups must be at least vocabulary / units, {least}"
        require(self.groups >= least, rule, self.groups)

    @property
    def sums_layout(self) -> data.ArrayLayout:
        """Payload of `sums`."""
        return data.ArrayLayout(FP16, self.units)

    @property
    def prediction_layout(self) -> data.StructLayout:
        """Payload of `predictions`."""
        return data.StructLayout({"token": range(self.vocabulary), "sum": FP16})

    @property
    def lane_bits(self) -> int:
        """Bits of a lane's number, and levels of the comparator tree over a transfer."""
        return ceil_log2(self.units)

    @property
    def group_bits(self) -> int:
        """Bits of a transfer's number."""
        return max((self.groups - 1).bit_length(), 1)


class LargestSum(Unit):
    """Compute each sample's argmax while the sums of the LM head pass.

    Sums are compared in FP16, the widest format of the linear module, so that several can be equal;
    ties resolve to the lowest token.

    **Latency** ``log2(units) + 3`` cycles from the last sums, `units` rounded up to a power of two.
    **Throughput** one transfer of sums per cycle, with a gap of some cycles after the last one.

    **Numerics** exact; -0 and +0 are equal, and a NaN is below every number.

    Parameters
    ----------
    parameters : LargestSumParameters
        Units, batch and vocabulary.

    Members
    -------
    sums : In(stream)
        From the linear module: for each group of rows the sums of all samples, one sample per
        transfer.
    predictions : Out(stream)
        For each sample in order the `token` and its `sum`. A sum of -0 is output as +0; if all sums
        are NaN, the token is 0 and its sum a NaN.

    Raises
    ------
    ValueError
        If `parameters` is invalid, see `LargestSumParameters`.
    """

    def __init__(self, *, parameters: LargestSumParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "sums": In(stream.Signature(p.sums_layout)),
                "predictions": Out(stream.Signature(p.prediction_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count groups and samples; compare each sample's sums with its maximum so far."""
        m = Module()
        p = self.parameters
        sample, group = Signal(range(p.batch)), Signal(range(p.groups))
        # Number of tokens from this group on; the last groups can have rows that are no tokens.
        left = Signal(range(p.vocabulary + 1), init=p.vocabulary)
        moves, over, clear = self.sums.valid & self.sums.ready, Signal(), Signal()
        last_sample = sample == p.batch - 1
        following = Mux(left > p.units, left - p.units, 0) if p.vocabulary > p.units else 0
        with m.If(moves):
            m.d.sync += sample.eq(Mux(last_sample, 0, sample + 1))
            with m.If(last_sample):
                m.d.sync += [group.eq(group + 1), left.eq(following)]
        m.d.comb += over.eq(moves & last_sample & (group == p.groups - 1))
        with m.If(clear):
            m.d.sync += [group.eq(0), left.eq(p.vocabulary)]
        chosen = self._compare(m, left, sample, moves, clear)
        self._give(m, chosen, over, clear)
        return m

    def _compare(
        self, m: Module, left: Value, sample: Value, moves: Value, clear: Value
    ) -> list[RunningArgmax]:
        """Compare the sums of the current sample, one cycle after their transfer."""
        p = self.parameters
        compared = Signal(p.units * BINARY16.width, reset_less=True)
        keys = []
        for lane in range(p.units):
            code = self.sums.payload[lane]
            counts = (left > lane) & ~is_nan(code)
            # With fewer tokens than lanes, the upper lanes never hold a token.
            key: Value = Mux(counts, ordered(code), LEAST)
            tells = lane < p.vocabulary
            keys.append(key[: BINARY16.width] if tells else Const(LEAST, BINARY16.width))
        m.d.sync += compared.eq(Cat(keys))
        chosen = []
        for number in range(p.batch):
            argmax = RunningArgmax(
                lanes=1 << p.lane_bits,
                width=BINARY16.width + 1,
                number_bits=p.lane_bits + p.group_bits,
            )
            m.submodules[f"sample_{number}"] = argmax
            m.d.sync += argmax.strobe.eq(moves & (sample == number))
            # Missing lanes have the least key, which is never larger than another one.
            m.d.comb += argmax.clear.eq(clear)
            m.d.comb += [
                argmax.values[lane].eq(compared.word_select(lane, BINARY16.width))
                for lane in range(p.units)
            ]
            chosen.append(argmax)
        return chosen

    def _give(self, m: Module, chosen: list[RunningArgmax], over: Value, clear: Signal) -> None:
        """Wait for the last comparison; then output the results, sample by sample."""
        p, lane_bits = self.parameters, self.parameters.lane_bits
        waits, turn = Signal(range(lane_bits + 2)), Signal(range(p.batch))
        number: Any = Array(one.number for one in chosen)[turn]
        found: Any = Array(one.largest for one in chosen)[turn]
        largest = found[: BINARY16.width]
        given = self.predictions.payload
        # A lane number has a power of two of codes; only `units` of them are used.
        token = number[lane_bits:] * p.units + number[:lane_bits]
        code = Mux(largest[-1], largest ^ SIGN, ~largest)
        m.d.comb += [
            given.token.eq(token),
            given.sum.eq(Mux(largest == LEAST, BINARY16.quiet_nan or 0, code)),
        ]
        with m.FSM(name="choice"):
            with m.State("TAKE"):
                m.d.comb += self.sums.ready.eq(1)
                with m.If(over):
                    m.d.sync += waits.eq(lane_bits + 1)
                    m.next = "WAIT"
            # The last sums are still in the comparator tree.
            with m.State("WAIT"):
                m.d.sync += waits.eq(waits - 1)
                with m.If(waits == 0):
                    m.next = "GIVE"
            with m.State("GIVE"):
                m.d.comb += self.predictions.valid.eq(1)
                with m.If(self.predictions.ready):
                    m.d.sync += turn.eq(turn + 1)
                    with m.If(turn == p.batch - 1):
                        m.d.comb += clear.eq(1)
                        m.d.sync += turn.eq(0)
                        m.next = "TAKE"
