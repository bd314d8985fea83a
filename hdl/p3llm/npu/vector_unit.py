# amaranth: UnusedElaboratable=no
"""The NPU's vector unit: one vector at a time through the functions of its operation."""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, BINARY32
from hdl.arith.float_normal_multiply import FloatNormalMultiply
from hdl.memory.memory import Memory
from hdl.nonlinear.activation_functions import ActivationFunctions
from hdl.nonlinear.argmax import Argmax
from hdl.nonlinear.rms_norm import RmsNorm
from hdl.nonlinear.rotary_embedding import RotaryEmbedding
from hdl.nonlinear.softmax import Softmax
from hdl.p3llm.instructions import (
    READS_FACTORS,
    READS_NUMBERS,
    READS_SUMS,
    NpuOperation,
    npu_instruction,
)
from hdl.p3llm.npu.block_fixed import BlockFixed, BlockFixedParameters
from hdl.p3llm.npu.datapath_links import Stores
from hdl.p3llm.npu.datapaths import Datapaths
from hdl.p3llm.npu.epsilon_steps import EpsilonSteps
from hdl.p3llm.npu.fixed_lanes import FixedLanes, FixedLanesParameters
from hdl.p3llm.npu.half_lanes import HalfLanes, HalfLanesParameters
from hdl.p3llm.npu.number_lanes import score_factor
from hdl.p3llm.npu.result_scaler import SUM_BITS, ResultScaler, ResultScalerParameters
from hdl.p3llm.npu.single_lanes import SingleLanes, SingleLanesParameters
from hdl.p3llm.npu.slice_reader import SliceReader
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.parts import place_parts
from hdl.p3llm.pim.dot_product import LANES
from hdl.p3llm.pim.operand_decoder import FRACTION_BITS, Mode
from hdl.p3llm.places import Places
from hdl.p3llm.quantisers.e4m3_quantiser import E4m3Quantiser
from hdl.p3llm.quantisers.int4_quantiser import Int4Quantiser
from hdl.p3llm.quantisers.key_smoothing import KeySmoothing
from hdl.p3llm.quantisers.probability_quantiser import ProbabilityQuantiser
from hdl.p3llm.quantisers.value_scaling import ValueScaling
from hdl.unit import Unit

COMMON_STAGES = 3
"""Cycles until the common factor of an operation is valid: as many as until its first sum."""


class VectorUnit(Unit):
    """All element-wise operations between two products of the compute units.

    **Latency** one cycle per slice, two if a vector is read twice, plus up to 100 cycles.
    **Throughput** one slice per cycle; operations are sequential. **Numerics** as the functions.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    instructions : In(stream)
        An operation, see `npu_instruction`; the next one is accepted when it is complete.
    position : In
        Position of the token: the number of cached tokens.
    states_in, states_out : In, Out(stream)
        Hidden states.
    sums_read, sums_address, sums : Out, Out, In
        Read port of the sums: a slice of each pseudo-channel, one cycle after its address.
    columns_write, columns_address, columns_data : In
        Write port for a column of FP16 numbers from the banks of each pseudo-channel.
    keys_write, zeros_write : In(1)
        With `pre_rope`: the column contains keys, or their zero points, instead.
    dependent, complete : In
        The operation's sums are still arriving; those below `complete`, in results, are there.
    word_address, word : In, Out
        Read port of the inputs: a word of each pseudo-channel, one cycle after its address.
    giving, given : Out
        The operation in flight stores inputs in order; words below `given` are stored.
    predictions : Out(stream)
        With a vocabulary: the token with the largest logit, and this logit.
    codes : Out(stream)
        Codes of keys and values (marked by `value`) for a pseudo-channel's cache.
    idle : Out(1)
        No operation is in flight, and none is offered.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    datapaths = Datapaths

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        self.places = places = Places(p)
        lanes, column = p.lanes, p.channel.unit.column_bits
        self.held = Signal(npu_instruction(p))
        self.starts = Signal()
        self.numbers = Memory(depth=places.numbers_depth, width=32 * lanes)
        # Memories for data from each pseudo-channel and to it.
        channels = range(p.pseudo_channels)
        columns, words = places.columns(places.factors_depth), places.words(places.inputs_depth)
        self.columns = [Memory(depth=columns, width=column) for _ in channels]
        self.inputs = [Memory(depth=words, width=column, granularity=8 * lanes) for _ in channels]
        # Pseudo-channel whose word is selected from the memories of factors and of sums.
        self.factors_of, self.sums_of = (
            Signal(p.channel_bits, name=f"{name}_of") if p.channel_bits else Const(0)
            for name in ("factors", "sums")
        )
        self.number_reader, self.factor_reader, self.sum_reader = (
            SliceReader(address_bits=bits, count_bits=places.count_bits)
            for bits in (places.numbers_bits, places.factors_bits, places.sums_bits)
        )
        self.scaler = ResultScaler(parameters=ResultScalerParameters(lanes=lanes))
        self.block = BlockFixed(parameters=self._block_parameters(p))
        self.epsilon = EpsilonSteps(width=p.hidden_size)
        self.norm, self.rotary = RmsNorm(parameters=p.norm), RotaryEmbedding(parameters=p.rotary)
        self.softmax = Softmax(parameters=p.softmax)
        self.activation = ActivationFunctions(parameters=p.activation)
        self.half = HalfLanes(parameters=HalfLanesParameters(lanes=lanes))
        self.fixed = FixedLanes(parameters=FixedLanesParameters(lanes=lanes))
        self.single = SingleLanes(parameters=SingleLanesParameters(lanes=lanes))
        self.e4m3, self.int4 = E4m3Quantiser(parameters=p.e4m3), Int4Quantiser(parameters=p.int4)
        self.smoothing = KeySmoothing(parameters=p.smoothing)
        self.scaling = ValueScaling(parameters=p.scaling)
        self.probability = ProbabilityQuantiser(parameters=p.probabilities)
        self.reads_sums, self.reads_factors = READS_SUMS, READS_FACTORS
        if p.vocabulary_size:
            self.argmax = Argmax(parameters=p.argmax)
            # The sums of the LM head are scaled like those of any linear layer.
            self.reads_sums += (NpuOperation.COMPARE,)
            self.reads_factors += (NpuOperation.COMPARE,)
        super().__init__(self._members(p))

    @staticmethod
    def _members(p: P3llmParameters) -> dict[str, Any]:
        """Return the ports."""
        places, column = Places(p), p.channel.unit.column_bits
        predictions = {"predictions": Out(stream.Signature(p.prediction_layout))}
        return (predictions if p.vocabulary_size else {}) | {
            "instructions": In(stream.Signature(npu_instruction(p))),
            "position": In(range(p.slots)),
            "states_in": In(stream.Signature(p.state_layout)),
            "states_out": Out(stream.Signature(p.state_layout)),
            "sums_read": Out(1),
            "sums_address": Out(places.sums_bits),
            "sums": In(p.pseudo_channels * SUM_BITS * p.lanes),
            "dependent": In(1),
            "complete": In(places.result_bits),
            "columns_write": In(1),
            "columns_address": In(places.column_bits),
            "columns_data": In(p.pseudo_channels * column),
            **({"keys_write": In(1), "zeros_write": In(1)} if p.pre_rope else {}),
            "word_address": In(places.word_bits),
            "word": Out(p.pseudo_channels * column),
            "giving": Out(1),
            "given": Out(places.word_bits),
            "codes": Out(stream.Signature(p.codes_layout)),
            "idle": Out(1),
        }

    @staticmethod
    def _block_parameters(p: P3llmParameters) -> BlockFixedParameters:
        """Return the parameters of the conversion of vectors to integers."""
        slices = max(p.hidden_size, p.head_size) // p.lanes
        return BlockFixedParameters(lanes=p.lanes, slices=slices)

    def elaborate(self, platform: object) -> Module:
        """Instantiate memories and functions; each operation selects a datapath through them."""
        m = Module()
        place_parts(m, self)
        finished, fetching, running = Signal(), Signal(), Signal()
        stores = Stores(numbers=Signal(), codes=Signal())
        self._control(m, finished, fetching, running)
        self._readers(m)
        self._stores(m, stores, finished)
        self._scalars(m)
        datapaths = self.datapaths(m, self, stores, finished, fetching, running)
        if self.parameters.vocabulary_size:
            datapaths.mark_rows()
        with m.Switch(self.held.operation):
            for operation, datapath in datapaths.table.items():
                with m.Case(operation):
                    datapath()
        return m

    def _control(self, m: Module, finished: Signal, fetching: Signal, running: Signal) -> None:
        """Accept an operation, start its readers, wait for its end."""
        p, held, starts = self.parameters, self.held, self.starts
        # Scores fill whole columns of values, of four tokens each.
        quantum = max(LANES, p.lanes)
        tokens = self.position + 1
        columns = (tokens + (quantum - 1)) >> ceil_log2(quantum)
        count = Signal.like(held.count)
        # The number of scores is that of tokens, rounded up to whole columns of values.
        m.d.comb += count.eq(held.count)
        with m.If(held.operation == NpuOperation.SCORES):
            m.d.comb += count.eq(columns << ceil_log2(quantum // p.lanes))
        factors = self.factor_reader
        with m.FSM():
            # No operation is in flight: all memories and functions are free.
            with m.State("IDLE"):
                m.d.comb += [
                    self.instructions.ready.eq(1),
                    self.idle.eq(~self.instructions.valid),
                ]
                with m.If(self.instructions.valid):
                    m.d.sync += held.eq(self.instructions.payload)
                    m.next = "PREPARE"
            with m.State("PREPARE"):
                # The multiplication for the common factor starts in this cycle and is ready for the
                # first sum.
                m.next = "START"
                with m.If(held.operation == NpuOperation.SCORES):
                    m.d.comb += [factors.start.eq(1), factors.first.eq(held.value_scales)]
                    m.next = "SCALES"
            # The largest scale of the values must be known before the first probability is
            # multiplied.
            with m.State("SCALES"):
                m.d.comb += fetching.eq(1)
                with m.If(
                    factors.slices.valid & factors.slices.ready & factors.slices.payload.last
                ):
                    m.next = "START"
            # All readers that the operation needs start together.
            with m.State("START"):
                m.d.comb += [
                    starts.eq(1),
                    factors.start.eq(self._is_any(self.reads_factors)),
                    factors.first.eq(held.factors),
                ]
                m.next = "RUN"
            # The operation ends with its last store, or with a handshake of its own.
            with m.State("RUN"):
                m.d.comb += running.eq(1)
                with m.If(finished):
                    m.next = "IDLE"
        m.d.comb += [
            factors.count.eq(count),
            self.number_reader.start.eq(starts & self._is_any(READS_NUMBERS)),
            self.number_reader.first.eq(held.source),
            self.number_reader.count.eq(count),
            self.sum_reader.start.eq(starts & self._is_any(self.reads_sums)),
            self.sum_reader.first.eq(held.sums),
            self.sum_reader.count.eq(count),
        ]

    def _is_any(self, operations: tuple[NpuOperation, ...]) -> Value:
        """Return whether the operation is one of some."""
        return Cat(self.held.operation == one for one in operations).any()

    def _readers(self, m: Module) -> None:
        """Connect the memories' read ports to their readers, and to the compute units."""
        p, numbers = self.parameters, self.numbers
        factor_place = self._placed(m, self.factor_reader, self.factors_of)
        sum_place = self._placed(m, self.sum_reader, self.sums_of)
        m.d.comb += [
            numbers.read_enable.eq(self.number_reader.read_enable),
            numbers.read_address.eq(self.number_reader.read_address),
            # A slice is complete once its last result has arrived.
            self.sum_reader.hold.eq(
                self.dependent & ((sum_place + 1) * (p.lanes // p.result) > self.complete)
            ),
            self.sums_read.eq(self.sum_reader.read_enable),
            self.sums_address.eq(sum_place),
            self.word.eq(Cat(inputs.read_data for inputs in self.inputs)),
        ]
        for number, (columns, inputs) in enumerate(zip(self.columns, self.inputs, strict=True)):
            m.d.comb += [
                columns.read_enable.eq(self.factor_reader.read_enable),
                columns.read_address.eq(factor_place >> ceil_log2(p.elements // p.lanes)),
                columns.write_enable.eq(self.columns_write),
                columns.write_address.eq(self.columns_address),
                columns.write_data.eq(
                    self.columns_data.word_select(number, len(columns.read_data))
                ),
                inputs.read_enable.eq(1),
                inputs.read_address.eq(self.word_address),
            ]

    @property
    def shown_sums(self) -> Value:
        """The slice of sums at the reader's output."""
        return self.sums.word_select(self.sums_of, SUM_BITS * self.parameters.lanes)

    def _placed(self, m: Module, reader: SliceReader, of: Value) -> Value:
        """Return a slice's address in its pseudo-channel's memory; register the pseudo-channel."""
        p, address = self.parameters, reader.read_address
        if not p.channel_bits:
            return address
        # A head's vector is in one memory; other vectors are distributed tile by tile.
        alone = self._is_any((NpuOperation.SCORES, NpuOperation.HEAD))
        within = ceil_log2(p.elements // p.lanes)
        around, above = address[within:][: p.channel_bits], address[within + p.channel_bits :]
        with m.If(reader.read_enable):
            m.d.sync += of.eq(Mux(alone, self.held.head, around))
        return Mux(alone, address, Cat(address[:within], above))

    def _stores(self, m: Module, stores: Stores, finished: Signal) -> None:
        """Write the results of an operation in order; it ends with the last one."""
        p, held = self.parameters, self.held
        place, taken = Signal(self.places.address_bits), Signal()
        in_word, ended = ceil_log2(p.word // p.lanes), Signal()
        values, last = Signal(32 * p.lanes), Signal()
        m.d.comb += [values.eq(self.scaler.results.payload["values"]), last.eq(0)]
        # Select the results to store, and the mark of the last one.
        with m.Switch(held.operation):
            with m.Case(NpuOperation.LOAD):
                m.d.comb += [
                    values.eq(self.states_in.payload["values"]),
                    last.eq(self.states_in.payload.last),
                ]
            with m.Case(NpuOperation.RESIDUAL):
                m.d.comb += [
                    values.eq(self.single.results.payload["values"]),
                    last.eq(self.single.results.payload.last),
                ]
            with m.Case(NpuOperation.SCALE, NpuOperation.HEAD):
                m.d.comb += last.eq(self.scaler.results.payload.last)
            with m.Case(NpuOperation.SCORES):
                m.d.comb += last.eq(self.probability.results.payload.last)
            with m.Default():
                m.d.comb += last.eq(self.e4m3.results.payload.last)
        codes = Mux(
            held.operation == NpuOperation.SCORES,
            self.probability.results.payload.codes.as_value(),
            self.e4m3.results.payload.codes.as_value(),
        )
        m.d.comb += [
            taken.eq(stores.numbers | stores.codes),
            self.numbers.write_enable.eq(stores.numbers),
            self.numbers.write_address.eq(place),
            self.numbers.write_data.eq(values),
        ]
        self._store_inputs(m, stores, place, codes)
        m.d.comb += self.given.eq(place >> in_word)
        with m.If(stores.codes):
            m.d.sync += self.giving.eq(1)
        # After the end of an operation no inputs are being stored.
        with m.If(finished):
            m.d.sync += ended.eq(1)
        with m.If(ended):
            m.d.sync += [ended.eq(0), self.giving.eq(0)]
        # Slices are stored at ascending places, starting at the operation's target.
        with m.If(self.instructions.valid & self.instructions.ready):
            m.d.sync += place.eq(self.instructions.payload.target)
        with m.Elif(taken):
            m.d.sync += place.eq(place + 1)
        with m.If(taken & last):
            m.d.comb += finished.eq(1)

    def _store_inputs(self, m: Module, stores: Stores, place: Signal, codes: Value) -> None:
        """Write codes to the input memories of the pseudo-channels."""
        p, in_word = self.parameters, ceil_log2(self.parameters.word // self.parameters.lanes)
        of_head = self._is_any((NpuOperation.QUERY, NpuOperation.SCORES))
        for number, inputs in enumerate(self.inputs):
            # A head's inputs are also written to all higher pseudo-channels, whose own ones follow,
            # so that those without a head have defined inputs.
            own = Mux(of_head, self.held.head[: p.channel_bits] <= number, 1)
            stored = stores.codes if number == p.pseudo_channels - 1 else stores.codes & own
            m.d.comb += [
                # A word of inputs consists of several slices.
                inputs.write_enable.eq(stored << place[:in_word]),
                inputs.write_address.eq(place >> in_word),
                inputs.write_data.eq(codes.replicate(p.word // p.lanes)),
            ]

    @property
    def scalar(self) -> Value:
        """Index of the operation's query head among those in flight."""
        held, bits = self.held, self.parameters.channel_bits
        return Cat(held.scalar, held.head[:bits]) if bits else held.scalar

    def _sums_factor(self, factor: Value) -> Value:
        """Return the common factor of the sums, in binary32."""
        return factor

    def _scalars(self, m: Module) -> None:
        """Hold the inputs' scales and the largest scales of values; compute the common factor."""
        p, held = self.parameters, self.held
        # Two pairs of heads may be in flight in each pseudo-channel, with one scale per head.
        scales = Array(Signal(16, name=f"scale_{i}") for i in range(p.scalars))
        largest = Array(Signal(16, name=f"largest_{i}") for i in range(p.scalars))
        scalar = self.scalar
        with m.If(self.e4m3.results.valid):
            m.d.sync += scales[scalar].eq(self.e4m3.results.payload.scale)
        with m.If(self.scaling.results.valid):
            m.d.sync += largest[scalar].eq(self.scaling.results.payload.largest)
        of_scores = held.operation == NpuOperation.SCORES
        of_head = held.operation == NpuOperation.HEAD
        # Scores are in base 2.
        m.submodules.widen = widen = FloatConvert(source=BINARY16, target=BINARY32)
        # FP16 factors are far above binary32's subnormal numbers, and so are their products.
        m.submodules.common = common = FloatNormalMultiply(stages=COMMON_STAGES)
        bits, scaled = FRACTION_BITS, self.scaler.slices.payload
        of_product = Mux(of_head, bits[Mode.PV], bits[Mode.LINEAR])
        m.d.comb += [
            widen.a.eq(Mux(of_head, largest[scalar], scales[scalar])),
            common.a.eq(widen.result),
            common.b.eq(Mux(of_scores, score_factor(p.head_size), BINARY32.one)),
            scaled.common.eq(self._sums_factor(common.result)),
            scaled.point.eq(Mux(of_scores, bits[Mode.QK], of_product)),
            # The norm's epsilon is in squared steps of its row.
            self.epsilon.point.eq(self.block.results.payload.point),
            self.norm.states.payload.epsilon.eq(self.epsilon.steps),
        ]
