"""Data-path operators: the one place where `stages` and `enable` mean something.

An operator is written as a combinational chain with a few cut points. How many pipeline registers
stand at which cut follows from `stages` alone, so every operator pipelines by the same rule.
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
    """A unit with plain ports and a fixed latency of `stages` cycles, one result a cycle.

    Validity is the user's business: the data registers have no reset.

    Parameters
    ----------
    members : Mapping[str, Member]
        The operands and results.
    stages : int
        Pipeline stages between operands and results, 0 (combinational) to 64.
    enable : bool
        Whether there is an input `enable`, and the registers move only in cycles in which it is 1.

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
        """Return the operator's registers, to be placed by `cuts` calls of `Pipeline.cut`."""
        return Pipeline(m, stages=self.stages, cuts=cuts, enable=getattr(self, "enable", None))


class Pipeline:
    """`stages` pipeline registers spread evenly over the cut points of one operator.

    The last cut is the output; it is the first to be registered, so a single stage always means a
    registered result. Where there are more stages than cuts, registers stand back to back and a
    retiming tool may move them.

    Parameters
    ----------
    m : Module
        Where the registers go.
    stages : int
        Registers from the operator's inputs to its outputs.
    cuts : int
        Number of calls of `cut` that follow.
    enable : Value, optional
        The registers move only in cycles in which it is 1; always, if omitted.
    """

    def __init__(self, m: Module, *, stages: int, cuts: int, enable: Value | None = None) -> None:
        self._m = m
        self._enable = enable
        # Rounded down, so that the last cut is the first to have a register.
        edges = [stages * cut // cuts for cut in range(cuts + 1)]
        self._cuts = enumerate((after - before for before, after in pairwise(edges)), start=1)

    def cut(self, *values: ValueLike) -> tuple[Value, ...]:
        """Return the values behind this cut's registers, which may be none."""
        # How many registers each cut has was settled when the pipeline was made.
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
        """Give a value a name, so that what reads it does not repeat its expression."""
        if isinstance(value, Const | Signal):
            return value
        wire = Signal(value.shape(), name=name)
        self._m.d.comb += wire.eq(value)
        return wire
