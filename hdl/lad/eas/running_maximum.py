"""The maximum of a step's scores, the paper's max_s."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_compare import FloatExtreme
from hdl.arith.float_format import BINARY16
from hdl.lad.eas.eas_parameters import AttentionScoreModuleParameters
from hdl.lad.fp16 import FP16
from hdl.unit import Unit

LOWEST = BINARY16.sign_mask | (BINARY16.infinity or 0)
"""Minus infinity, below every score."""


class RunningMaximum(Unit):
    """Compare the scores of a group pairwise, and their maximum with that of the previous groups.

    **Latency** ``ceil(log2(lanes)) + 1`` cycles from the last group to the result. **Throughput**
    one group per cycle. **Numerics** the maximum of IEEE 754: a NaN if any score is a NaN.

    Parameters
    ----------
    parameters : AttentionScoreModuleParameters
        Lanes and slots.

    Members
    -------
    enable : In(1)
        The registers load.
    valid, ends : In(1)
        `scores` are valid; they are those of the step's last group.
    length : In
        Number of positions of the step.
    scores : In(ArrayLayout(16, lanes))
        Scores in FP16, `LOWEST` in lanes without a position.
    found : Out(1)
        `result` is valid.
    result : Out(step_layout)
        `length` and `maximum` of the step.
    """

    def __init__(self, *, parameters: AttentionScoreModuleParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "enable": In(1),
                "valid": In(1),
                "ends": In(1),
                "length": In(p.apid.step_layout.members["length"]),
                "scores": In(data.ArrayLayout(FP16, p.apid.lanes)),
                "found": Out(1),
                "result": Out(p.apid.step_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Compare in a tree with a register per level."""
        m = Module()
        move, depth = self.enable, 0
        level = [Value.cast(self.scores[lane]) for lane in range(self.parameters.apid.lanes)]
        while len(level) > 1:
            # A lane without a partner moves to the next level unchanged.
            odd = level[len(level) & ~1 :]
            pairs = []
            for index in range(len(level) // 2):
                m.submodules[f"larger_{depth}_{index}"] = larger = FloatExtreme(
                    maximum=True, stages=1, enable=True
                )
                m.d.comb += [
                    larger.enable.eq(move),
                    Value.cast(larger.a).eq(level[2 * index]),
                    Value.cast(larger.b).eq(level[2 * index + 1]),
                ]
                pairs.append(Value.cast(larger.result))
            level = pairs + [
                delay_line(m, one, 1, name=f"odd_{depth}", enable=move)[-1] for one in odd
            ]
            depth += 1
        valid = delay_line(m, self.valid, depth, name="valid", enable=move, reset=True)[-1]
        ends = delay_line(m, self.ends, depth, name="ends", enable=move)[-1]
        so_far, begins = Signal(FP16, reset_less=True), Signal(init=1)
        m.submodules.largest = largest = FloatExtreme(maximum=True)
        # The maximum is registered: APID subtracts it in the cycle in which it arrives.
        m.d.comb += [
            Value.cast(largest.a).eq(level[0]),
            Value.cast(largest.b).eq(Mux(begins, LOWEST, so_far)),
            self.found.eq(
                delay_line(m, valid & ends, 1, name="found", enable=move, reset=True)[-1]
            ),
            self.result.length.eq(
                delay_line(m, self.length, depth + 1, name="length", enable=move)[-1]
            ),
            self.result.maximum.eq(so_far),
        ]
        with m.If(valid & move):
            m.d.sync += [so_far.eq(Value.cast(largest.result)), begins.eq(ends)]
        return m
