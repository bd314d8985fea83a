"""The dimensions of a language model, in the words of Hugging Face's configurations.

`ModelShape` is the record that a model file gives: every word has a value, which is checked when
the record is built. `ModelDimensions` defines the same words and the numbers derived from them for
the parameter objects of the accelerators.

A parameter object inherits `ModelDimensions` and has each word flat, next to the dimensions of the
machine: ``make verilog TOP=kelle SET="kv_heads=2 rows=16"``. It has no field of the class
`ModelShape`, for three reasons. Each accelerator has legal values of its own for a word, which a
field of the parameter object declares. Some accelerators derive a word from the machine: a
processing element of MEADOW is as wide as a head. Some do not have a word: VEDA reads its rotary
angles from memory and has no `rope_base`. A word is a field if the accelerator does not fix it,
and a property where another parameter determines it.

The machine has words of its own, which are the same in all accelerators: `slots` are the tokens
that a cache holds per key/value head, `batch` is the number of sequences that pass a layer
together, `lanes` are parallel datapaths. A cache that evicts tokens can have fewer slots than
`context_length`; in a cache that does not, the two numbers are equal.

`fitted` builds an accelerator's parameters for a model, and is the only place where the two are
compared.
"""

import math
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from hdl.parameters import parameter_object, require

Fitted = TypeVar("Fitted", bound="ModelDimensions")

NORM_EPSILON = 1e-5
"""The epsilon that the norms of the accelerators add to the mean square."""


class ModelDimensions:
    """The words of a model's dimensions, and the numbers derived from them.

    A subclass has the words as fields or properties. Besides those below, it can have `layers`
    (decoder layers), `vocabulary_size` (tokens, the outputs of the LM head) and `rope_base` (base
    of the frequencies of the rotary embedding).
    """

    if TYPE_CHECKING:

        @property
        def hidden_size(self) -> int:
            """Elements of a hidden state."""
            ...

        @property
        def intermediate_size(self) -> int:
            """Elements between the feed-forward matrices.

            An accelerator's number may be larger than the model's: columns and rows of zeros fill
            the matrices up.
            """
            ...

        @property
        def heads(self) -> int:
            """Query heads of a layer."""
            ...

        @property
        def kv_heads(self) -> int:
            """Key/value heads of a layer."""
            ...

        @property
        def head_size(self) -> int:
            """Elements of a query, a key or a value of one head."""
            ...

        @property
        def context_length(self) -> int:
            """Tokens of the longest text; positions are less than this number."""
            ...

    @property
    def group_size(self) -> int:
        """Query heads that share a key/value head."""
        return self.heads // self.kv_heads

    @property
    def query_size(self) -> int:
        """Elements of the queries of all heads of a token; also of the attention output."""
        return self.heads * self.head_size

    @property
    def kv_size(self) -> int:
        """Elements of the keys, or of the values, of all heads of a token."""
        return self.kv_heads * self.head_size

    def require_groups(self) -> None:
        """Refuse heads that cannot share the key/value heads evenly.

        Raises
        ------
        ValueError
            If `kv_heads` does not divide `heads`.
        """
        rule = f"kv_heads must divide heads = {self.heads}"
        require(self.heads % self.kv_heads == 0, rule, self.kv_heads)


@parameter_object
class ModelShape(ModelDimensions):
    """Dimensions and constants of a Llama-style decoder.

    Parameters
    ----------
    hidden_size : int
        Elements of a hidden state.
    intermediate_size : int
        Elements between the feed-forward matrices.
    heads, kv_heads : int
        Query heads and key/value heads of a layer.
    head_size : int
        Elements of a query, a key or a value of one head.
    layers : int
        Decoder layers.
    vocabulary_size : int
        Tokens of the vocabulary, the outputs of the LM head.
    context_length : int
        Tokens of the longest text (`max_position_embeddings`).
    rope_base : float
        Base of the frequencies of the rotary embedding (`rope_theta`).
    norm_epsilon : float
        Number that the RMSNorms add to the mean square (`rms_norm_eps`).

    Raises
    ------
    ValueError
        If a dimension is not a positive integer, a constant is not a positive finite number,
        `kv_heads` does not divide `heads`, or `head_size` is odd.
    """

    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_size: int
    layers: int
    vocabulary_size: int
    context_length: int
    rope_base: float
    norm_epsilon: float

    def __post_init__(self) -> None:
        """Check every rule."""
        for one in fields(self):
            value: Any = getattr(self, one.name)
            if one.type is int:
                whole = isinstance(value, int) and not isinstance(value, bool)
                require(whole and value > 0, f"{one.name} must be a positive integer", value)
            else:
                number = isinstance(value, int | float) and not isinstance(value, bool)
                rule = f"{one.name} must be a positive finite number"
                require(number and 0 < value < math.inf, rule, value)
        self.require_groups()
        require(self.head_size % 2 == 0, "head_size must be even", self.head_size)


def fitted(parameters: Fitted, shape: ModelShape, *, multiple: int = 1, **machine: Any) -> Fitted:
    """Return an accelerator's parameters for a model.

    Each field of the parameters that is a word of the model gets the model's value. Only
    `context_length` stays: it is the capacity of the accelerator's tables.

    Parameters
    ----------
    parameters : ModelDimensions
        Parameter object to start from, such as a preset.
    shape : ModelShape
        The model's dimensions.
    multiple : int
        `intermediate_size` is rounded up to a multiple of this number.
    machine : Any
        Other fields to change, by name; they take precedence over the model's.

    Raises
    ------
    ValueError
        If the accelerator cannot run the model; the message contains rule and value.
    """
    epsilon = abs(shape.norm_epsilon - NORM_EPSILON) <= 1e-9
    require(epsilon, f"norm_epsilon must be {NORM_EPSILON}", shape.norm_epsilon)
    here: Any = parameters
    own = {one.name for one in fields(here)}
    changes = {name: value for name, value in vars(shape).items() if name in own}
    changes.pop("context_length", None)
    changes["intermediate_size"] = -(-shape.intermediate_size // multiple) * multiple
    if "rope_base" in own:
        # The generators of angles have an integer base.
        rule = "rope_base must be an integer"
        require(shape.rope_base == int(shape.rope_base), rule, shape.rope_base)
        changes["rope_base"] = int(shape.rope_base)
    found = replace(here, **(changes | machine))
    # What the parameters derive from other fields is compared here.
    for name in ("hidden_size", "heads", "kv_heads", "head_size"):
        rule = f"{name} must be {getattr(found, name)}"
        require(getattr(found, name) == getattr(shape, name), rule, getattr(shape, name))
    return found
