"""Store of U, the positions that update the caches, and the sequence of their updates."""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_format import BINARY16
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.fp16 import FP16
from hdl.memory.memory import Memory
from hdl.unit import Unit


@dataclass(frozen=True)
class _Position:
    """Progress of the sequence over all stored positions.

    Members
    -------
    read : Signal
        The next position is read.
    lane, entry : Signal
        Its lane and its address.
    cycle : Signal
        Cycle of the current position.
    """

    read: Signal
    lane: Signal
    entry: Signal
    cycle: Signal


class UpdateStore(Unit):
    """Store keys, values and coefficients of the positions of U; output them column by column.

    It takes the place of the paper's update FIFO.

    A position is stored in the lane in which it arrives. After the step, all lanes process the
    columns of the caches in parallel for one position after another, lane by lane. A step with one
    or two updated positions therefore uses all lanes, too.

    **Latency** 2 cycles from `begin` to the first elements; a position's key is output
    ``multiply_stages`` cycles after its first elements. **Throughput** one position per
    `pass_cycles` cycles.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Lanes, slots and vector size.

    Members
    -------
    clear : In(1)
        Discard all positions.
    store : In(lanes)
        Store the positions of these lanes; only lanes that are not `full`.
    full : Out(lanes)
        Lanes with `updates` positions.
    factors, vectors : In
        Coefficients, keys and values of the positions in this cycle.
    begin : In(1)
        Start the sequence over all stored positions.
    busy : Out(1)
        The sequence is in progress, including the cycle of `begin`.
    group : Out
        The group of columns that `elements` belong to.
    shown : Out(1)
        `elements`, `alpha` and `beta` are valid.
    elements : Out(ArrayLayout(16, lanes))
        Each lane's element of the position's value; in the last column 1, for D, E and F.
    alpha, beta : Out(16)
        The position's coefficients in FP16.
    key : Out(ArrayLayout(16, head_size))
        The position's key, `multiply_stages` cycles after its first elements.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "clear": In(1),
                "store": In(p.lanes),
                "full": Out(p.lanes),
                "factors": In(p.factors_layout),
                "vectors": In(p.vectors_layout),
                "begin": In(1),
                "busy": Out(1),
                "group": Out(p.group_shape),
                "shown": Out(1),
                "elements": Out(data.ArrayLayout(FP16, p.lanes)),
                "alpha": Out(FP16),
                "beta": Out(FP16),
                "key": Out(p.vector.vector_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Write a pair of memories per lane; read values, and keys some cycles later."""
        m = Module()
        p = self.parameters
        # A position keeps its lane, so that no data moves between lanes.
        kept = [Signal(range(p.updates + 1), name=f"kept_{lane}") for lane in range(p.lanes)]
        m.d.comb += self.full.eq(Cat(number == p.updates for number in kept))
        now = self._sequence(m, kept)
        # The key is multiplied by alpha times the element, and is read when that product is valid.
        later = p.vector.multiply_stages + 1
        key_read = delay_line(m, now.read, later, name="key_read", reset=True)[-1]
        key_lane = delay_line(m, now.lane, later, name="key_lane")[-1]
        key_entry = delay_line(m, now.entry, later, name="key_entry")[-1]
        values, keys = [], []
        for index in range(p.lanes):
            width = p.vector.vector_layout.size
            m.submodules[f"values_{index}"] = value = Memory(depth=p.updates, width=width + 32)
            m.submodules[f"keys_{index}"] = key = Memory(depth=p.updates, width=width)
            factor = self.factors.lanes[index]
            content = Cat(Value.cast(self.vectors["values"][index]), factor.alpha, factor.beta)
            for memory, word, enable, address in (
                (value, content, now.read, now.entry),
                (key, Value.cast(self.vectors["keys"][index]), key_read, key_entry),
            ):
                m.d.comb += [
                    memory.write_enable.eq(self.store[index]),
                    memory.write_address.eq(kept[index]),
                    memory.write_data.eq(word),
                    memory.read_enable.eq(enable),
                    memory.read_address.eq(address),
                ]
            # Only the counters are cleared: entries above the count are never read.
            with m.If(self.clear):
                m.d.sync += kept[index].eq(0)
            with m.Elif(self.store[index]):
                m.d.sync += kept[index].eq(kept[index] + 1)
            values.append(value.read_data)
            keys.append(key.read_data)

        # The lane whose word is at the memories' outputs.
        value_lane = delay_line(m, now.lane, 1, name="value_of", enable=now.read)[-1]
        key_lane = delay_line(m, key_lane, 1, name="key_of", enable=key_read)[-1]
        m.d.comb += Value.cast(self.key).eq(Array(keys)[key_lane])
        self._elements(m, Array(values)[value_lane], now.cycle)
        return m

    def _sequence(self, m: Module, kept: list[Signal]) -> _Position:
        """Count through all stored positions; `kept` is the number of each lane."""
        p = self.parameters
        lane, entry = Signal(range(p.lanes)), Signal(range(p.updates))
        cycle, read = Signal(range(p.pass_cycles)), Signal()
        following = Signal(range(p.updates + 1))
        m.d.comb += following.eq(entry + 1)
        there = Array(kept)[lane]
        ends = cycle == p.pass_cycles - 1
        # The next position of a lane is read in the last cycle; a change of lane takes one more
        # cycle.
        next_entry = Signal(range(p.updates))
        with m.FSM(name="walk") as fsm:
            with m.State("IDLE"):
                m.d.sync += [lane.eq(0), entry.eq(0)]
                with m.If(self.begin):
                    m.next = "SEEK"
            with m.State("SEEK"):
                with m.If(there != 0):
                    m.d.comb += read.eq(1)
                    m.d.sync += cycle.eq(0)
                    m.next = "WALK"
                with m.Elif(lane == p.lanes - 1):
                    m.next = "IDLE"
                with m.Else():
                    m.d.sync += lane.eq(lane + 1)
            with m.State("WALK"):
                m.d.sync += cycle.eq(Mux(ends, 0, cycle + 1))
                with m.If(ends & (following != there)):
                    m.d.comb += [read.eq(1), next_entry.eq(following)]
                    m.d.sync += entry.eq(following)
                with m.Elif(ends):
                    m.d.sync += [entry.eq(0), lane.eq(lane + 1)]
                    m.next = "SEEK"
                    with m.If(lane == p.lanes - 1):
                        m.next = "IDLE"
        m.d.comb += self.busy.eq(self.begin | ~fsm.ongoing("IDLE"))
        # A position can take more cycles than groups, so that columns are written before the next
        # read.
        shown = fsm.ongoing("WALK") & (cycle < p.groups)
        m.d.sync += [self.shown.eq(shown), self.group.eq(cycle)]
        return _Position(read, lane, next_entry, cycle)

    def _elements(self, m: Module, word: Value, cycle: Value) -> None:
        """Select a group's elements of a position's value, and register them."""
        p = self.parameters
        size = p.vector.head_size
        held = Signal(len(word))
        m.d.comb += held.eq(word)
        codes = [held[16 * index : 16 * index + 16] for index in range(size)]
        # The element after the last one of the value is 1, so that D, E and F form a column like
        # all others.
        codes += [Const(BINARY16.one, 16)] * (p.pass_cycles * p.lanes - size)
        for lane in range(p.lanes):
            m.d.sync += self.elements[lane].eq(Array(codes[lane :: p.lanes])[cycle])
        m.d.sync += [
            # Both coefficients are stored above the value in its word.
            self.alpha.eq(held[16 * size : 16 * size + 16]),
            self.beta.eq(held[16 * size + 16 :]),
        ]
