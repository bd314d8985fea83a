"""Datapath operators with a common interpretation of `stages` and `enable`.

An operator is described as a combinational chain with a few cut points. `stages` alone determines
the number of pipeline registers at each cut, so every operator is pipelined by the same rule.
"""

from collections.abc import Mapping
from itertools import pairwise

from amaranth.hdl import Const, Module, Signal, Value, ValueLike
from amaranth.lib.wiring import In, Member

from hdl.arith.delay_line import delay_line
from hdl.parameters import require_choice, require_range
from hdl.unit import Unit

DEEPEST = 64
"""The largest number of pipeline stages an operator accepts."""


class Operator(Unit):
    """A unit with plain ports, a fixed latency of `stages` cycles and one result per cycle.

    Callers track validity themselves: the data registers have no reset.

    Parameters
    ----------
    members : Mapping[str, Member]
        Members of the operands and results.
    stages : int
        Pipeline stages between operands and results, 0 (combinational) to 64.
    enable : bool
        Add the input `enable`; the registers load only in cycles in which it is 1.

    Raises
    ------
    ValueError
        If `stages` or `enable` is illegal.
    """

    def __init__(self, members: Mapping[str, Member], *, stages: int, enable: bool) -> None:
        require_range("stages", stages, 0, DEEPEST)
        require_choice("enable", enable, (False, True))
        self.stages = stages
        super().__init__(({"enable": In(1)} if enable else {}) | dict(members))

    def pipeline(self, m: Module, *, cuts: int) -> "Pipeline":
        """Return the operator's registers, which `cuts` calls of `Pipeline.cut` distribute."""
        return Pipeline(m, stages=self.stages, cuts=cuts, enable=getattr(self, "enable", None))


class Pipeline:
    """`stages` pipeline registers spread evenly over the cut points of one operator.

    The last cut is the output and is registered first, so a single stage always registers the
    result. With more stages than cuts, registers are back to back and a retiming tool may move
    them.

    Parameters
    ----------
    m : Module
        Module that receives the registers.
    stages : int
        Number of registers from the operator's inputs to its outputs.
    cuts : int
        Number of calls of `cut`.
    enable : Value, optional
        Registers load only in cycles in which it is 1; in every cycle if omitted.
    """

    def __init__(self, m: Module, *, stages: int, cuts: int, enable: Value | None = None) -> None:
        self._m = m
        self._enable = enable
        # Rounding down makes the last cut the first to receive a register.
        edges = [stages * cut // cuts for cut in range(cuts + 1)]
        self._cuts = enumerate((after - before for before, after in pairwise(edges)), start=1)

    def cut(self, *values: ValueLike) -> tuple[Value, ...]:
        """Return the values after this cut's registers, of which there may be none."""
        # The number of registers per cut was fixed in the constructor.
        number, stages = next(self._cuts)
        wires = (
            self._wire(Value.cast(value), f"cut_{number}_{index}")
            for index, value in enumerate(values)
        )
        lines = (
            delay_line(self._m, wire, stages, name=f"stage_{number}_{index}", enable=self._enable)
            for index, wire in enumerate(wires)
        )
        return tuple(line[-1] for line in lines)

    def _wire(self, value: Value, name: str) -> Value:
        """Assign a value to a named signal, so that its uses do not repeat its expression."""
        if isinstance(value, Const | Signal):
            return value
        wire = Signal(value.shape(), name=name)
        self._m.d.comb += wire.eq(value)
        return wire
