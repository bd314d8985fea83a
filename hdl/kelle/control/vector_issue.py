"""Issues the vectors that each tile is multiplied by: inputs, queries, probabilities or contexts.

Section 5.2 and Figure 11 (a, b) of the paper: one vector per cycle; the inputs of the arriving and
of the recomputed tokens form one matrix.
"""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.arith.rounding import Rounding, rounded_right
from hdl.arith.saturating_add import saturate
from hdl.kelle.instructions import Operation, projects, requantises
from hdl.kelle.parameters import KelleParameters
from hdl.memory.memory import Memory
from hdl.unit import Unit

LOST = {"inputs": 6, "queries": 8, "probabilities": 8, "contexts": 8, "products": 8}
"""Bits dropped from vectors of 8-bit activations: inputs in Q6.10 keep four fraction bits, vectors
with a quantisation step of their own keep the upper byte. Products in Q6.10 are treated as inputs.
"""

LOOPS = ("inner", "half", "middle", "outer")
"""Counters of the nested loops of an operation, innermost first."""


@dataclass(frozen=True)
class Place:
    """Position in an operation: a counter for each of `LOOPS`, and whether it ends."""

    outer: Signal  # Slice of the output, or tile of slots.
    middle: Signal  # Slice of the input, or of the head.
    half: Signal  # Upper, then lower byte of keys and values.
    inner: Signal  # Vector: a member of the combined matrix, or a query head of a group.
    ends: dict[str, Signal]


class VectorIssue(Unit):
    """Store activations, and offer the array the vectors of each operation, tile by tile.

    A projection loops over the slices of a head (`part`), and for each over the slices of its
    input. Scores and attention loop over tiles of slots, slices of the head, and both bytes. The
    vectors of a tile are issued back to back.

    **Latency** 1 cycle from an operation to its first vector. **Throughput** one vector per cycle.

    Parameters
    ----------
    parameters : KelleParameters
        Dimensions of the accelerator.

    Members
    -------
    layer : In
        Layer of the step.
    operations : In(stream)
        Operations of the program; the unit waits slice by slice for operands that are incomplete.
    members : In
        Rows of the combined matrix, the arriving tokens first.
    last_token, count : In
        Index of the last arriving token, and number of rows of the combined matrix.
    inputs, queries, probabilities, contexts, products : In
        Writes of slices: of input vectors, of rotated queries, of probabilities, of the attention's
        outputs, and of the feed-forward block's intermediate vector. With activations of 8 bits the
        slices are rounded to nearest, ties to even, and saturate.
    arrived, renewed, attended, multiplied : In
        Numbers of operands that are held for all tokens: slices of the attention block's input
        and of the feed-forward block's input, key/value heads' contexts, and slices of products.
    vectors : Out(stream)
        Vectors for the array, as in `MatrixUnit`.
    """

    def __init__(self, *, parameters: KelleParameters) -> None:
        p = self.parameters = parameters
        self.depths = {
            "inputs": p.members * p.hidden_slices,
            "queries": p.step_tokens * p.heads * p.head_slices,
            "probabilities": p.step_tokens * p.heads * (p.cache_tiles + 1),
            "contexts": p.step_tokens * p.hidden_slices,
            "products": p.step_tokens * p.intermediate_slices,
        }
        super().__init__(
            {
                "layer": In(p.layer_bits),
                "operations": In(stream.Signature(p.operation_layout)),
                "members": In(data.ArrayLayout(p.member_layout, p.members)),
                "count": In(bits_for(p.members)),
                "last_token": In(p.token_shape),
                "arrived": In(bits_for(p.hidden_slices)),
                "renewed": In(bits_for(p.hidden_slices)),
                "attended": In(p.count_shape),
                "multiplied": In(bits_for(p.intermediate_slices)),
                "vectors": Out(stream.Signature(p.array.vector_layout)),
            }
            | {name: In(p.slice_write(depth)) for name, depth in self.depths.items()}
        )

    def elaborate(self, platform: object) -> Module:
        """Count vectors, slices and tiles; read one memory per vector."""
        m = Module()
        p = self.parameters
        move = ~self.vectors.valid | self.vectors.ready
        offers, issues = Signal(), Signal()
        place = Place(
            outer=Signal(range(max(p.head_slices, p.cache_tiles + 1))),
            middle=Signal(range(max(p.hidden_slices, p.intermediate_slices, p.head_slices))),
            half=Signal(),
            inner=Signal(range(max(p.members, p.group_size, 2))),
            ends={name: Signal(name=f"{name}_ends") for name in LOOPS},
        )
        m.d.comb += issues.eq(offers & move)
        self._count(m, issues, place)
        elements = self._read(m, issues, place)
        vector = Signal(p.array.vector_layout, reset_less=True)
        m.d.comb += offers.eq(self.operations.valid & self._is_held(place.middle))
        with m.If(move):
            m.d.sync += self.vectors.valid.eq(offers)
        self._describe(m, issues, place, vector)
        # The memory outputs the elements in the cycle in which the header is in registers.
        m.d.comb += [
            self.vectors.payload.eq(vector),
            self.vectors.payload.elements.eq(elements),
        ]
        return m

    def _is_held(self, middle: Signal) -> Value:
        """Return whether the slice that the next vector reads is held.

        An operation starts with its first slices while the last ones are still being computed.
        """
        p = self.parameters
        operation = self.operations.payload.operation
        counts = {
            Operation.QUERY: self.arrived,
            Operation.VOCABULARY: self.arrived,
            Operation.OUTPUT: self.attended * (p.group_size * p.head_slices),
            Operation.UP: self.renewed,
            Operation.GATE: self.renewed,
            Operation.DOWN: self.multiplied,
        }
        lacks = ((operation == which) & (middle >= count) for which, count in counts.items())
        return ~Cat(*lacks).any()

    def _count(self, m: Module, issues: Signal, place: Place) -> None:
        """Advance four nested loops, the inner one with each vector."""
        p = self.parameters
        operation, ends = self.operations.payload.operation, place.ends
        outside = projects(operation)
        middle_last = Signal.like(place.middle)
        outer_last, inner_last = Signal.like(place.outer), Signal.like(place.inner)
        m.d.comb += [
            outer_last.eq(p.head_slices - 1),
            middle_last.eq(Mux(outside, p.hidden_slices - 1, p.head_slices - 1)),
            # Projections have the arriving tokens only; keys and values have all members.
            inner_last.eq(Mux(outside, self.last_token, p.group_size - 1)),
        ]
        with m.Switch(operation):
            with m.Case(Operation.KEY, Operation.VALUE):
                m.d.comb += inner_last.eq(self.count - 1)
            with m.Case(Operation.DOWN):
                m.d.comb += middle_last.eq(p.intermediate_slices - 1)
            with m.Case(Operation.SCORE):
                m.d.comb += outer_last.eq(p.cache_tiles - 1)
            with m.Case(Operation.OWN):
                m.d.comb += outer_last.eq(0)
            # The arriving token's tile follows those of the slots.
            with m.Case(Operation.ATTEND):
                m.d.comb += outer_last.eq(p.cache_tiles)
        m.d.comb += [
            ends["inner"].eq(place.inner == inner_last),
            # Weights have one byte, keys and values two.
            ends["half"].eq(outside | place.half),
            ends["middle"].eq(place.middle == middle_last),
            ends["outer"].eq(place.outer == outer_last),
        ]
        # A counter moves when all faster ones end.
        steps = issues
        for name in LOOPS:
            counter = getattr(place, name)
            with m.If(steps):
                m.d.sync += counter.eq(Mux(ends[name], 0, counter + 1))
            steps &= ends[name]
        m.d.comb += self.operations.ready.eq(steps)

    def _describe(self, m: Module, issues: Signal, place: Place, vector: data.View) -> None:
        """Derive the controls of a vector for the array and its output stage."""
        p = self.parameters
        operation, head = self.operations.payload.operation, self.operations.payload.head
        outer, middle, half, inner = place.outer, place.middle, place.half, place.inner
        ends = place.ends
        outside = projects(operation)
        scores = (operation == Operation.SCORE) | (operation == Operation.OWN)
        attends = operation == Operation.ATTEND
        header = Signal(p.header_layout)
        m.d.comb += [
            header.operation.eq(operation),
            header.token.eq(self.operations.payload.token),
            header.head.eq(head),
            header.part.eq(Mux(operation == Operation.OWN, p.cache_tiles, outer)),
            header.index.eq(Mux(attends, inner * p.head_slices + middle, inner)),
            header.ends.eq(ends["inner"] & ends["half"] & ends["middle"] & ends["outer"]),
        ]
        # Attention sums over tiles of slots, everything else over slices of the input.
        begins = Mux(attends, outer == 0, middle == 0) & (outside | ~half)
        done = Mux(attends, ends["outer"], ends["middle"]) & ends["half"]
        # A layer's projection has a scale for each slice of a head, other operations one scale.
        bases = [p.scale(which) for which in Operation]
        own = Mux(requantises(operation), head * p.head_slices + outer, 0)
        scale = Array(bases)[operation.as_value()] + own
        if p.layers > 1:
            scale += self.layer * p.scales
        with m.If(issues):
            m.d.sync += [
                # Keys are in the array as they are cached: sums of scores move along the rows.
                vector.transposed.eq(scores),
                vector.swap.eq(inner == 0),
                vector.unsigned_weights.eq(~outside & half),
                vector.tag.step.first.eq(begins),
                vector.tag.step.high.eq(~outside & ~half),
                vector.tag.step.index.eq(header.index),
                vector.tag.done.eq(done),
                vector.tag.scale.eq(scale),
                vector.tag.user.eq(header),
            ]
            if p.vocabulary_size:
                m.d.sync += vector.tag.compares.eq(operation == Operation.VOCABULARY)

    def _narrowed(self, name: str, values: data.View) -> Value:
        """Return a slice as an operand of the array, rounded to nearest even, saturating."""
        p = self.parameters
        if p.activation_bits == 16:
            return values.as_value()
        shape = signed(p.activation_bits)
        lost = LOST["inputs" if name == "products" and not p.scaled_products else name]
        rounded = (rounded_right(value, lost, Rounding.HALF_EVEN) for value in values)
        return Cat(saturate(value, shape)[0] for value in rounded)

    def _read(self, m: Module, issues: Signal, place: Place) -> Value:
        """Read the slice of the next vector; it is valid from the next cycle on."""
        p = self.parameters
        operation, head = self.operations.payload.operation, self.operations.payload.head
        part = Mux(operation == Operation.OWN, p.cache_tiles, place.outer)
        member = Array(self.members[i] for i in range(p.members))[place.inner]
        query = p.token_head(self.operations.payload.token, head) * p.group_size + place.inner
        addresses = {
            "inputs": member.vector * p.hidden_slices + place.middle,
            "queries": query * p.head_slices + place.middle,
            "probabilities": query * (p.cache_tiles + 1) + part,
            "contexts": p.token_item(place.inner, p.hidden_slices, place.middle),
            "products": p.item_of_tokens(place.middle, place.inner),
        }
        came_from = Signal(range(len(addresses)), reset_less=True)
        # Projections read inputs.
        chosen = Signal.like(came_from)
        with m.Switch(operation):
            with m.Case(Operation.SCORE, Operation.OWN):
                m.d.comb += chosen.eq(1)
            with m.Case(Operation.ATTEND):
                m.d.comb += chosen.eq(2)
            with m.Case(Operation.OUTPUT):
                m.d.comb += chosen.eq(3)
            with m.Case(Operation.DOWN):
                m.d.comb += chosen.eq(4)
        with m.If(issues):
            m.d.sync += came_from.eq(chosen)
        slices = []
        # Only the selected memory is read, so that its output is held until the next vector.
        for number, (name, address) in enumerate(addresses.items()):
            memory = Memory(depth=max(self.depths[name], 2), width=p.operand_layout.size)
            m.submodules[name] = memory
            write = getattr(self, name)
            m.d.comb += [
                memory.write_enable.eq(write.strobe),
                memory.write_address.eq(write.address),
                memory.write_data.eq(self._narrowed(name, write["values"])),
                memory.read_enable.eq(issues & (chosen == number)),
                memory.read_address.eq(address),
            ]
            slices.append(memory.read_data)
        return Array(slices)[came_from]
