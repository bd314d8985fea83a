"""Simulators compute correctly where a Verilog compiler had known errors."""

from pathlib import Path

from amaranth.hdl import Module
from amaranth.lib.wiring import In, Out

from hdl.emit import Emission, write_verilog
from hdl.unit import Unit
from testbenches.runner import Request, run_testbench


class NestedShifts(Unit):
    """Shift a value twice by one bit each: the sum of the amounts needs one more bit."""

    def __init__(self) -> None:
        amounts = {"first": In(1), "second": In(1)}
        super().__init__({"value": In(4), **amounts, "left": Out(4), "right": Out(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [
            self.left.eq((self.value << self.first) << self.second),
            self.right.eq((self.value >> self.first) >> self.second),
        ]
        return m


def test_nested_shifts_add_their_amounts(tmp_path: Path) -> None:
    emission = Emission(top=NestedShifts(), name="nested_shifts")
    result = run_testbench(
        top="nested_shifts",
        preset="test",
        parameters=None,
        testbench="tests.testbenches.tb_nested_shifts",
        ports=emission.modules[-1].ports,
        verilog=write_verilog(emission, tmp_path / "rtl")[:-1],
        home=tmp_path,
        request=Request(seed=1),
    )
    assert result.passed, result.first_failure
