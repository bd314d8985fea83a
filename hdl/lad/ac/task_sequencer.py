"""The sequence of tasks of the AC module (Algorithm 2)."""

from amaranth.hdl import Const, Module, Mux, Signal, unsigned
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.unit import Unit


class Task(enum.Enum, shape=unsigned(2)):
    """What the adders of the AC module do.

    Members
    -------
    CORRECT : int
        AC.3: add the products of active positions, or wait for them.
    SETTLE : int
        Add the last products to their partial sums.
    COMBINE : int
        Add the partial sums and the mode-based part.
    UPDATE : int
        AC.5 to AC.8: update the columns of the caches.
    """

    CORRECT = 0
    SETTLE = 1
    COMBINE = 2
    UPDATE = 3


class TaskSequencer(Unit):
    """FSM of the AC module: it repeats the four tasks for each part of a step.

    The columns of the next step (AC.1, AC.2) are read while the sums of a step are combined. The
    division (AC.4) and the last writes of an update overlap with the next step's corrections.

    **Latency** one cycle from the end of a task to the next one. **Throughput** one step at a time,
    and the columns of the next one.

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
    begin : Out(1)
        The step begins: its columns are read.
    idle, complete : In(1)
        No columns are being read; the last mode-based parts are valid from the next cycle on.
    restart : Out(1)
        The stored positions have updated the caches; the next part or step follows.
    further : Out(1)
        The current part is not the first one of its step.
    ended, full : In(1)
        The last active positions of the step are accepted; the store for U has no room for the next
        ones.
    aligned : In(1)
        The partial sums can be combined from the next cycle on.
    combined : In(1)
        The partial sums are combined.
    passing : In(1)
        The vector units are in use by columns when an update that begins now would need them.
    update : Out(1)
        Begin to update the columns.
    updating : In(1)
        Columns are still to be updated.
    done : Out(1)
        The step's caches are updated and can be written out.
    free : In(1)
        The previous output has been transferred, and the first vector unit has no other operand.
    divide : Out(1)
        Multiply the numerator by the reciprocal of the denominator.
    divided : In(1)
        The products are valid.
    over : Out(1)
        The step is complete: caches and output.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = parameters
        steps = ("step", "loaded", "idle", "complete", "ended", "full")
        inputs = (*steps, "aligned", "combined", "passing", "updating", "free", "divided")
        outputs = ("begin", "restart", "further", "update", "done", "divide", "over")
        super().__init__(
            {"task": Out(Task)}
            | {name: In(1) for name in inputs}
            | {name: Out(1) for name in outputs}
        )

    def elaborate(self, platform: object) -> Module:
        """Sequence the tasks; the end of a step has counters of its own."""
        m = Module()
        p, task = self.parameters, self.task
        # Cycles until the first T products have replaced the adders' contents, or the last ones are
        # added; in `UPDATE` until the units have the last product.
        settles = p.product_latency + p.cache_stages
        left = Signal(range(max(settles, p.vector.multiply_stages) + 1), init=settles)
        idle, parted, begun = left == 0, Signal(), Signal()
        # Verilator rejects a comparison with a constant of ones only, which is always true.
        ones = p.pass_lead & (p.pass_lead + 1) == 0
        always = ones and p.pass_lead.bit_length() >= len(left)
        may_pass = Const(1) if always else left <= p.pass_lead
        # The mode-based part of the next combination is complete.
        based = Signal()
        closing, dividing = self._end(m, parted)
        ready = (based | self.further) & ~closing & ~dividing
        m.d.sync += left.eq(Mux(idle, 0, left - 1))
        with m.If(self.complete):
            m.d.sync += based.eq(1)
        # Stage 2 computes the maximum, the caches are loaded from outside: wait for both.
        may_begin = Signal()
        m.d.comb += self.begin.eq(self.step & self.loaded & self.idle & may_begin)
        with m.Switch(task):
            with m.Case(Task.CORRECT):
                # The maximum of the step is needed until its last positions are accepted.
                m.d.comb += may_begin.eq(~based & ~self.further)
                with m.If(self.ended | self.full):
                    with m.If(left < p.product_latency + 1):
                        m.d.sync += left.eq(p.product_latency + 1)
                    m.d.sync += [parted.eq(self.full), task.eq(Task.SETTLE)]
            with m.Case(Task.SETTLE):
                # The part in use is added before the next step's parts are valid.
                m.d.comb += may_begin.eq(~parted & ready & (based != self.further) & may_pass)
                with m.If(idle & self.aligned & ready):
                    m.d.sync += [begun.eq(0), task.eq(Task.COMBINE)]
                    with m.If(~self.further):
                        m.d.sync += based.eq(0)
            with m.Case(Task.COMBINE):
                m.d.comb += may_begin.eq(~parted & ~based)
                with m.If(self.combined):
                    m.d.sync += task.eq(Task.UPDATE)
            with m.Case(Task.UPDATE):
                with m.If(~begun):
                    m.d.comb += self.update.eq(~self.passing)
                    m.d.sync += [begun.eq(~self.passing), left.eq(p.vector.multiply_stages)]
                with m.Elif(self.updating):
                    m.d.sync += left.eq(p.vector.multiply_stages)
                with m.Elif(idle):
                    m.d.comb += self.restart.eq(1)
                    m.d.sync += [
                        self.further.eq(parted),
                        left.eq(settles),
                        task.eq(Task.CORRECT),
                    ]
        return m

    def _end(self, m: Module, parted: Signal) -> tuple[Signal, Signal]:
        """Complete the update and the output of a step; return whether they are in progress."""
        p = self.parameters
        final = self.combined & ~parted
        # The last column is written this long after the end of the task `UPDATE`.
        written = p.product_latency + p.cache_stages
        closing, closes = Signal(), Signal(range(written + 1))
        m.d.sync += closes.eq(Mux(closes == 0, 0, closes - 1))
        m.d.comb += self.done.eq(closing & (closes == 0))
        with m.If(self.restart & ~parted):
            m.d.sync += [closing.eq(1), closes.eq(written)]
        with m.Elif(self.done):
            m.d.sync += closing.eq(0)
        # The reciprocal is valid: the sums are registered once to be rounded.
        valid = p.reciprocal_stages + 2
        dividing, offered, waits = Signal(), Signal(), Signal(range(valid + 1))
        m.d.sync += waits.eq(Mux(waits == 0, 0, waits - 1))
        m.d.comb += self.divide.eq(offered & (waits == 0) & self.free)
        with m.If(final):
            m.d.sync += [dividing.eq(1), offered.eq(1), waits.eq(valid)]
        with m.Else():
            with m.If(self.divide):
                m.d.sync += offered.eq(0)
            with m.If(self.divided):
                m.d.sync += dividing.eq(0)
        updates = Signal()
        with m.If(final):
            m.d.sync += updates.eq(1)
        with m.Elif(self.done):
            m.d.sync += updates.eq(0)
        m.d.comb += self.over.eq(
            (updates | dividing) & (~updates | self.done) & (~dividing | self.divided)
        )
        return closing, dividing
