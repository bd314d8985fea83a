"""4:2 compressor: the pair adds up for all inputs, and equals the model's pair."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import Out

from golden.arith.compressor import compressor
from hdl.arith.compressor import Compressor
from hdl.unit import Unit
from testbenches.arith.equivalence import prove_equivalent
from testbenches.arith.step import run_steps


class CompressorTotal(Unit):
    """A compressor followed by an adder."""

    def __init__(self, *, width: int, signed_operands: bool) -> None:
        self.compressor = Compressor(width=width, signed_operands=signed_operands)
        operands = self.compressor.signature.members["a"]
        super().__init__({"a": operands, "total": Out(width + 2), "carry_in": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Add the two words."""
        m = Module()
        m.submodules.compressor = self.compressor
        m.d.comb += [
            self.compressor.a.eq(self.a),
            self.total.eq(self.compressor.sum + self.compressor.carry),
            self.carry_in.eq(self.compressor.carry[0]),
        ]
        return m


@pytest.mark.parametrize(("width", "signed"), [(1, True), (6, True), (6, False), (24, True)])
def test_proved(width: int, signed: bool) -> None:
    """The sum of the outputs is the sum of the operands; the lowest carry bit is 0.

    The split of the sum is not specified, so the proof compares the total.
    """
    cast = "$signed" if signed else "$unsigned"
    operands = [f"{cast}(a[{i * width + width - 1}:{i * width}])" for i in range(4)]
    prove_equivalent(
        CompressorTotal(width=width, signed_operands=signed),
        f"""
        module specification(
          input [{4 * width - 1}:0] a, output [{width + 1}:0] total, output carry_in
        );
          wire {"signed" if signed else ""} [{width + 1}:0] sum = {" + ".join(operands)};
          assign total = sum;
          assign carry_in = 0;
        endmodule
        """,
    )


@pytest.mark.parametrize(("stages", "enable"), [(0, False), (1, True), (2, False), (5, True)])
def test_equals_model(stages: int, enable: bool) -> None:
    """Compare both words, for several numbers of stages."""
    operands = np.random.default_rng(stages).integers(-(1 << 23), 1 << 23, (50, 4))
    operands[0] = -(1 << 23)
    results = run_steps(Compressor(width=24, stages=stages, enable=enable), {"a": operands})
    total, carry = compressor(operands, width=24)
    assert np.array_equal(results["sum"], total)
    assert np.array_equal(results["carry"], carry)


def test_model_adds_up() -> None:
    """The model's pair is the sum modulo ``2**(width + 2)``."""
    operands = np.random.default_rng(1).integers(-32, 32, (500, 4))
    total, carry = compressor(operands, width=6)
    assert np.array_equal((total + carry) % 256, operands.sum(axis=-1) % 256)


def test_width_out_of_range() -> None:
    """The constructor reports the range."""
    with pytest.raises(ValueError, match="width must be an integer from 1 to 64, not 65"):
        Compressor(width=65)
