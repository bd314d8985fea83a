"""Encodings of VEDA's instructions, passes, rows and memory lines."""

from amaranth.lib import enum


class SlotState(enum.Enum, shape=2):
    """Slot assignment of the next token of a layer."""

    APPEND = 0
    """The first free slot."""

    WAITING = 1
    """Not known until the votes are counted."""

    VICTIM = 2
    """The victim's slot."""

    TRIMMED = 3
    """None: after several victims the remaining tokens must be loaded again."""


class Operation(enum.Enum, shape=1):
    """Operation of an instruction."""

    ATTENTION = 0
    """Attention alone: keys, values and queries are inputs, the heads' outputs are outputs."""

    LAYER = 1
    """A whole decoder layer: the hidden state is held inside."""


class Leave(enum.Enum, shape=2):
    """Use of the hidden states after a layer."""

    STAY = 0
    """Input of the next layer."""

    OUT = 1
    """Output of the accelerator."""

    PREDICT = 2
    """Input of the final norm and the LM head; the argmax of the logits is output."""


class PassKind(enum.Enum, shape=3):
    """Content of a burst, which selects its second operand and the destination of the products."""

    SCORES = 0
    """Keys, with a query: inner products, input of the softmax."""

    OUTPUTS = 1
    """Values, with probabilities: outer products, which are the heads' outputs."""

    ANGLES = 2
    """Cosines and sines of a position; nothing is multiplied."""

    QUERY_KEY_VALUE = 3
    """Weights, with the normalised state: outer products, of which keys and queries are rotated."""

    OUTPUT_PROJECTION = 4
    """Weights, with the heads' outputs: inner products, added to the state."""

    GATE_UP = 5
    """`gate_proj` and `up_proj`, with the normalised state: outer products, activated next."""

    DOWN = 6
    """Weights, with the activated elements: inner products, added to the state."""

    VOCABULARY = 7
    """LM head, with the normalised state: outer products, input of the argmax."""


class RowKind(enum.Enum, shape=3):
    """Kind of a row of sums, which selects its destination."""

    OUTPUT = 0
    """Heads' outputs that are outputs of the accelerator."""

    ATTENDED = 1
    """Heads' outputs that are input of the output projection."""

    PROJECTED = 2
    """Keys, values or queries."""

    GATED = 3
    """Interleaved outputs of `gate_proj` and `up_proj`."""

    LOGITS = 4
    """Logits."""


class Space(enum.Enum, shape=2):
    """Content of a memory line."""

    CACHE = 0
    WEIGHTS = 1
    ANGLES = 2
    VOCABULARY = 3
