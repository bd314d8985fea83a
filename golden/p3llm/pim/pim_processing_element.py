"""Model of P3-LLM's processing element: integers, and the cycle in which each sum is output."""

from dataclasses import dataclass

import numpy as np

from golden.p3llm.pim.operand_decoder import input_operands, weight_operands

SUM_BITS = 32

ADDED_LATER = 2
"""Cycles from operands to their addition."""


@dataclass(frozen=True, kw_only=True)
class Cycles:
    """Inputs of an element in every cycle.

    Members
    -------
    mode : numpy.ndarray
        Values of `Mode`, shape (cycles,).
    work : numpy.ndarray
        Whether a cycle has operands, bool, shape (cycles,).
    inputs : numpy.ndarray
        E4M3 or S0E4M4 codes, shape (cycles, 4).
    codes, group_bits : numpy.ndarray
        4-bit codes and their metadata, shape (cycles, 4).
    first, last : numpy.ndarray
        Whether the operands start or complete a sum, bool, shape (cycles,).
    advance : numpy.ndarray
        Whether the finished sums are shifted in this cycle, bool, shape (cycles,).
    """

    mode: np.ndarray
    work: np.ndarray
    inputs: np.ndarray
    codes: np.ndarray
    group_bits: np.ndarray
    first: np.ndarray
    last: np.ndarray
    advance: np.ndarray


def dot_products(
    mode: np.ndarray, inputs: np.ndarray, codes: np.ndarray, group_bits: np.ndarray
) -> np.ndarray:
    """Return exact dot products along the last axis, int64; the mode is broadcast."""
    significand, shift, _nan = input_operands(mode, inputs)
    weights = weight_operands(mode, codes, group_bits)
    return ((significand * weights) << shift).sum(axis=-1)


def wrapped(sums: np.ndarray) -> np.ndarray:
    """Return sums modulo ``2**32``, two's complement."""
    half = 1 << SUM_BITS - 1
    return ((np.asarray(sums, np.int64) + half) & (2 * half - 1)) - half


def finished(pumps: int, cycles: Cycles) -> tuple[np.ndarray, np.ndarray]:
    """Return `finished` in every cycle, and whether it is a finished sum that was not yet read.

    The operands of cycle t are added in cycle t + 2; the sum is output from cycle t + 3.
    """
    products = dot_products(
        cycles.mode[:, np.newaxis], cycles.inputs, cycles.codes, cycles.group_bits
    )
    products = np.where(cycles.work, products, 0)
    running = [0] * pumps
    row: list[int | None] = [None] * pumps
    seen: list[int | None] = []
    for cycle in range(len(products)):
        seen.append(row[0])
        added = cycle - ADDED_LATER
        if added >= 0:
            begins = cycles.work[added] and cycles.first[added]
            running[added % pumps] = int(products[added]) + (
                0 if begins else running[added % pumps]
            )
        ends = added >= 0 and cycles.work[added] and cycles.last[added]
        if ends or cycles.advance[cycle]:
            row = [*row[1:], running[added % pumps] if ends else None]
    known = np.array([value is not None for value in seen])
    return wrapped(np.array([value or 0 for value in seen])), known
