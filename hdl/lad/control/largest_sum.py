"""The tokens that samples predict: the first of the largest sums of the vocabulary's matrix."""

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
"""Below what `ordered` makes of any number: a NaN's place, and that of a row that is no token's."""


@parameter_object
class LargestSumParameters(Parameters):
    """Dimensions of a choice of tokens; they also drive its testbench.

    Parameters
    ----------
    units : int
        Sums of a transfer.
    batch : int
        Samples, whose sums of the same rows follow each other.
    vocabulary : int
        Rows that are a token's.
    groups : int
        Transfers of each sample: rows beyond the last token's are passed over.

    Raises
    ------
    ValueError
        If a rule above is broken, or the groups have too few rows; with the rule and the value.
    """

    units: Annotated[int, Range(2, 16, "sums")] = 7
    batch: Annotated[int, Range(1, 64, "samples")] = 1
    vocabulary: Annotated[int, Range(1, 1 << 20, "tokens")] = 49152
    groups: Annotated[int, Range(1, 1 << 20, "groups")] = 7024

    def __post_init__(self) -> None:
        """Check the rules between the parameters."""
        super().__post_init__()
        least = -(-self.vocabulary // self.units)
        rule = f"groups must be at least vocabulary / units, {least}"
        require(self.groups >= least, rule, self.groups)

    @property
    def sums_layout(self) -> data.ArrayLayout:
        """Payload of the stream of sums."""
        return data.ArrayLayout(FP16, self.units)

    @property
    def prediction_layout(self) -> data.StructLayout:
        """Payload of the stream of predictions."""
        return data.StructLayout({"token": range(self.vocabulary), "sum": FP16})

    @property
    def lane_bits(self) -> int:
        """Bits of a sum's place in its transfer, and levels of a knockout between them."""
        return ceil_log2(self.units)

    @property
    def group_bits(self) -> int:
        """Bits of a transfer's number."""
        return max((self.groups - 1).bit_length(), 1)


class LargestSum(Unit):
    """Choose each sample's token, while the sums of all pieces of the vocabulary pass.

    Sums are compared as they leave the linear module, in FP16, the widest that it has: several may
    be equal, of which the smallest token is taken.

    **Latency** ``log2(units) + 3`` cycles from the last sums, units rounded up to a power of two.
    **Throughput** a transfer of sums a cycle, but for some cycles behind the last one.

    **Numerics** exact; -0 and +0 are equal, and a NaN is below every number.

    Parameters
    ----------
    parameters : LargestSumParameters
        Dimensions.

    Members
    -------
    sums : In(stream)
        From the linear module: of each group of rows the sums of all samples in turns.
    predictions : Out(stream)
        Sample by sample the `token` and its `sum`, which is a NaN if all are, and 0 as +0.

    Raises
    ------
    ValueError
        By `LargestSumParameters`.
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
        """Count groups and samples; let each sample's sums meet its best so far."""
        m = Module()
        p = self.parameters
        sample, group = Signal(range(p.batch)), Signal(range(p.groups))
        # Rows from the group on that are tokens: a last piece has some that are none.
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
        """Give the sums to their sample's comparison, a cycle after they came."""
        p = self.parameters
        compared = Signal(p.units * BINARY16.width, reset_less=True)
        keys = []
        for lane in range(p.units):
            code = self.sums.payload[lane]
            counts = (left > lane) & ~is_nan(code)
            # A vocabulary of less than a transfer has lanes in which no token ever is.
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
            # Lanes that are not there have the least value, which wins nothing.
            m.d.comb += argmax.clear.eq(clear)
            m.d.comb += [
                argmax.values[lane].eq(compared.word_select(lane, BINARY16.width))
                for lane in range(p.units)
            ]
            chosen.append(argmax)
        return chosen

    def _give(self, m: Module, chosen: list[RunningArgmax], over: Value, clear: Signal) -> None:
        """Wait for the last comparison; then show what was found, sample by sample."""
        p, lane_bits = self.parameters, self.parameters.lane_bits
        waits, turn = Signal(range(lane_bits + 2)), Signal(range(p.batch))
        number: Any = Array(one.number for one in chosen)[turn]
        found: Any = Array(one.largest for one in chosen)[turn]
        largest = found[: BINARY16.width]
        given = self.predictions.payload
        # Groups are counted as they have lanes, of which some may not be there.
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
            # The last sums are on their way through the comparison.
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
