# amaranth: UnusedElaboratable=no
"""The NPU's vector unit: one vector at a time through the functions of its operation."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.p3llm.instructions import NpuOperation, npu_instruction
from hdl.p3llm.npu.datapaths import Datapaths, Ends, Operands
from hdl.p3llm.npu.factor_memory import FactorMemory
from hdl.p3llm.npu.key_product import KeyProduct
from hdl.p3llm.npu.logit_argmax import LogitArgmax
from hdl.p3llm.npu.npu_score_datapaths import NpuScoreDatapaths
from hdl.p3llm.npu.number_memory import NumberMemory
from hdl.p3llm.npu.operation_control import OperationControl
from hdl.p3llm.npu.result_scaler import SUM_BITS
from hdl.p3llm.npu.result_store import ResultStore
from hdl.p3llm.npu.softmax_datapath import SoftmaxDatapath
from hdl.p3llm.npu.sum_factor import SumFactor
from hdl.p3llm.npu.sum_source import SumSource
from hdl.p3llm.npu.unit_score_datapaths import UnitScoreDatapaths
from hdl.p3llm.npu.vector_functions import VectorFunctions
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.parts import place_parts
from hdl.p3llm.places import Places
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class VectorUnit(Unit):
    """All element-wise operations between two products of the compute units.

    An operation reads vectors from memories (`Operands`), which pass through the functions of its
    datapath (`Datapaths`) to `ResultStore` or to a port. With `pre_rope` a further part,
    `KeyProduct`, multiplies queries by keys; otherwise the compute units do.

    **Latency** one cycle per slice, two if a vector is read twice, plus up to 100 cycles.
    **Throughput** one slice per cycle; operations are sequential. **Numerics** as the functions;
    with `pre_rope`, a key is rounded to binary32 by the scaler, to integers whose largest has 15
    bits, by the rotation, and to FP16.

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
    stores_inputs, stored_words : Out
        The operation in flight stores inputs in order; words below `stored_words` are stored.
    predictions : Out(stream)
        With a vocabulary: the token with the largest logit, and this logit.
    codes : Out(stream)
        Codes of keys and values (marked by `value`) for a pseudo-channel's cache.
    idle : Out(1)
        No operation is in flight.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        self.control = OperationControl(parameters=p)
        self.numbers, self.factors = NumberMemory(parameters=p), FactorMemory(parameters=p)
        self.sum_source, self.sum_factor = SumSource(parameters=p), SumFactor(parameters=p)
        self.store = ResultStore(parameters=p)
        self.argmax = LogitArgmax(parameters=p) if p.vocabulary_size else None
        self.key_product = KeyProduct(parameters=p) if p.pre_rope else None
        places, column = Places(p), p.channel.unit.column_bits
        predictions = {"predictions": Out(stream.Signature(p.prediction_layout))}
        super().__init__(
            (predictions if self.argmax else {})
            | {
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
                **({"keys_write": In(1), "zeros_write": In(1)} if self.key_product else {}),
                "word_address": In(places.word_bits),
                "word": Out(p.pseudo_channels * column),
                "stores_inputs": Out(1),
                "stored_words": Out(places.word_bits),
                "codes": Out(stream.Signature(p.codes_layout)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the parts; each operation selects a datapath through the functions."""
        m = Module()
        place_parts(m, self)
        functions, finished = VectorFunctions(m, self.parameters), Signal()
        self._connect_control(m, finished)
        self._connect_operands(m)
        self._connect_results(m)
        self._connect_factor(m, functions)
        if self.argmax:
            self._connect_argmax(m, self.argmax)
        operands = Operands(self.numbers.slices, self.factors.slices, self.sum_source.slices)
        ends = Ends(self.states_in, self.states_out, self.codes, finished)
        softmax = SoftmaxDatapath(m, functions, self.control)
        if self.key_product:
            self._connect_keys(m, self.key_product)
            attention = NpuScoreDatapaths(softmax, operands, self.store, ends, self.key_product)
        else:
            attention = UnitScoreDatapaths(softmax, operands, self.store)
        datapaths = Datapaths(
            m, functions, operands, self.control, self.store, ends, attention, self.argmax
        )
        with m.Switch(self.control.instruction.operation):
            for operation, datapath in datapaths.table.items():
                with m.Case(operation):
                    datapath()
        return m

    def _connect_control(self, m: Module, finished: Signal) -> None:
        """Connect the FSM to the port of instructions, and to the ends of operations."""
        control, factors = self.control, self.factors.slices
        connect_streams(m, self.instructions, control.instructions)
        m.d.comb += [
            control.position.eq(self.position),
            control.fetched.eq(factors.valid & factors.ready & factors.payload.last),
            control.finished.eq(finished | self.store.done),
            self.idle.eq(control.idle),
        ]

    def _connect_operands(self, m: Module) -> None:
        """Start the readers, and connect their memories to the ports."""
        control, given = self.control, self.control.instruction
        numbers, factors, sums = self.numbers, self.factors, self.sum_source
        of_head = (given.operation == NpuOperation.SCORES) | (
            given.operation == NpuOperation.HEAD_OUTPUT
        )
        m.d.comb += [
            numbers.start.eq(control.reads_numbers),
            numbers.first.eq(given.source),
            numbers.count.eq(control.count),
            numbers.write_enable.eq(self.store.write_enable),
            numbers.write_address.eq(self.store.write_address),
            numbers.write_data.eq(self.store.write_data),
            factors.start.eq(control.reads_factors),
            factors.first.eq(control.factors),
            factors.write_enable.eq(self.columns_write),
            factors.write_address.eq(self.columns_address),
            factors.columns.eq(self.columns_data),
            sums.start.eq(control.reads_sums),
            sums.first.eq(given.sums),
            sums.dependent.eq(self.dependent),
            sums.complete.eq(self.complete),
            sums.sums.eq(self.sums),
            self.sums_read.eq(sums.read_enable),
            self.sums_address.eq(sums.read_address),
        ]
        for reader in (factors, sums):
            m.d.comb += reader.count.eq(control.count)
            if self.parameters.channel_bits:
                # A head's vector is in one pseudo-channel.
                m.d.comb += [reader.one_channel.eq(of_head), reader.head.eq(given.head)]

    def _connect_results(self, m: Module) -> None:
        """Connect the store to the port of inputs."""
        store, given = self.store, self.control.instruction
        m.d.comb += [
            store.begin.eq(self.control.begin),
            store.target.eq(self.instructions.payload.target),
            store.ended.eq(self.control.finished),
            store.word_address.eq(self.word_address),
            self.word.eq(store.word),
            self.stores_inputs.eq(store.stores_inputs),
            self.stored_words.eq(store.stored_words),
        ]
        if self.parameters.channel_bits:
            of_query = given.operation == NpuOperation.QUERY
            of_scores = given.operation == NpuOperation.SCORES
            m.d.comb += [store.of_head.eq(of_query | of_scores), store.head.eq(given.head)]

    def _connect_factor(self, m: Module, functions: VectorFunctions) -> None:
        """Connect the scales of quantised vectors, and the common factor of the sums."""
        factor, sums = self.sum_factor, functions.scaler.slices.payload
        codes, scaled = functions.e4m3.results, functions.scaling.results
        m.d.comb += [
            factor.instruction.eq(self.control.instruction),
            factor.scale.valid.eq(codes.valid),
            factor.scale.value.eq(codes.payload.scale),
            factor.largest.valid.eq(scaled.valid),
            factor.largest.value.eq(scaled.payload.largest),
            sums.common.eq(factor.common),
            sums.point.eq(factor.point),
        ]

    def _connect_argmax(self, m: Module, argmax: LogitArgmax) -> None:
        """Connect the argmax to its port."""
        connect_streams(m, argmax.predictions, self.predictions)
        if self.parameters.in_flight > 1:
            m.d.comb += argmax.request.eq(self.control.instruction.scale_index)

    def _connect_keys(self, m: Module, product: KeyProduct) -> None:
        """Connect the writes of keys, and the start of their reads."""
        control, given = self.control, self.control.instruction
        m.d.comb += [
            product.keys_write.eq(self.keys_write),
            product.zeros_write.eq(self.zeros_write),
            product.address.eq(self.columns_address),
            product.columns.eq(self.columns_data),
            product.start.eq(control.starts & (given.operation == NpuOperation.SCORES)),
            product.keys.eq(given.source),
            product.zeros.eq(given.sums),
            product.count.eq(control.count),
        ]
        if self.parameters.channel_bits:
            m.d.comb += product.channel.eq(given.head)
