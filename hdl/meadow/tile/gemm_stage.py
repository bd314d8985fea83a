"""Stage Q of a TPHS pipeline, whose parallel PEs also run GEMM mode (Section 3)."""

from functools import reduce
from operator import and_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import Out

from hdl.arith.adder_tree import tree_sum
from hdl.arith.delay_line import delay_line
from hdl.arith.requantiser import Requantiser
from hdl.arith.saturating_add import saturate
from hdl.arith.table_interpolation import look_up
from hdl.meadow.tile.element_parameters import GEMM_ONLY, OPERAND, PAIRED, ElementParts
from hdl.meadow.tile.group_counter import group_counter, group_position
from hdl.meadow.tile.parallel_processing_element import ParallelProcessingElement
from hdl.meadow.tile.tile_parameters import BASE_EXPONENT, HALVES, RESULT, TileParameters
from hdl.nonlinear.rotary_embedding import RotaryPair
from hdl.stream.collector import Collector
from hdl.stream.connect import buffered, connect_streams, fork_handshake, join_handshake
from hdl.stream.fifo import Fifo
from hdl.unit import Unit

REQUANTISER_STAGES = 5

LEAST_SPACING = 4
"""Cycles from pair to pair in which the queue of pairs holds those of a whole group's merge."""

ELEMENT_LATENCY = 6
"""Cycles from the last operands of a pass to its last sum, in which the next passes begin."""


class GemmStage(Unit):
    """Product of a token and an output tile of weights, in INT8 or 16 bits.

    An output tile is as many outputs as a head has elements. In TPHS it is a head of the query
    projection, and the result is the query that the next stage (QK) multiplies by the keys. In GEMM
    mode it is a part of any linear layer, and the result is output.

    One element computes each combination of a slice of the inner dimension and a half of the
    outputs. Both sums of a rotary pair are therefore complete in the same cycle, before rounding.

    With the parameter `biases`, a bias is added to each sum. The command selects whether the
    results are rotated by the token's position. With `tile_scales`, each pass has its own scale and
    shift. With `token_exponents`, the token's exponent is added to the shift, and a bias, which has
    the steps of `BASE_EXPONENT`, is shifted to those of the token.

    **Latency** 8 cycles from the last weights of a token to its result, 13 with the rotation.
    **Throughput** one word in ``size / 2 * slice_words`` cycles.

    Parameters
    ----------
    parameters : TileParameters
        Dimensions of a lane.

    Members
    -------
    lane : In(range(lanes))
        Index of the lane; a constant input, so that all lanes are the same module.
    command : In
        As in `HybridTile`.
    inputs : In(stream)
        The lane's token of each group.
    weights : In(stream)
        For each group the weights of the head, one pair of outputs at a time; `ready` does not
        depend on `valid`.
    biases : In(stream)
        Present with the parameter `biases`: for each group the biases of the head, one pair at a
        time.
    scales : In(stream)
        Present with the parameter `tile_scales`: for each group the scale and shift of the head.
    sums : Out(struct)
        Each pair of sums with biases, before rotation and rounding, valid in the cycle after it is
        complete.
    results : Out(stream)
        A word of results, or a query; the elements of a pair are adjacent.
    """

    def __init__(self, *, parameters: TileParameters) -> None:
        self.parameters = p = parameters
        super().__init__({**p.gemm_members, "results": Out(stream.Signature(p.lane_word_layout))})

    def elaborate(self, platform: object) -> Module:
        """Distribute operands, add the sums of the elements, rotate, requantise, collect."""
        m = Module()
        p = self.parameters
        # Each half has its own elements, or an element computes the sums of both halves, so that
        # both sums of a pair are ready in the same cycle.
        parts = PAIRED if p.shared_multipliers else GEMM_ONLY
        every_element = [
            self._element(m, half, part, parts)
            for half in range(HALVES // parts.outputs)
            for part in range(p.slices)
        ]
        exponents = self._spread(m, every_element)
        results = [element.results for element in every_element]
        m.submodules.words = words = Collector(
            shape=data.ArrayLayout(RESULT, HALVES), items=p.size // HALVES
        )
        # The queue cuts the ready path from the results. It accepts pairs while a word waits for
        # the words of other lanes.
        m.submodules.pairs = pairs = Fifo(
            shape=words.items.payload.shape(), depth=-(-p.lanes // LEAST_SPACING)
        )
        connect_streams(m, pairs.sink, words.items)
        pair = pairs.source
        move = Signal()
        # All stages downstream of the elements advance together, unless the queue is full.
        m.d.comb += move.eq(~pair.valid | pair.ready)
        # A buffer lets the lane accept multicast biases independently of its sums.
        biases = [buffered(m, "biases_held", self.biases, depth=2)] if p.biases else []
        # Operands of a whole pass: its scale, and the exponent of its token.
        scales = [buffered(m, "scales_held", self.scales, depth=2)] if p.tile_scales else []
        whole, pass_last = [*scales, *exponents], results[0].payload.last
        present = [operand.valid for operand in whole]
        joined = join_handshake(m, [*results, *biases], reduce(and_, present, move))
        valid = reduce(and_, present, joined)
        for operand in whole:
            m.d.comb += operand.ready.eq(valid & move & pass_last)
        exponent = exponents[0].payload if exponents else Const(0, 0)

        def shifted(bias: Value) -> Value:
            return bias << exponent >> BASE_EXPONENT if exponents else bias

        sums = [Signal(signed(p.gemm_bits), name=f"sum_{half}", reset_less=True) for half in "xy"]
        with m.If(move):
            for number, total in enumerate(sums):
                addends = self._partial(every_element, number)
                addends += [shifted(bias.payload.word[number]) for bias in biases]
                m.d.sync += total.eq(tree_sum(addends))
        # The strobe marks a new pair for one cycle, even if the register holds it longer.
        m.d.sync += self.sums.strobe.eq(valid & move)
        m.d.comb += [tap.eq(total) for tap, total in zip(self.sums.pair, sums, strict=True)]
        # Results that are not rotated take the same route, at position 0.
        rotated = self._rotated(m, sums, move, valid & move, pass_last)
        # The register of the sums and the rotation precede the requantiser.
        before = 1 + (p.rotation.stages if p.rotary else 0)
        own = scales[0].payload.word if scales else None
        scale, shift = (
            own[name] if own is not None else self.command[f"gemm_{name}"]
            for name in ("scale", "shift")
        )
        if scales:
            scale = delay_line(m, scale, before, name="scale", enable=move)[-1]
        if whole:
            shift = delay_line(m, shift + exponent, before, name="shift", enable=move)[-1]
        for half, value in enumerate(rotated):
            m.submodules[f"requantiser_{half}"] = requantiser = Requantiser(
                width=p.gemm_bits, stages=REQUANTISER_STAGES, enable=True
            )
            narrow, _saturated = saturate(requantiser.result, OPERAND)
            m.d.comb += [
                requantiser.enable.eq(move),
                requantiser.a.eq(value),
                requantiser.scale.eq(scale),
                requantiser.shift.eq(shift),
                pair.payload["item"][half].eq(Mux(self.command.wide, requantiser.result, narrow)),
            ]
        stages = before + REQUANTISER_STAGES
        arrived = delay_line(m, valid, stages, name="valid", enable=move, reset=True)[-1]
        m.d.comb += [
            pair.valid.eq(arrived),
            self.results.valid.eq(words.groups.valid),
            Value.cast(self.results.payload).eq(Value.cast(words.groups.payload["items"])),
            words.groups.ready.eq(self.results.ready),
        ]
        return m

    def _partial(self, elements: list[ParallelProcessingElement], half: int) -> list[Value]:
        """Return the sums of all slices for a half of the outputs."""
        values = [element.results.payload.value for element in elements]
        if self.parameters.shared_multipliers:
            return [value[half] for value in values]
        slices = self.parameters.slices
        return values[slices * half : slices * (half + 1)]

    def _element(
        self, m: Module, half: int, part: int, parts: ElementParts
    ) -> ParallelProcessingElement:
        """Add an element that multiplies a slice of the token by the weights of its outputs."""
        p = self.parameters
        # The buffer upstream of the lanes repeats the weights, which each pass uses once.
        element = ParallelProcessingElement(parameters=p.gemm_element, parts=parts)
        m.submodules[f"element_{half}_{part}"] = element
        m.d.comb += element.settings.last_word.eq(self.command.slice_words - 1)
        return element

    def _spread(
        self, m: Module, elements: list[ParallelProcessingElement]
    ) -> list[stream.Interface]:
        """Distribute slices of the token and weights to the elements; return the exponents."""
        p = self.parameters
        # All elements receive a word in the same transfer.
        inputs = [element.inputs for element in elements]
        exponents = []
        if p.token_exponents:
            # A token's exponent waits in a queue for the token's last result.
            item = self.inputs.payload
            m.submodules.exponents = queue = Fifo(
                shape=item.exponent.shape(), depth=2 + -(-ELEMENT_LATENCY // p.pairs)
            )
            taken = stream.Signature(0).create()
            m.d.comb += [
                taken.ready.eq(queue.source.ready | ~item.last),
                queue.source.valid.eq(taken.valid & item.last),
                queue.source.payload.eq(item.exponent),
            ]
            inputs.append(taken)
            exponents.append(queue.sink)
        weights = [element.weights for element in elements]
        m.d.comb += [
            self.inputs.ready.eq(fork_handshake(m, self.inputs.valid, inputs)),
            self.weights.ready.eq(fork_handshake(m, self.weights.valid, weights)),
        ]
        for number, element in enumerate(elements):
            # The halves share the token: the elements of both receive the same slices.
            own = self.inputs.payload.words[number % self.parameters.slices]
            words = [Value.cast(word) for word in self.weights.payload.word]
            m.d.comb += [
                element.inputs.payload.word.eq(own),
                element.inputs.payload.last.eq(self.inputs.payload.last),
                Value.cast(element.weights.payload.word).eq(Cat(words[number :: len(elements)])),
                element.weights.payload.last.eq(self.weights.payload.last),
            ]
        return exponents

    def _rotated(
        self, m: Module, sums: list[Signal], move: Value, taken: Value, last: Value
    ) -> list[Value]:
        """Return a pair of sums, rotated by the token's position if the unit rotates."""
        p = self.parameters
        if not p.rotary:
            return list(sums)
        rotation = p.rotation
        pairs = p.size // HALVES
        index = Signal(range(pairs))
        ends = taken & last
        group = group_counter(m, "first", self.command.tokens, p.lanes, ends=ends)
        position = Signal(rotation.position_bits, reset_less=True)
        turn = Signal(rotation.position_bits + 18, reset_less=True)
        with m.If(taken):
            m.d.sync += index.eq(index + 1)
            with m.If(last):
                m.d.sync += index.eq(0)
        m.submodules.rotation = rotate = RotaryPair(
            position_bits=rotation.position_bits,
            stages=rotation.stages,
            width=p.gemm_bits,
        )
        # Position and frequency have registers like the sums; the rotation by position 0 is exact.
        base = self.command.context - self.command.tokens + self.lane
        own = group_position(m, "own_position", base, group, p.lanes, ends=ends)
        with m.If(move):
            m.d.sync += [
                position.eq(Mux(self.command.rotate, own, 0)),
                turn.eq(look_up(list(rotation.turns), index)),
            ]
        m.d.comb += [
            rotate.enable.eq(move),
            rotate.position.eq(position),
            rotate.turn.eq(turn),
            rotate.x.eq(sums[0]),
            rotate.y.eq(sums[1]),
        ]
        return [rotate.x_rotated, rotate.y_rotated]
