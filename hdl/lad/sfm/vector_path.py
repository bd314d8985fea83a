"""Functions of single vectors in the special function module: rotary embedding, SiLU, additions."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.lad.sfm.sfm_parameters import Function, SpecialFunctionModuleParameters
from hdl.lad.sfm.sigmoid_lanes import SigmoidLanes
from hdl.lad.vpu.vector_processing_unit import Operation, VectorPort
from hdl.memory.memory import Memory
from hdl.memory.memory_fifo import MemoryFifo
from hdl.unit import Unit


class VectorPath(Unit):
    """Pass single vectors through the vector unit and the adders, each as soon as it arrives.

    A vector enters a register and begins when its other operand arrives. From then on nothing can
    stall it, since its result has room in a FIFO. Only vectors of one function are in flight at a
    time, so that results are in order and an operator has one user.

    **Latency** from the last operand: an addition ``add_stages + 3`` cycles, a rotary embedding
    ``multiply_stages + add_stages + 5``, SiLU ``gate_stages + 2``. **Throughput** one addition per
    2 cycles, one rotary embedding per 3; a SiLU of one vector per ``head_size / lanes`` cycles, at
    least 2, and one more if both of its products would need the vector unit in the same cycle.

    **Numerics** those of the vector unit, `VectorAdders` and `SigmoidLanes`.

    Parameters
    ----------
    parameters : SpecialFunctionModuleParameters
        Vector size, lanes and register stages.

    Members
    -------
    vectors : In(stream)
        `values` of a vector and its `function`: `ROTARY`, `SILU` or `ADD`.
    factors : In(stream)
        Cosines, then sines; or the output of `up_proj`. Accepted after the vector.
    addends : In(stream)
        The vector to add. Accepted after the vector.
    results : Out(stream)
        The results in the order of the vectors.
    busy : Out(1)
        A vector is in flight, or its result has not been transferred.
    unit : Out(VectorPort)
        Operations of the vector unit.
    added, a, b : Out
        Two vectors to add; `added` is their valid bit.
    summed, sums : In
        The sums of `VectorAdders`.
    """

    def __init__(self, *, parameters: SpecialFunctionModuleParameters) -> None:
        self.parameters = p = parameters
        values, vector = stream.Signature(p.values_layout), p.vector.vector_layout
        super().__init__(
            {
                "vectors": In(stream.Signature(p.vector_layout)),
                "factors": In(values),
                "addends": In(values),
                "results": Out(values),
                "busy": Out(1),
                "unit": Out(VectorPort(p.vector)),
                "added": Out(1),
                "a": Out(vector),
                "b": Out(vector),
                "summed": In(1),
                "sums": In(vector),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Accept vectors while results have room; the function selects the route."""
        m = Module()
        p, unit = self.parameters, self.unit
        m.submodules.room = room = MemoryFifo(shape=p.values_layout, depth=p.in_flight)
        entered, x = Signal(), Signal(p.vector.vector_layout, reset_less=True)
        function, used = Signal(Function), Signal()
        count = Signal(range(p.in_flight + 1))
        accepts = self.vectors.valid & self.vectors.ready
        same = (count == 0) | (Value.cast(self.vectors.payload.function) == Value.cast(function))
        m.d.comb += [
            self.vectors.ready.eq(~entered & same & (count != p.in_flight)),
            self.busy.eq(count != 0),
            self.results.valid.eq(room.sink.valid),
            self.results.payload.eq(room.sink.payload),
            room.sink.ready.eq(self.results.ready),
        ]
        m.d.sync += count.eq(count + accepts - (self.results.valid & self.results.ready))
        with m.If(accepts):
            m.d.sync += [
                entered.eq(1),
                x.eq(self.vectors.payload.values),
                function.eq(self.vectors.payload.function),
            ]
        with m.Elif(used):
            m.d.sync += entered.eq(0)

        turns, gates, adds = (
            entered & (function == one) for one in (Function.ROTARY, Function.SILU, Function.ADD)
        )
        sine = self._rotate(m, turns, x)
        gated = self._gate(m, gates, x)
        m.d.comb += [
            self.addends.ready.eq(adds),
            used.eq(
                (self.addends.valid & adds)
                | (self.factors.valid & self.factors.ready & (gates | sine))
            ),
            unit.operation.eq(Operation.ELEMENT_WISE),
            room.source.valid.eq(self.summed | gated),
            room.source.payload.values.eq(Mux(gated, Value.cast(unit.o_vec), self.sums)),
        ]
        return m

    def _rotate(self, m: Module, turns: Value, x: data.View) -> Signal:
        """Multiply by cosines and sines, and add the products; return whether sines follow."""
        p, unit = self.parameters, self.unit
        sine, accepts = Signal(), Signal()
        m.d.comb += accepts.eq(turns & self.factors.valid)
        with m.If(accepts):
            m.d.sync += sine.eq(~sine)
        # The register row is loaded one cycle before the operation.
        stages = 1 + p.vector.vector_latency
        cosines = delay_line(m, accepts & ~sine, stages, name="cosines", reset=True)
        sines = delay_line(m, accepts & sine, stages, name="sines", reset=True)
        # A rotation is two products and a sum: the product with cos is held until the other is
        # ready.
        first = Signal(p.vector.vector_layout, reset_less=True)
        with m.If(cosines[-1]):
            m.d.sync += first.eq(unit.o_vec)
        with m.If(turns):
            m.d.comb += [
                self.factors.ready.eq(1),
                unit.load.eq(accepts),
                unit.i_vec1.eq(self.factors.payload.values),
            ]
        # The register `x` keeps its vector for one cycle after the sines have been accepted.
        with m.If(cosines[1] | sines[1]):
            m.d.comb += [
                unit.valid.eq(1),
                Value.cast(unit.i_vec2).eq(Mux(sines[1], rotated(x), Value.cast(x))),
            ]
        m.d.comb += [
            self.added.eq(sines[-1] | (self.addends.valid & self.addends.ready)),
            self.a.eq(Mux(sines[-1], Value.cast(first), Value.cast(x))),
            self.b.eq(
                Mux(
                    sines[-1],
                    Value.cast(unit.o_vec),
                    Value.cast(self.addends.payload.values),
                )
            ),
        ]
        return sine

    def _gate(self, m: Module, gates: Value, x: data.View) -> Value:
        """Compute sigmoids and two products; return whether the second product is at the unit."""
        p, unit = self.parameters, self.unit
        width = p.vector.vector_layout.size
        m.submodules.sigmoid = sigmoid = SigmoidLanes(parameters=p)
        m.submodules.gates = gate = Memory(depth=p.in_flight, width=width)
        m.submodules.ups = up = Memory(depth=p.in_flight, width=width)
        # All later events follow `begins` after fixed numbers of cycles.
        begins, free = Signal(), Signal()
        line = delay_line(m, begins, p.gate_stages, name="begins", reset=True)
        first = p.sigmoid_cycles
        second = first + p.product_distance
        m.d.comb += [
            # Both products of a vector use the unit: another one begins when they do not collide.
            free.eq(sigmoid.free & ~line[p.product_distance]),
            begins.eq(gates & free & self.factors.valid),
            sigmoid.begin.eq(begins),
            sigmoid.values.eq(x),
            gate.read_enable.eq(line[first]),
            # The word of `ups` is at the memory's output when the register row loads it.
            up.read_enable.eq(line[second - 1]),
        ]
        with m.If(gates):
            m.d.comb += self.factors.ready.eq(free)
        for memory, word in ((gate, x), (up, self.factors.payload.values)):
            m.d.comb += [
                memory.write_enable.eq(begins),
                memory.write_data.eq(Value.cast(word)),
            ]
            for address, advances in (
                (memory.write_address, begins),
                (memory.read_address, memory.read_enable),
            ):
                pointer = Signal.like(address)
                m.d.comb += address.eq(pointer)
                with m.If(advances):
                    m.d.sync += pointer.eq(pointer + 1)
        product = delay_line(
            m, Value.cast(unit.o_vec), 1, name="product", enable=line[second], reset=False
        )[-1]
        with m.If(line[first]):
            m.d.comb += [unit.load.eq(1), unit.i_vec1.eq(sigmoid.sigmoids)]
        with m.Elif(line[second]):
            m.d.comb += [unit.load.eq(1), Value.cast(unit.i_vec1).eq(up.read_data)]
        with m.If(line[first + 1]):
            m.d.comb += [unit.valid.eq(1), Value.cast(unit.i_vec2).eq(gate.read_data)]
        with m.Elif(line[second + 1]):
            m.d.comb += [unit.valid.eq(1), Value.cast(unit.i_vec2).eq(product)]
        return line[-1]


def rotated(vector: data.View) -> Value:
    """Return a vector with its halves exchanged, the first half then negated: wires only."""
    codes = [Value.cast(code) for code in vector]
    half = len(codes) // 2
    return Cat(*(Cat(code[:-1], ~code[-1]) for code in codes[half:]), *codes[:half])
