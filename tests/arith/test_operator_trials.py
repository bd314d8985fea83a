"""Every operator that units use, against its model, with hard operands of its whole contract."""

from hdl.arith.float_add import FloatAdd
from hdl.arith.float_compare import FloatCompare, FloatExtreme
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_divide import FloatDivide, FloatReciprocal
from hdl.arith.float_exp import Domain, FloatExp
from hdl.arith.float_format import BINARY16, BINARY32
from hdl.arith.float_multiply import FloatMultiply
from hdl.arith.float_normal_add import FloatNormalAdd
from hdl.arith.float_normal_multiply import FloatNormalMultiply
from hdl.arith.float_sqrt import FloatReciprocalSqrt, FloatSqrt
from hdl.arith.float_to_fixed import FloatToFixed
from hdl.arith.integer_to_float import IntegerToFloat
from hdl.arith.leading_zeros import LeadingZeros
from hdl.arith.operator import Operator
from hdl.arith.requantiser import Requantiser
from hdl.arith.saturating_add import SaturatingAdd
from hdl.arith.takagi_reciprocal import TakagiReciprocal
from hdl.p3llm.npu.epsilon_steps import EpsilonSteps
from hdl.p3llm.quantisers.scaled_quotient import E4M3_STEPS, INT4_STEPS, ScaledQuotient
from testbenches.arith.bank import run_bank
from testbenches.arith.operator_trials import TRIALS, trial

OPERATORS: dict[str, Operator] = {
    "add": FloatAdd(stages=2),
    "add_or_subtract": FloatAdd(number_format=BINARY32, subtractor=True, saturate=True),
    "compare": FloatCompare(),
    "narrow": FloatConvert(source=BINARY32, target=BINARY16, stages=1),
    "widen": FloatConvert(source=BINARY16, target=BINARY32),
    "epsilon": EpsilonSteps(width=576, stages=1),
    "divide": FloatDivide(stages=3),
    "divide_from_one": FloatDivide(divisor_from_one=True),
    "exp": FloatExp(stages=2),
    "exp_nonpositive": FloatExp(domain=Domain.NONPOSITIVE),
    "extreme": FloatExtreme(maximum=True),
    "multiply": FloatMultiply(stages=3),
    "multiply_longer": FloatMultiply(extra_bits=3, exact=True),
    "normal_add": FloatNormalAdd(stages=3),
    "normal_multiply": FloatNormalMultiply(),
    "reciprocal": FloatReciprocal(),
    "reciprocal_sqrt": FloatReciprocalSqrt(),
    "sqrt": FloatSqrt(),
    "to_fixed": FloatToFixed(stages=2),
    "from_integer": IntegerToFloat(width=48),
    "requantise": Requantiser(),
    "round_product": Requantiser(width=32, scale_width=1, stages=2),
    "saturating_add": SaturatingAdd(width=12),
    "e4m3_quotient": ScaledQuotient(steps=E4M3_STEPS, stages=7),
    "int4_quotient": ScaledQuotient(steps=INT4_STEPS),
    "takagi_reciprocal": TakagiReciprocal(entry_bits=13),
}


def test_operators_equal_their_models() -> None:
    assert {type(operator) for operator in OPERATORS.values()} == TRIALS.keys()
    trials = {name: trial(operator) for name, operator in OPERATORS.items()}
    with_operands = {name: one for name, one in trials.items() if one}
    results = run_bank(OPERATORS, {name: one.operands for name, one in with_operands.items()})
    for name, one in with_operands.items():
        assert one.expected.keys() == results[name].keys()
        assert not one.difference(results[name]), name


def test_operator_without_a_trial_gives_none() -> None:
    assert trial(LeadingZeros(width=8)) is None
