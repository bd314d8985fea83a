"""The sequence of tasks of the AC module in each step (Algorithm 2)."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.unit import Unit


class Task(enum.Enum, shape=unsigned(3)):
    """What the lanes of the AC module do.

    Members
    -------
    WAIT : int
        Nothing: the next step or its caches are missing.
    COLUMNS : int
        AC.1 and AC.2: multiply the query by the columns of the caches.
    CORRECT : int
        AC.3: accept active positions.
    SETTLE : int
        Add the last products to their partial sums.
    COMBINE : int
        Add the partial sums.
    UPDATE : int
        AC.5 to AC.8: update the columns of the caches. If active positions are left, `CORRECT`
        follows.
    OUTPUT : int
        AC.4: multiply the numerator by the reciprocal of the denominator.
    """

    WAIT = 0
    COLUMNS = 1
    CORRECT = 2
    SETTLE = 3
    COMBINE = 4
    UPDATE = 5
    OUTPUT = 6


class TaskSequencer(Unit):
    """FSM of the AC module: one task after another, each until its pipelines are empty.

    **Latency** one cycle from the end of a task to the next one. **Throughput** one step at a time.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Number of columns and latencies.

    Members
    -------
    task : Out(Task)
        The current task.
    step, loaded : In(1)
        A step is available; its caches are loaded.
    begin, done : Out(1)
        The step begins; it is done, and its caches can be written out.
    read, group : Out
        Read this group of columns.
    restart : Out(1)
        The stored positions have updated the caches; the next part of the step begins.
    ended, full : In(1)
        The last active positions of the step are accepted; the store for U has no room for the next
        ones.
    aligned : In(1)
        The partial sums can be combined from the next cycle on.
    combined : In(1)
        The partial sums are combined; the update begins.
    updating : In(1)
        Columns are still to be updated.
    free : In(1)
        The previous output has been transferred.
    divide : Out(1)
        Multiply the numerator by the reciprocal of the denominator.
    divided : In(1)
        The products are valid.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = p = parameters
        steps = ("step", "loaded", "ended", "full")
        inputs = (*steps, "aligned", "combined", "updating", "free", "divided")
        outputs = ("begin", "restart", "done", "read", "divide")
        super().__init__(
            {"task": Out(Task), "group": Out(p.group_shape)}
            | {name: In(1) for name in inputs}
            | {name: Out(1) for name in outputs}
        )

    def elaborate(self, platform: object) -> Module:
        """Count the cycles of the tasks whose length is fixed."""
        m = Module()
        p, task = self.parameters, self.task
        # All columns are read, the vector units are free, and all adders have output zeros.
        length = max(p.groups + 2, p.cache_stages)
        cycle = Signal(range(length))
        # Remaining cycles until the pipelines are empty after the task's last operand.
        left = Signal(range(max(p.settle_cycles, p.drain_cycles) + 1))
        idle, parted = left == 0, Signal()
        m.d.sync += [left.eq(Mux(idle, 0, left - 1)), self.divide.eq(0)]
        with m.Switch(task):
            # Stage 2 computes the maximum, the caches are loaded from outside: wait for both.
            with m.Case(Task.WAIT):
                m.d.sync += cycle.eq(0)
                m.d.comb += self.begin.eq(self.step & self.loaded)
                with m.If(self.begin):
                    m.d.sync += task.eq(Task.COLUMNS)
            with m.Case(Task.COLUMNS):
                m.d.sync += cycle.eq(cycle + 1)
                m.d.comb += [self.read.eq(cycle < p.groups), self.group.eq(cycle)]
                with m.If(cycle == length - 1):
                    m.d.sync += [left.eq(p.settle_cycles), task.eq(Task.CORRECT)]
            # Positions are accepted while the last columns are in the vector units.
            with m.Case(Task.CORRECT), m.If(self.ended | self.full):
                with m.If(left < p.product_latency + 1):
                    m.d.sync += left.eq(p.product_latency + 1)
                m.d.sync += [parted.eq(self.full), task.eq(Task.SETTLE)]
            with m.Case(Task.SETTLE), m.If(idle & self.aligned):
                m.d.sync += task.eq(Task.COMBINE)
            with m.Case(Task.COMBINE), m.If(self.combined):
                m.d.sync += [left.eq(p.drain_cycles), task.eq(Task.UPDATE)]
            # Until the last column is written and the reciprocal is valid.
            with m.Case(Task.UPDATE):
                with m.If(self.updating):
                    m.d.sync += left.eq(p.drain_cycles)
                with m.Elif(idle & parted):
                    m.d.comb += self.restart.eq(1)
                    m.d.sync += task.eq(Task.CORRECT)
                with m.Elif(idle & self.free):
                    m.d.sync += [self.divide.eq(1), task.eq(Task.OUTPUT)]
            with m.Case(Task.OUTPUT), m.If(self.divided):
                m.d.comb += self.done.eq(1)
                m.d.sync += task.eq(Task.WAIT)
        return m
