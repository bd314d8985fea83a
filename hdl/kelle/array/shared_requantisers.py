"""Requantisers that several lanes of the array share, and the totals that wait for them.

Section 5.2 of the paper. The lanes complete the totals of a vector one cycle after another, and the
array completes vectors rarely: one per pass over the slices of its operand. A requantiser therefore
follows a vector down some neighbouring lanes, and the next requantiser continues.
"""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.requantiser import Requantiser
from hdl.kelle.array.matrix_parameters import RESULT, SCALE, MatrixUnitParameters
from hdl.memory.memory import Memory
from hdl.unit import Unit


@dataclass(frozen=True)
class Turn:
    """A vector at the lanes of a requantiser: lane `number` is read while `active`."""

    active: Value
    number: Signal
    ends: Value
    scale: Value  # Word of the scales.
    place: Value  # Place of the vector's totals in the memories of the lanes.


class SharedRequantisers(Unit):
    """Requantise the totals of vectors in order, lane by lane.

    The totals wait in one memory per lane, and the headers in another one, each with room for
    `held` vectors. The consumer of `started` counts the free places.

    **Latency** 4 cycles and `stages` from lane 0's total to its result, if no earlier vector waits;
    lane i's result i cycles after lane 0's, the aligned results with the last lane's.
    **Throughput** one vector per `spacing` cycles, in bursts of up to `held` vectors.

    **Numerics** as in `Requantiser`.

    Parameters
    ----------
    parameters : MatrixUnitParameters
        Dimensions of array and output stage.

    Members
    -------
    accepted : In
        `header` of a vector whose totals will be complete, in order; written while `valid`.
    ended : In(1)
        Lane 0's total of the next vector is complete in this cycle, lane i's i cycles later.
    totals : In(ArrayLayout(total, rows))
        The totals.
    scales : In
        A word of scales to store while `scales_valid`.
    scales_valid : In(1)
        Whether `scales` is valid.
    started : Out(1)
        A vector's place is free for a vector that is accepted later.
    coming, lanes, results : Out
        As in `MatrixUnit`.
    """

    def __init__(self, *, parameters: MatrixUnitParameters) -> None:
        p = self.parameters = parameters
        accepted = data.StructLayout({"header": p.total_layout, "valid": 1})
        super().__init__(
            {
                "accepted": In(accepted),
                "ended": In(1),
                "totals": In(data.ArrayLayout(p.accumulator.shape, p.rows)),
                "scales": In(p.scales_layout),
                "scales_valid": In(1),
                "started": Out(1),
                "coming": Out(p.coming_layout),
                "lanes": Out(data.ArrayLayout(RESULT, p.rows)),
                "results": Out(p.result_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Pass a vector from requantiser to requantiser, and collect its results."""
        m = Module()
        p = self.parameters
        groups = p.rows // p.shared
        begins, header, place = self._start(m)
        total_places = delay_line(
            m, self._ring(m, "total_place", self.ended), p.rows - 1, name="total_place"
        )
        ended = delay_line(m, self.ended, p.rows - 1, name="ended", reset=True)

        # `coming` is one cycle earlier than lane 0's result.
        latency = 2 + p.stages
        users = delay_line(m, header.user, latency - 1, name="coming_user")
        comes = delay_line(m, begins, latency - 1, name="coming_valid", reset=True)
        m.d.comb += [self.coming.user.eq(users[-1]), self.coming.valid.eq(comes[-1])]
        user = Signal(p.user_width, name="user", reset_less=True)
        with m.If(self.coming.valid):
            m.d.sync += user.eq(self.coming.user)

        scale: Value = header.scale
        values: Value = Cat()
        for group in range(groups):
            turn = self._turn(m, group, begins, scale, place)
            lanes = range(group * p.shared, (group + 1) * p.shared)
            result = self._requantise(m, turn, lanes, ended, total_places)
            # The group's last results; with those of the groups above they are aligned.
            recent = Signal((p.shared - 1) * 16, name=f"recent_{group}", reset_less=True)
            m.d.sync += recent.eq(Cat(recent, result)[16:])
            values = Cat(values, recent, result)
            complete = delay_line(m, turn.ends, latency, name=f"complete_{group}", reset=True)[-1]
            if group == groups - 1:
                m.d.comb += [
                    self.results["values"].eq(values),
                    self.results.user.eq(user),
                    self.results.valid.eq(complete),
                ]
                break
            # The vector moves to the next requantiser.
            begins = Signal(name=f"begins_{group + 1}")
            next_scale = Signal.like(scale, name=f"scale_{group + 1}", reset_less=True)
            next_place = Signal.like(place, name=f"place_{group + 1}", reset_less=True)
            next_user = Signal.like(user, name=f"user_{group + 1}", reset_less=True)
            above = Signal(len(values), name=f"above_{group + 1}", reset_less=True)
            m.d.sync += begins.eq(turn.ends)
            with m.If(turn.ends):
                m.d.sync += [next_scale.eq(scale), next_place.eq(place)]
            with m.If(complete):
                m.d.sync += [above.eq(values), next_user.eq(user)]
            scale, place, user, values = next_scale, next_place, next_user, above
        return m

    def _ring(self, m: Module, name: str, moves: Value) -> Signal:
        """Return a place that moves to the next of `held` places."""
        held = self.parameters.held
        place = Signal(range(held), name=name)
        with m.If(moves):
            m.d.sync += place.eq(Mux(place == held - 1, 0, place + 1))
        return place

    def _start(self, m: Module) -> tuple[Signal, data.View, Signal]:
        """Start the vectors in order; return when one begins, its header and its place.

        A vector begins one cycle after its start, because its header is read from a memory. The
        header is valid until the next vector begins.
        """
        p = self.parameters
        m.submodules.headers = headers = Memory(depth=p.held, width=p.total_layout.size)
        waiting, rest = Signal(range(p.held + 1)), Signal(range(p.spacing))
        starts, begins = self.started, Signal()
        next_place = self._ring(m, "next_place", starts)
        place = Signal.like(next_place, name="place", reset_less=True)
        m.d.comb += [
            starts.eq((waiting != 0) & (rest == 0)),
            headers.write_enable.eq(self.accepted.valid),
            headers.write_address.eq(self._ring(m, "accepted_place", self.accepted.valid)),
            headers.write_data.eq(self.accepted.header),
            headers.read_enable.eq(starts),
            headers.read_address.eq(next_place),
        ]
        m.d.sync += [
            waiting.eq(waiting + self.ended - starts),
            begins.eq(starts),
        ]
        with m.If(starts):
            m.d.sync += [rest.eq(p.spacing - 1), place.eq(next_place)]
        with m.Elif(rest != 0):
            m.d.sync += rest.eq(rest - 1)
        return begins, data.View(p.total_layout, headers.read_data), place

    def _turn(self, m: Module, group: int, begins: Signal, scale: Value, place: Value) -> Turn:
        """Count the lanes of a requantiser from the beginning of a vector on."""
        shared = self.parameters.shared
        number = Signal(range(shared), name=f"turn_{group}")
        active = begins | (number != 0)
        ends = active & (number == shared - 1)
        if shared > 1:
            with m.If(active):
                m.d.sync += number.eq(number + 1)
        return Turn(active, number, ends, scale, place)

    def _requantise(
        self,
        m: Module,
        turn: Turn,
        lanes: range,
        ended: tuple[Value, ...],
        places: tuple[Value, ...],
    ) -> Value:
        """Store the totals and scales of some lanes, and requantise one lane's per cycle."""
        p = self.parameters
        totals, factors = [], []
        for lane in lanes:
            held = Memory(depth=p.held, width=p.accumulator.width)
            scales = Memory(depth=p.scales, width=SCALE.size)
            m.submodules[f"totals_{lane}"], m.submodules[f"scales_{lane}"] = held, scales
            reads = turn.active & (turn.number == lane - lanes.start)
            word = self.scales["values"][lane]
            m.d.comb += [
                held.write_enable.eq(ended[lane]),
                held.write_address.eq(places[lane]),
                held.write_data.eq(self.totals[lane]),
                held.read_enable.eq(reads),
                held.read_address.eq(turn.place),
                scales.write_enable.eq(self.scales_valid),
                scales.write_address.eq(self.scales.address),
                scales.write_data.eq(Cat(word.scale, word.shift)),
                scales.read_enable.eq(reads),
                scales.read_address.eq(turn.scale),
            ]
            totals.append(held.read_data)
            factors.append(scales.read_data)
        number = lanes.start // p.shared
        requantiser = Requantiser(width=p.accumulator.width, stages=p.stages)
        m.submodules[f"requantiser_{number}"] = requantiser
        # A register between the selection of a lane and the product.
        selected = Signal.like(turn.number, name=f"selected_{number}", reset_less=True)
        total = Signal(p.accumulator.width, name=f"total_{number}", reset_less=True)
        factor = Signal(SCALE, name=f"factor_{number}", reset_less=True)
        m.d.sync += [
            selected.eq(turn.number),
            total.eq(Array(totals)[selected]),
            factor.eq(Array(factors)[selected]),
        ]
        m.d.comb += [
            requantiser.a.eq(total),
            requantiser.scale.eq(factor.scale),
            requantiser.shift.eq(factor.shift),
            *(self.lanes[lane].eq(requantiser.result) for lane in lanes),
        ]
        return requantiser.result
