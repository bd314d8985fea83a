"""Element-serial activation: the truth in float64, and the bit-exact model of the unit."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_add import float_add
from golden.arith.float_divide import divide
from golden.arith.float_exp import exp
from golden.arith.float_multiply import float_multiply
from golden.arith.float_values import ONE, values
from hdl.arith.float_exp import Domain
from hdl.arith.float_format import BINARY16

Codes = NDArray[np.uint16]


def exact_activation(gate: Codes, up: Codes) -> NDArray[np.float64]:
    """Return SiLU(gate) * up in float64."""
    x = values(gate)
    power = np.exp(-np.abs(x))
    return np.where(x < 0, x * power, x) / (1 + power) * values(up)


def error_bound(gate: Codes, up: Codes) -> NDArray[np.float64]:
    """Return the error bound of each result below 65504."""
    absolute = 1 + np.abs(values(up)) * (1 + np.abs(values(gate)))
    return 2.0**-8 * np.abs(exact_activation(gate, up)) + 2.0**-24 * absolute


def activation(gate: Codes, up: Codes) -> Codes:
    """Return the FP16 codes of SiLU(gate) * up; every step rounds to FP16."""
    gate, up = np.asarray(gate, np.uint16), np.asarray(up, np.uint16)
    power = exp(gate, domain=Domain.NONPOSITIVE)
    damped = float_multiply(BINARY16, gate, np.where(gate >> 15 == 1, power, ONE))
    total = float_add(BINARY16, np.full_like(gate, ONE), power)
    quotient = divide(damped.astype(np.uint16), total.astype(np.uint16))
    return float_multiply(BINARY16, quotient, up).astype(np.uint16)
