"""What VEDA's instructions, passes, rows and memory lines can be."""

from amaranth.lib import enum


class SlotState(enum.Enum, shape=2):
    """Where the next token of a layer goes."""

    APPEND = 0
    """Behind the tokens that there are."""

    WAITING = 1
    """Not known before the votes are counted."""

    VICTIM = 2
    """Into the victim's slot."""

    TRIMMED = 3
    """Nowhere: what several victims leave behind must be loaded."""


class Operation(enum.Enum, shape=1):
    """What an instruction requests."""

    ATTENTION = 0
    """Attention alone: keys, values and queries come from outside, outputs go there."""

    LAYER = 1
    """A whole decoder layer: the hidden state stays inside."""


class Leave(enum.Enum, shape=2):
    """What becomes of the hidden states behind a layer."""

    STAY = 0
    """The next layer takes them."""

    OUT = 1
    """They leave the accelerator."""

    PREDICT = 2
    """They meet the final norm and the vocabulary; the token with the largest sum leaves."""


class PassKind(enum.Enum, shape=3):
    """What a burst is, and so what it is multiplied by and where the products go."""

    SCORES = 0
    """Keys, with a query: inner products, into the softmax."""

    OUTPUTS = 1
    """Values, with probabilities: outer products, which are the heads' outputs."""

    ANGLES = 2
    """Cosines and sines of a position; nothing is multiplied."""

    QUERY_KEY_VALUE = 3
    """Weights, with the normalised state: outer products, into the rotary embedding."""

    OUTPUT_PROJECTION = 4
    """Weights, with the heads' outputs: inner products, added to the state."""

    GATE_UP = 5
    """Weights, with the normalised state: outer products, into the activation."""

    DOWN = 6
    """Weights, with the activated elements: inner products, added to the state."""

    VOCABULARY = 7
    """Weights, with the normalised state: outer products, of which the largest is looked for."""


class RowKind(enum.Enum, shape=3):
    """Where a row of sums goes."""

    OUTPUT = 0
    """Heads' outputs that leave the accelerator."""

    ATTENDED = 1
    """Heads' outputs that meet the output projection."""

    PROJECTED = 2
    """Keys, values or queries."""

    GATED = 3
    """Gates and ups, in turn."""

    LOGITS = 4
    """Sums of the vocabulary's tokens."""


class Space(enum.Enum, shape=2):
    """What a memory line holds."""

    CACHE = 0
    WEIGHTS = 1
    ANGLES = 2
    VOCABULARY = 3
