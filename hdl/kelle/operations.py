"""What Kelle's array works on: the operations of a step's program."""

from amaranth.hdl import Value
from amaranth.lib import enum


class Operation(enum.Enum, shape=4):
    """What the array works on, each for one head, or for as many channels.

    Those whose weights come from outside are first; the others' come from the KV eDRAM.
    """

    QUERY = 0
    """A query head of the arriving token: x W_Q, rotated."""

    KEY = 1
    """A key of the arriving and of all recomputed tokens: x W_K, rotated."""

    VALUE = 2
    """Their values: x W_V."""

    OUTPUT = 3
    """A head's worth of the attention block's output: y W_O."""

    UP = 4
    """Channels of the feed-forward block: x W_up."""

    GATE = 5
    """The same channels' gates: x W_gate."""

    DOWN = 6
    """A head's worth of the feed-forward block's output: (SiLU(gate) * up) W_down."""

    VOCABULARY = 7
    """As many tokens of the vocabulary as a head has channels: their sums are compared."""

    SCORE = 8
    """Scores of the cached tokens, and the search for the victim."""

    OWN = 9
    """The arriving token's own scores."""

    ATTEND = 10
    """Probabilities times values, the arriving token's included."""


PROJECTIONS = tuple(Operation)[: Operation.VOCABULARY.value]
"""Those of a layer whose weights come from outside."""


def projects(operation: enum.EnumView) -> Value:
    """Whether an operation's weights come from outside."""
    return operation.as_value() <= Operation.VOCABULARY.value


def requantises(operation: enum.EnumView) -> Value:
    """Whether it is a layer's, with weights from outside and a scale an output."""
    return operation.as_value() < Operation.VOCABULARY.value
