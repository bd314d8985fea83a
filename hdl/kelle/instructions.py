"""Instructions of Kelle: operations of the systolic array, of which a step's program consists."""

from amaranth.hdl import Value
from amaranth.lib import data, enum


class Operation(enum.Enum, shape=4):
    """An operation of the array, for one head or for as many channels as a head has.

    The first ones multiply by weights from outside, the last three by keys or values from the KV
    eDRAM.
    """

    QUERY = 0
    """One query head of the arriving token: x W_Q, rotated."""

    KEY = 1
    """The keys of one head, of the arriving and of all recomputed tokens: x W_K, rotated."""

    VALUE = 2
    """The values of the same tokens: x W_V."""

    OUTPUT = 3
    """`head_size` channels of the attention block's output: y W_O."""

    UP = 4
    """`head_size` channels of the feed-forward block: x W_up."""

    GATE = 5
    """The gates of the same channels: x W_gate."""

    DOWN = 6
    """`head_size` channels of the feed-forward block's output: (SiLU(gate) * up) W_down."""

    VOCABULARY = 7
    """`head_size` tokens of the LM head, whose sums are compared."""

    SCORE = 8
    """Scores of the cached tokens, during which the evictor searches the victim."""

    OWN = 9
    """The arriving token's own scores."""

    ATTEND = 10
    """Probabilities times values, including the arriving token's."""


PROJECTIONS = tuple(Operation)[: Operation.VOCABULARY.value]
"""The operations of a layer that multiply by weights from outside."""


def projects(operation: enum.EnumView) -> Value:
    """Return whether an operation multiplies by weights from outside."""
    return operation.as_value() <= Operation.VOCABULARY.value


def requantises(operation: enum.EnumView) -> Value:
    """Return whether an operation is a projection of a layer, with one scale per output."""
    return operation.as_value() < Operation.VOCABULARY.value


def operation_layout(*, token_bits: int, head_bits: int) -> data.StructLayout:
    """Return the layout of an instruction.

    Parameters
    ----------
    token_bits : int
        Bits of the index of the arriving token that attends.
    head_bits : int
        Bits of the number of a head, or of as many channels as a head has.
    """
    return data.StructLayout({"operation": Operation, "token": token_bits, "head": head_bits})
