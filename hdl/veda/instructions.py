"""VEDA's instructions and their fields, and the encodings of passes, rows and memory lines."""

from amaranth.hdl import Cat, ShapeLike, Value
from amaranth.lib import data, enum


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
    """`gate_proj` and `up_proj`, or `up_proj` alone: outer products, activated next."""

    DOWN = 6
    """Weights, with the activated elements: inner products, added to the state."""

    VOCABULARY = 7
    """LM head, with the normalised state: outer products, input of the argmax."""


SECOND_OPERAND_LAYOUT = data.StructLayout(
    {name: 1 for name in ("query", "probability", "element", "slice", "inner", "none")}
)
"""What a pass multiplies its lines by.

`query`: a query per lane, which the first beat loads (scores); `probability`: a probability per
lane with each beat (heads' outputs); `element`: an element of the normalised state with each beat;
`slice`: a slice of a vector, which the first beat of each block's slice loads. One of these is 1,
or `none` for rotary angles. `inner`: inner products, of a query or a slice.
"""


def second_operand(kind: "enum.EnumView[PassKind]") -> dict[str, Value]:
    """Return the fields of `SECOND_OPERAND_LAYOUT` for a pass."""
    projections = (PassKind.QUERY_KEY_VALUE, PassKind.GATE_UP, PassKind.VOCABULARY)
    query = kind == PassKind.SCORES
    part = (kind == PassKind.OUTPUT_PROJECTION) | (kind == PassKind.DOWN)
    return {
        "query": query,
        "probability": kind == PassKind.OUTPUTS,
        "element": Cat(kind == projection for projection in projections).any(),
        "slice": part,
        "inner": query | part,
        "none": kind == PassKind.ANGLES,
    }


class RowKind(enum.Enum, shape=3):
    """Kind of a row of sums, which selects its destination."""

    OUTPUT = 0
    """Heads' outputs that are outputs of the accelerator."""

    ATTENDED = 1
    """Heads' outputs that are input of the output projection."""

    PROJECTED = 2
    """Keys, values or queries."""

    GATED = 3
    """Interleaved outputs of `gate_proj` and `up_proj`, or those of `up_proj` alone."""

    LOGITS = 4
    """Logits."""


class Space(enum.Enum, shape=2):
    """Content of a memory line."""

    CACHE = 0
    WEIGHTS = 1
    ANGLES = 2
    VOCABULARY = 3


def instruction_layout(
    *,
    layer_bits: int,
    token_shape: ShapeLike,
    length_shape: ShapeLike,
    position_bits: int,
    leave_bits: int,
) -> data.StructLayout:
    """Return the layout of an instruction: a block of consecutive tokens through one layer.

    `operation` and `layer` select the work, `last_token` is the index of the block's last token (0:
    one token). With `load`, the cache holds `length` tokens before the first of these; otherwise
    the number continues. `vote`: the tokens vote. `evictions`: number of victims, found at the
    block's last token; only a single victim's slot is reused by the layer's next token. For a whole
    layer also `position`, the first token's position in its text, and `leave`: the use of the
    hidden states after this layer, see `Leave`.

    Parameters
    ----------
    layer_bits : int
        Bits of a layer's index.
    token_shape : ShapeLike
        Shape of a token's index in its block.
    length_shape : ShapeLike
        Shape of a number of cached tokens.
    position_bits : int
        Bits of a position in a text.
    leave_bits : int
        Bits of `Leave`.
    """
    return data.StructLayout(
        {
            "operation": Operation,
            "layer": layer_bits,
            "last_token": token_shape,
            "load": 1,
            "length": length_shape,
            "vote": 1,
            "evictions": length_shape,
            "position": position_bits,
            "leave": leave_bits,
        }
    )


def task_layout(instruction: data.StructLayout, *, slot_bits: int) -> data.StructLayout:
    """Return the layout of a task: an instruction whose first token has a slot.

    `slot` replaces `load`, and `length` is the number of cached tokens including the first one.
    """
    return data.StructLayout(
        {
            name if name != "load" else "slot": shape if name != "load" else slot_bits
            for name, shape in instruction.members.items()
        }
    )
