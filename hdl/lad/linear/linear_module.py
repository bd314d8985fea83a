"""LAD's linear layers: the vector units hold rows of weights and process all samples with them."""

from dataclasses import dataclass
from typing import Annotated

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.lad.fp16 import FP16
from hdl.lad.vpu.vector_processing_unit import Operation, VectorProcessingUnitParameters
from hdl.lad.vpu.vector_units import unit_members, vector_units
from hdl.memory.memory import Memory
from hdl.memory.memory_fifo import MemoryFifo
from hdl.parameters import Parameters, Range, parameter_object
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


@parameter_object
class LinearModuleParameters(Parameters):
    """Dimensions and pipeline stages of linear layers.

    `docs/lad/linear/linear_module.md` lists the clock that the default stages reach.

    Parameters
    ----------
    vector : VectorProcessingUnitParameters
        Dimensions of the vector units.
    units : int
        Number of vector units, and of outputs that are computed in parallel.
    samples : int
        Largest number of samples of a batch; each weight is fetched once for all of them.
    slices : int
        Largest number of slices of an input.
    groups : int
        Largest number of groups of `units` outputs.
    add_stages : int
        Register stages of an adder.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    vector: VectorProcessingUnitParameters = VectorProcessingUnitParameters()
    units: Annotated[int, Range(2, 16, "vector units")] = 7
    samples: Annotated[int, Range(1, 64, "samples")] = 4
    slices: Annotated[int, Range(1, 256, "slices")] = 86
    groups: Annotated[int, Range(1, 8192, "groups")] = 1573
    add_stages: Annotated[int, Range(1, 4, "stages")] = 3

    @property
    def pace(self) -> int:
        """Cycles until a sum is written, and the product of its next slice can follow."""
        return self.add_stages + 2

    @property
    def in_flight(self) -> int:
        """Results in flight from their last products to `outputs`, at one result per cycle."""
        return self.vector.scalar_latency + self.add_stages + 4

    @property
    def task_layout(self) -> data.StructLayout:
        """Payload of `tasks`."""
        return data.StructLayout(
            {
                "samples": range(self.samples + 1),
                "slices": range(self.slices + 1),
                "groups": range(self.groups + 1),
            }
        )

    @property
    def input_layout(self) -> data.StructLayout:
        """Payload of `inputs`."""
        return data.StructLayout({"slice": self.vector.vector_layout})

    @property
    def weights_layout(self) -> data.StructLayout:
        """Payload of `weights`."""
        rows = data.ArrayLayout(self.vector.vector_layout, self.units)
        return data.StructLayout({"rows": rows})

    @property
    def output_layout(self) -> data.StructLayout:
        """Payload of `outputs`."""
        return data.StructLayout({"sums": data.ArrayLayout(FP16, self.units), "last": 1})


@dataclass(frozen=True)
class _Product:
    """The product that begins in this cycle.

    Members
    -------
    go : Value
        A product begins.
    loads : Value
        It is the first product with its weights, which are transferred now.
    place : Signal
        Address of its sum in the units' memories.
    first, last, ends : Value
        The product is of the first slice; of the last slice; the last product of the task.
    """

    go: Value
    loads: Value
    place: Signal
    first: Value
    last: Value
    ends: Value


class LinearModule(Unit):
    """Multiply the inputs of a batch by a matrix, one row per vector unit in parallel.

    The inputs are stored in a memory. A transfer of weights is one slice of `units` rows. The
    vector units hold it while the slices of all samples pass, so that each weight is fetched once
    per batch. The products of a slice are added to sums in a memory per unit; a task's products
    therefore follow each other without waiting for an adder.

    **Latency** ``scalar_latency + add_stages + 4`` cycles from the last weights to their outputs.
    **Throughput** one transfer of weights per as many cycles as there are samples. If a slice has
    fewer than `pace` sums, the next slice begins `pace` cycles after the last of them.

    **Numerics** FP16: dot products of slices in the vector unit's order; the results of the slices
    are added sequentially, from 0, each sum rounded once. LAD, Section IV-B, IV-C.

    Parameters
    ----------
    parameters : LinearModuleParameters
        Vector size, numbers of units, samples, slices and groups, register stages.
    shared : bool
        Use vector units outside the module, through `units`.

    Members
    -------
    tasks : In(stream)
        Numbers of `samples`, `slices` and `groups`, each at least 1. Transferred when the last
        product begins.
    inputs : In(stream)
        The first `slice` of each sample, then the second one of each, and so on; the last slice is
        padded with zeros.
    weights : In(stream)
        The first slice of each group of rows, then the second one of each, and so on. The last
        slice is padded with zeros; missing rows of the last group have any value.
    outputs : Out(stream)
        The `sums` of each group for all samples; `last` with the last sums of a task.
    busy : Out(1)
        The vector units are in use.
    units : Out(VectorPort).array(units)
        Ports of the vector units; only with `shared`.
    """

    def __init__(self, *, parameters: LinearModuleParameters, shared: bool = False) -> None:
        self.parameters = p = parameters
        self.shared = shared
        super().__init__(
            {
                "tasks": In(stream.Signature(p.task_layout)),
                "inputs": In(stream.Signature(p.input_layout)),
                "weights": In(stream.Signature(p.weights_layout)),
                "outputs": Out(stream.Signature(p.output_layout)),
                "busy": Out(1),
            }
            | unit_members(p.vector, p.units, shared=shared)
        )

    def elaborate(self, platform: object) -> Module:
        """Fill the input memory, issue the products, and add the units' results to the sums."""
        m = Module()
        p = self.parameters
        units = vector_units(m, self.units if self.shared else None, p.vector, p.units)
        m.submodules.results = results = MemoryFifo(shape=p.output_layout, depth=p.in_flight)
        connect_streams(m, results.sink, self.outputs)
        m.submodules.inputs_memory = memory = Memory(
            depth=max(p.samples * p.slices, 2), width=p.vector.vector_layout.size
        )
        # The pipeline after the vector units cannot stall: room for a sum is reserved when its last
        # product begins, until the sum is transferred.
        reserved = Signal(range(p.in_flight + 1))
        product = self._issue(m, memory, reserved != p.in_flight)
        transferred = self.outputs.valid & self.outputs.ready
        m.d.sync += reserved.eq(reserved + (product.go & product.last) - transferred)
        # The weights are in the units one cycle later, when the input has been read.
        begins = delay_line(m, product.go, 1, name="begins", reset=True)[-1]
        for index, unit in enumerate(units):
            m.d.comb += [
                unit.load.eq(product.loads),
                unit.i_vec1.eq(self.weights.payload["rows"][index]),
                unit.valid.eq(begins),
                unit.operation.eq(Operation.DOT_PRODUCT),
                Value.cast(unit.i_vec2).eq(memory.read_data),
            ]
        latency = p.vector.scalar_latency
        marks = Cat(product.first, product.last, product.ends)
        # The address of a sum is delayed in parallel with the vector units.
        read = delay_line(m, product.go, latency, name="reads", reset=True)
        place = delay_line(m, product.place, latency + 1 + p.add_stages, name="place")
        marked = delay_line(m, marks, latency + 1 + p.add_stages, name="marks")
        added = delay_line(m, read[-1], 1 + p.add_stages, name="added", reset=True)
        last = marked[-1]
        m.d.comb += [
            self.busy.eq(product.go | Cat(read[1:]).any() | Cat(added[1:]).any()),
            results.source.valid.eq(added[-1] & last[1]),
            results.source.payload.last.eq(last[2]),
        ]
        for index, unit in enumerate(units):
            m.submodules[f"sums_{index}"] = sums = Memory(
                depth=max(p.samples * p.groups, 2), width=16
            )
            m.submodules[f"add_{index}"] = add = FloatAdd(stages=p.add_stages)
            m.d.comb += [
                # The previous sum is read in the cycle in which the product is valid.
                sums.read_enable.eq(read[-1]),
                sums.read_address.eq(place[latency]),
                Value.cast(add.a).eq(Mux(marked[latency + 1][0], 0, sums.read_data)),
                Value.cast(add.b).eq(unit.o_scal),
                sums.write_enable.eq(added[-1]),
                sums.write_address.eq(place[-1]),
                sums.write_data.eq(Value.cast(add.result)),
                results.source.payload.sums[index].eq(Value.cast(add.result)),
            ]
        return m

    def _issue(self, m: Module, memory: Memory, room: Value) -> _Product:
        """Count through slices, groups and samples; read the input of each product.

        A product of the last slice begins only if there is `room` for its sum.
        """
        p = self.parameters
        task = self.tasks.payload
        # Three loops: slices, groups, samples. Samples are innermost: the weights do not change.
        sample, number = Signal(range(p.samples)), Signal(range(p.slices))
        group, place = Signal(range(p.groups)), Signal(range(p.samples * p.groups))
        base, written = (
            Signal.like(memory.read_address, name=name) for name in ("base", "written")
        )
        waited = Signal(range(p.pace + 1), init=p.pace)
        go, ends = Signal(), Signal()
        last_sample, last_group = sample == task.samples - 1, group == task.groups - 1
        last_slice = number == task.slices - 1
        with m.FSM(name="walk") as fsm:
            with m.State("FILL"):
                m.d.comb += self.inputs.ready.eq(self.tasks.valid)
                with m.If(self.inputs.valid & self.inputs.ready):
                    m.d.sync += [written.eq(written + 1), sample.eq(sample + 1)]
                    with m.If(last_sample):
                        m.d.sync += [sample.eq(0), number.eq(number + 1)]
                        with m.If(last_slice):
                            m.d.sync += number.eq(0)
                            m.next = "MULTIPLY"
            # Each transfer of weights serves all samples before the next one is accepted.
            with m.State("MULTIPLY"):
                # A sum is written before the next slice reads it.
                paced = (place != 0) | (waited == p.pace)
                there = (sample != 0) | self.weights.valid
                m.d.comb += [
                    go.eq(paced & there & (room | ~last_slice)),
                    self.weights.ready.eq(go & (sample == 0)),
                    ends.eq(last_sample & last_group & last_slice),
                    self.tasks.ready.eq(go & ends),
                ]
                with m.If(go & ends):
                    m.d.sync += written.eq(0)
                    m.next = "FILL"
        with m.If(waited != p.pace):
            m.d.sync += waited.eq(waited + 1)
        with m.If(go):
            m.d.sync += [sample.eq(sample + 1), place.eq(place + 1)]
            with m.If(last_sample):
                m.d.sync += [sample.eq(0), group.eq(group + 1)]
                with m.If(last_group):
                    m.d.sync += [group.eq(0), place.eq(0), number.eq(number + 1)]
                    m.d.sync += base.eq(base + task.samples)
                    # With `pace` sums or more per slice, a sum is written in time for the next.
                    m.d.sync += waited.eq(Mux(place >= p.pace - 1, p.pace, 1))
                    with m.If(last_slice):
                        m.d.sync += [number.eq(0), base.eq(0)]
        m.d.comb += [
            memory.write_enable.eq(fsm.ongoing("FILL") & self.inputs.valid & self.inputs.ready),
            memory.write_address.eq(written),
            memory.write_data.eq(Value.cast(self.inputs.payload.slice)),
            memory.read_enable.eq(go),
            # The samples' slices of one index are adjacent.
            memory.read_address.eq(base + sample),
        ]
        return _Product(go, go & (sample == 0), place, number == 0, last_slice, ends)
