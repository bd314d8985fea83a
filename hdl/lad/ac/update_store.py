"""The positions with which the caches are updated, and the walk over all columns for each."""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_format import BINARY16
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.fp16 import FP16
from hdl.memory.memory import Memory
from hdl.unit import Unit


class UpdateStore(Unit):
    """Keep keys, values and coefficients of updated positions; then show them column by column.

    A position stays in the lane in which it came. Behind the step all lanes walk over the columns
    of the caches side by side, for one position after the other, lane by lane: so a step with one
    or two updated positions occupies all lanes, too.

    **Latency** 2 cycles from `begin` to the first elements; a position's key shows
    ``multiply_stages`` cycles behind them. **Throughput** a position in `pass_cycles` cycles.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Dimensions.

    Members
    -------
    clear : In(1)
        Forget all positions.
    store : In(lanes)
        Keep the position in these lanes; a lane has room for `updates`.
    factors, vectors : In
        What is known of the positions.
    begin : In(1)
        Start the walk.
    walks : Out(1)
        It is under way; also in its first cycle.
    group : Out
        Which columns are shown.
    shown : Out(1)
        There are elements of a position.
    elements : Out(ArrayLayout(16, lanes))
        Each lane's element of the position's value; 1 in the last column.
    alpha, beta : Out(16)
        The position's coefficients.
    key : Out(ArrayLayout(16, head_size))
        Its key, later.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "clear": In(1),
                "store": In(p.lanes),
                "factors": In(p.factors_layout),
                "vectors": In(p.vectors_layout),
                "begin": In(1),
                "walks": Out(1),
                "group": Out(range(p.groups)),
                "shown": Out(1),
                "elements": Out(data.ArrayLayout(FP16, p.lanes)),
                "alpha": Out(FP16),
                "beta": Out(FP16),
                "key": Out(p.vector.vector_layout),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Fill a pair of memories a lane; read values, and keys some cycles behind them."""
        m = Module()
        p = self.parameters
        # A position never changes its lane: nothing has to be moved when it is kept.
        kept = [Signal(range(p.updates + 1), name=f"kept_{lane}") for lane in range(p.lanes)]
        read, lane, entry, cycle = self._walk(m, kept)
        # Keys are needed when alpha times the element is there: they are read that much later.
        behind = p.vector.multiply_stages + 1
        key_read = delay_line(m, read, behind, name="key_read", reset=True)[-1]
        key_lane, key_entry = (
            delay_line(m, which, behind, name=name)[-1]
            for name, which in (("key_lane", lane), ("key_entry", entry))
        )
        values, keys = [], []
        for index in range(p.lanes):
            width = p.vector.vector_layout.size
            m.submodules[f"values_{index}"] = value = Memory(depth=p.updates, width=width + 32)
            m.submodules[f"keys_{index}"] = key = Memory(depth=p.updates, width=width)
            factor = self.factors.lanes[index]
            content = Cat(Value.cast(self.vectors["values"][index]), factor.alpha, factor.beta)
            for memory, word, enable, address in (
                (value, content, read, entry),
                (key, Value.cast(self.vectors["keys"][index]), key_read, key_entry),
            ):
                m.d.comb += [
                    memory.write_enable.eq(self.store[index]),
                    memory.write_address.eq(kept[index]),
                    memory.write_data.eq(word),
                    memory.read_enable.eq(enable),
                    memory.read_address.eq(address),
                ]
            # Only counters are cleared: what stands behind them is never read.
            with m.If(self.clear):
                m.d.sync += kept[index].eq(0)
            with m.Elif(self.store[index]):
                m.d.sync += kept[index].eq(kept[index] + 1)
            values.append(value.read_data)
            keys.append(key.read_data)

        # The lane whose word stands at the memories' outputs.
        now = delay_line(m, lane, 1, name="value_of", enable=read)[-1]
        key_now = delay_line(m, key_lane, 1, name="key_of", enable=key_read)[-1]
        m.d.comb += Value.cast(self.key).eq(Array(keys)[key_now])
        self._elements(m, Array(values)[now], cycle)
        return m

    def _walk(self, m: Module, kept: list[Signal]) -> tuple[Value, ...]:
        """Go through all kept positions; return when which lane's which entry is read.

        And in which of a position's cycles the walk is.
        """
        p = self.parameters
        lane, entry = Signal(range(p.lanes)), Signal(range(p.updates))
        cycle, read = Signal(range(p.pass_cycles)), Signal()
        following = Signal(range(p.updates + 1))
        m.d.comb += following.eq(entry + 1)
        there = Array(kept)[lane]
        ends = cycle == p.pass_cycles - 1
        # A position's successor in its lane is read in its last cycle; a lane's end costs a cycle.
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
        m.d.comb += self.walks.eq(self.begin | ~fsm.ongoing("IDLE"))
        # A pass may be longer than there are groups, for the adders to write before the next reads.
        shown = fsm.ongoing("WALK") & (cycle < p.groups)
        m.d.sync += [self.shown.eq(shown), self.group.eq(cycle)]
        return read, lane, next_entry, cycle

    def _elements(self, m: Module, word: Value, cycle: Value) -> None:
        """Choose a group's elements out of a position's value, and keep them for a cycle."""
        p = self.parameters
        size = p.vector.head_size
        held = Signal(len(word))
        m.d.comb += held.eq(word)
        codes = [held[16 * index : 16 * index + 16] for index in range(size)]
        # The element behind a value's last is 1, which makes D, E and F columns like all others.
        codes += [Const(BINARY16.one, 16)] * (p.pass_cycles * p.lanes - size)
        for lane in range(p.lanes):
            m.d.sync += self.elements[lane].eq(Array(codes[lane :: p.lanes])[cycle])
        m.d.sync += [
            # Both coefficients stand behind the value in its word.
            self.alpha.eq(held[16 * size : 16 * size + 16]),
            self.beta.eq(held[16 * size + 16 :]),
        ]
