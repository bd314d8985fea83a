"""Announcement of the positions of the banks at which a step of P3-LLM will begin a run."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.p3llm.parameters import KEY_SET
from hdl.p3llm.pim.dot_product import PE_LANES
from hdl.shell.p3llm_axi_parameters import P3llmAxiParameters
from hdl.unit import Unit


class Awaited(enum.Enum, shape=3):
    """What is announced next, or what must be accessed before.

    Members
    -------
    NOTHING
        Nothing until the next step.
    KEYS, VALUES, HEAD
        The keys of a head, then its values, at the set of the token; an access to these keys.
    NORM, SECOND_NORM
        The weights of the second norm; an access to them.
    STEP
        The first position of the next step, when its instruction has arrived.
    """

    NOTHING = 0
    KEYS = 1
    VALUES = 2
    HEAD = 3
    NORM = 4
    SECOND_NORM = 5
    STEP = 6


class ComingPositions(Unit):
    """Announce each position at which the run of a step's matrices is interrupted.

    The matrices of a layer are one run of positions. Between them a layer accesses, head by head,
    the sets of keys and values into which it writes those of the token, and the weights of the
    second norm. After them follows the next step. The keys and values of a head are announced when
    those of the head before are accessed. A wrong announcement costs a read and no more: of several
    requests, only the first one's are announced.

    **Latency** 1 cycle. **Throughput** one position per cycle.

    Parameters
    ----------
    parameters : P3llmAxiParameters
        Dimensions of the accelerator.

    Members
    -------
    starts : In(1)
        A step starts: `step`.
    step : In(struct)
        As `instructions` of `P3llm`.
    follows : In(1)
        The next instruction has arrived: `step`.
    access : In(struct)
        The access of this cycle, if it is `valid`, and its `position`.
    positions : Out(stream)
        The announced positions; the next step may replace one that is not accepted.
    """

    def __init__(self, *, parameters: P3llmAxiParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "starts": In(1),
                "step": In(p.p3llm.instruction_layout),
                "follows": In(1),
                "access": In(self.access_layout(p)),
                "positions": Out(stream.Signature(p.position_bits)),
            }
        )

    @staticmethod
    def access_layout(p: P3llmAxiParameters) -> data.StructLayout:
        """Return the layout of an access."""
        return data.StructLayout({"valid": 1, "position": p.position_bits})

    def elaborate(self, platform: object) -> Module:
        """Announce a position, then wait for the access before the next announcement."""
        m = Module()
        p, bits = self.parameters.p3llm, self.parameters.position_bits
        awaited, base, head = Signal(Awaited), Signal(bits), Signal(range(p.head_rounds + 1))
        keys, values, norm = (Signal(bits, name=name) for name in ("keys", "values", "norm"))
        first = Signal(bits)
        # The LM head is stored after the last layer.
        m.d.comb += first.eq(self.step.layer * p.layer_positions)
        announced, accepted = self.positions, Signal()
        m.d.comb += [accepted.eq(announced.ready), norm.eq(base + p.norm_bases[1])]

        def accessed(position: Value) -> Value:
            return self.access.valid & (self.access.position == position)

        with m.Switch(awaited):
            with m.Case(Awaited.KEYS):
                m.d.comb += [announced.valid.eq(1), announced.payload.eq(keys)]
                with m.If(accepted):
                    m.d.sync += awaited.eq(Awaited.VALUES)
            with m.Case(Awaited.VALUES):
                m.d.comb += [announced.valid.eq(1), announced.payload.eq(values)]
                with m.If(accepted):
                    m.d.sync += awaited.eq(Awaited.HEAD)
            with m.Case(Awaited.HEAD):
                with m.If(accessed(keys)):
                    m.d.sync += [
                        head.eq(head + 1),
                        keys.eq(keys + p.head_keys),
                        values.eq(values + p.head_values),
                        awaited.eq(
                            Mux(head == p.head_rounds - 1, Awaited.NORM.value, Awaited.KEYS.value)
                        ),
                    ]
            with m.Case(Awaited.NORM):
                m.d.comb += [announced.valid.eq(1), announced.payload.eq(norm)]
                with m.If(accepted):
                    m.d.sync += awaited.eq(Awaited.SECOND_NORM)
            with m.Case(Awaited.SECOND_NORM):
                with m.If(accessed(norm)):
                    m.d.sync += awaited.eq(Awaited.STEP)
            with m.Case(Awaited.STEP):
                m.d.comb += [announced.valid.eq(self.follows), announced.payload.eq(first)]
                with m.If(accepted & self.follows):
                    m.d.sync += awaited.eq(Awaited.NOTHING)
        token = self.step.position[0]
        key_set = token[ceil_log2(p.block * KEY_SET) :] * p.key_set
        value_set = token[ceil_log2(p.elements * PE_LANES) :] * p.value_set
        with m.If(self.starts):
            m.d.sync += [
                base.eq(first),
                head.eq(0),
                keys.eq(first + p.key_base(0) + key_set),
                values.eq(first + p.value_base(0) + value_set),
                awaited.eq(Awaited.KEYS),
            ]
            if p.vocabulary_size:
                with m.If(self.step.layer == p.layers):
                    m.d.sync += awaited.eq(Awaited.STEP)
        return m
