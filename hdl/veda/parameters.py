"""Dimensions of VEDA's accelerator, derived values, and the payloads of its streams."""

from dataclasses import field
from typing import Annotated

from amaranth.lib import data
from amaranth.utils import ceil_log2

from hdl.arith.float_format import BINARY16
from hdl.memory.memory import LARGEST_DEPTH
from hdl.model_shape import ModelDimensions
from hdl.nonlinear.argmax import ArgmaxParameters
from hdl.parameters import As, Parameters, PowerOfTwo, Range, option, parameter_object, require
from hdl.veda.array.array_parameters import FlexiblePeArrayParameters
from hdl.veda.functions.layernorm_parameters import ElementSerialLayernormParameters
from hdl.veda.functions.softmax_parameters import ElementSerialSoftmaxParameters
from hdl.veda.functions.special_function_unit import SpecialFunctionUnitParameters
from hdl.veda.instructions import (
    SECOND_OPERAND_LAYOUT,
    Operation,
    PassKind,
    RowKind,
    SlotState,
    Space,
    instruction_layout,
    task_layout,
)
from hdl.veda.voting.threshold_parameters import VoteThresholdParameters
from hdl.veda.voting.voting_engine import VotingEngineParameters


@parameter_object
class VedaParameters(ModelDimensions, Parameters):
    """Dimensions of the accelerator, and the payloads of its streams.

    The hardware, the golden model and the testbench share them. A head is as wide as the array, or
    as wide as a plane; in the latter case each plane processes a different head. `lanes` heads are
    processed at a time, in lock-step.

    Parameters
    ----------
    array : FlexiblePeArrayParameters
        Dimensions of an array.
    copies : int
        Number of arrays, each of which processes different heads.
    head_size : int
        Elements of a query: an array's width, or a plane's.
    heads : int
        Query heads of a layer.
    kv_heads : int
        Key/value heads of a layer; divides `heads`.
    layers : int
        Layers in the slot table.
    slots : int
        Tokens that the cache of a layer holds; at most `context_length`.
    scored_heads : int
        Heads per lane whose scores are computed before their values are read.
    hidden_size : int
        Elements of the hidden state, a multiple of `copies`.
    intermediate_size : int
        Elements between the feed-forward matrices: a multiple of all arrays' width.
        Pad a narrower layer with columns of zeros.
    context_length : int
        Tokens of the longest text: positions that have rotary angles.
    vocabulary_size : int
        Tokens of the model's vocabulary: the final norm and the LM head follow the last layer. With
        0 there is no LM head, and the hidden states are output.
    block : int
        Maximum number of tokens of a prompt that pass through a layer together, so that each line
        of its matrices is fetched once for all of them; at most `slots`. With 1 there is no
        weight buffer.
    step_stages : int
        As in `SpecialFunctionUnitParameters`: with 3 stages instead of 2 the clock is higher, and a
        layer takes some more cycles.
    fallback : bool
        The paper's rule for a head whose threshold is negative, as in `VoteThresholdParameters`.
    rotary : bool
        Whether queries and keys are rotated by the positions of their tokens.
    layer_norm : bool
        Whether norms subtract the mean (layer norm) or not (RMSNorm). Software folds their weights
        and biases into the matrices that follow.
    biases : bool
        Whether matrices have biases, the LM head included.
    gated : bool
        Whether the feed-forward block is a SwiGLU. Otherwise its activation is ReLU, of the output
        of a single matrix (`up_proj`).

    Raises
    ------
    ValueError
        If a value is outside its range; the message states rule and value.
    """

    array: FlexiblePeArrayParameters = field(default_factory=FlexiblePeArrayParameters)
    copies: Annotated[int, Range(1, 8, "arrays")] = 1
    head_size: Annotated[int, Range(4, 512, "elements")] = 128
    heads: Annotated[int, Range(1, 128, "heads")] = 32
    kv_heads: Annotated[int, Range(1, "heads", "heads")] = 32
    layers: Annotated[int, Range(1, 256, "layers")] = 32
    slots: Annotated[int, PowerOfTwo(4, 4096, "tokens")] = 4096
    scored_heads: Annotated[int, Range(1, 64, "heads")] = 8
    hidden_size: Annotated[int, Range(2, 65536, "elements")] = 4096
    intermediate_size: Annotated[int, Range(1, 65536, "elements")] = 11008
    context_length: Annotated[int, PowerOfTwo(2, 65536, "tokens")] = 4096
    vocabulary_size: Annotated[int, Range(0, 262144, "tokens")] = 0
    block: Annotated[int, Range(1, 64, "tokens")] = 1
    step_stages: Annotated[int, As(SpecialFunctionUnitParameters)] = 2
    fallback: bool = option(default=True)
    rotary: bool = option(default=True)
    layer_norm: bool = option(default=False)
    biases: bool = option(default=False)
    gated: bool = option(default=True)

    def __post_init__(self) -> None:
        """Check rules that involve several fields."""
        super().__post_init__()
        widths = (self.array.width, self.array.plane_width)
        require(
            self.head_size in widths,
            f"head_size must be the array's width {widths[0]} or a plane's {widths[1]}",
            self.head_size,
        )
        self.require_groups()
        require(
            self.hidden_size % self.copies == 0,
            f"hidden_size must be a multiple of copies {self.copies}",
            self.hidden_size,
        )
        require(
            self.intermediate_size % self.row_elements == 0,
            f"intermediate_size must be a multiple of all arrays' width {self.row_elements}",
            self.intermediate_size,
        )
        rule = "vocabulary_size must be 0 or at least 2"
        require(self.vocabulary_size != 1, rule, self.vocabulary_size)
        rule = f"slots must be at most context_length = {self.context_length}"
        require(self.slots <= self.context_length, rule, self.slots)
        rule = f"block must be at most slots = {self.slots}"
        require(self.block <= self.slots, rule, self.block)
        # The contents of the buffers must fit into memories.
        for what, words in (
            ("elements of a block's hidden states", self.state_elements),
            ("lines of a block's weights", self.segment_lines if self.block > 1 else 0),
            ("vectors of a block's outer products", self.slice_entries),
        ):
            require(words <= LARGEST_DEPTH, f"{what} must be at most {LARGEST_DEPTH}", words)

    @property
    def row_elements(self) -> int:
        """Elements of all arrays: a row of results, or a line of every channel."""
        return self.copies * self.array.width

    @property
    def projected_rows(self) -> int:
        """Rows of keys, values and queries."""
        return 2 * self.kv_rounds + self.rounds

    @property
    def gated_rows(self) -> int:
        """Rows of `gate_proj` and `up_proj` together, or of `up_proj` alone."""
        return (1 + self.gated) * self.intermediate_size // self.row_elements

    @property
    def row_lines(self) -> int:
        """Lines per channel of a row of outer products: biases, then one line per element."""
        return self.biases + self.hidden_size

    @property
    def attended_slices(self) -> int:
        """Vectors of an array's width that hold the heads' outputs of a token."""
        return self.rounds * self.copies

    @property
    def activated_slices(self) -> int:
        """Vectors of an array's width that hold the intermediate vector of a token."""
        return self.intermediate_size // self.array.width

    @property
    def slice_entries(self) -> int:
        """Maximum number of array-wide vectors for a block's matrices of inner products."""
        # A memory has at least two words.
        return max(2, self.block * max(self.attended_slices, self.activated_slices))

    @property
    def query_entries(self) -> int:
        """Maximum number of entries for a block's queries: one per token and head round."""
        return max(2, self.block * self.rounds)

    @property
    def array_outputs(self) -> int:
        """Elements of the hidden state that one array computes."""
        return self.hidden_size // self.copies

    @property
    def beats(self) -> dict[PassKind, int]:
        """Lines per channel of each matrix of a layer, in the order of execution."""
        return {
            PassKind.QUERY_KEY_VALUE: self.projected_rows * self.row_lines,
            PassKind.OUTPUT_PROJECTION: (self.biases + self.attended_slices) * self.array_outputs,
            PassKind.GATE_UP: self.gated_rows * self.row_lines,
            PassKind.DOWN: (self.biases + self.activated_slices) * self.array_outputs,
        }

    @property
    def vocabulary_rows(self) -> int:
        """Rows of logits, the last of which may be padded with zeros."""
        return -(-self.vocabulary_size // self.row_elements)

    @property
    def vocabulary_beats(self) -> int:
        """Lines per channel of the LM head."""
        return self.vocabulary_rows * self.row_lines

    @property
    def segment_lines(self) -> int:
        """Maximum number of lines per channel in a segment, see `WeightBuffer`."""
        # A row of outer products, or a block of as many outputs as there are partial sums.
        slices = self.biases + max(self.attended_slices, self.activated_slices)
        return max(self.row_lines, slices * min(self.array.partial_sums, self.array_outputs))

    @property
    def state_elements(self) -> int:
        """Elements of the hidden states of a block."""
        return self.block * self.hidden_size

    @property
    def token_shape(self) -> range:
        """Shape of a token's index in its block."""
        return range(max(self.block, 2))

    @property
    def functions(self) -> SpecialFunctionUnitParameters:
        """Dimensions of the special function unit.

        Its divider is pipelined, because the down projection waits for the last row of the
        activation.
        """
        return SpecialFunctionUnitParameters(
            lanes=self.lanes,
            scores=self.slots,
            heads=self.scored_heads,
            width=self.hidden_size,
            rms=not self.layer_norm,
            swiglu=self.gated,
            rotates=self.rotary,
            # The next vector overwrites elements as they are normalised; only its last element
            # waits. This halves the buffer; a prompt at `tiny` takes 3 % more cycles.
            vectors=1,
            step_stages=self.step_stages,
            divide_digits=0,
        )

    @property
    def norm(self) -> ElementSerialLayernormParameters:
        """Dimensions of the norm before the attention's and the feed-forward block's matrices."""
        return self.functions.layernorm

    @property
    def split(self) -> bool:
        """Whether each plane processes a different head."""
        return self.head_size < self.array.width

    @property
    def array_lanes(self) -> int:
        """Heads that one array processes at a time."""
        return self.array.planes if self.split else 1

    @property
    def lanes(self) -> int:
        """Heads that all arrays process at a time."""
        return self.copies * self.array_lanes

    @property
    def channels(self) -> int:
        """Memory channels: one per plane."""
        return self.copies * self.array.planes

    @property
    def rounds(self) -> int:
        """Head rounds: steps of `lanes` heads in which all query heads are processed."""
        return -(-self.heads // self.lanes)

    @property
    def kv_rounds(self) -> int:
        """Beats in which all key or value heads of a token are written."""
        return -(-self.kv_heads // self.lanes)

    @property
    def vector_lines(self) -> int:
        """Memory lines of a key or value."""
        return 1 if self.split else self.array.planes

    @property
    def softmax(self) -> ElementSerialSoftmaxParameters:
        """Dimensions of a lane's softmax."""
        return self.functions.softmax

    @property
    def voting(self) -> VotingEngineParameters:
        """Dimensions of the voting engine."""
        return VotingEngineParameters(
            threshold=VoteThresholdParameters(slots=self.slots, fallback=self.fallback),
            heads=self.heads,
            lanes=self.lanes,
            # The instructions specify which tokens vote.
            reserved=0,
        )

    def lane(self, head_round: int, channel: int) -> int:
        """Return the head index of a channel in a round; it may exceed the last head."""
        return head_round * self.lanes + channel // self.vector_lines

    def kv_head(self, head_round: int, channel: int) -> int:
        """Return the key/value head of a channel in a round; idle lanes use the last head's."""
        # The result of an idle lane is not used, but its address must be legal.
        head = min(self.lane(head_round, channel), self.heads - 1)
        return head // self.group_size

    @property
    def slot_bits(self) -> int:
        """Bits of a slot's index."""
        return ceil_log2(self.slots)

    @property
    def layer_bits(self) -> int:
        """Bits of a layer's index."""
        # A field of an address has at least one bit.
        return max(1, ceil_log2(self.layers))

    @property
    def cache_line(self) -> data.StructLayout:
        """Address of a line of keys or values; the fields are concatenated."""
        return data.StructLayout(
            {
                "slot": self.slot_bits,
                "part": ceil_log2(self.vector_lines),
                "value": 1,
                "kv_head": ceil_log2(self.kv_heads),
            }
        )

    @property
    def weight_line(self) -> data.StructLayout:
        """Address of a line of weights: a layer's matrices are contiguous in each channel."""
        return data.StructLayout(
            {"line": ceil_log2(sum(self.beats.values())), "channel": ceil_log2(self.channels)}
        )

    @property
    def angle_line(self) -> data.StructLayout:
        """Address of a line of angles: cosine and sine of each pair of a head's elements."""
        return data.StructLayout(
            {"position": ceil_log2(self.context_length), "part": ceil_log2(self.vector_lines)}
        )

    @property
    def vocabulary_line(self) -> data.StructLayout:
        """Address of a line of the LM head, in `line` and `layer` together."""
        return data.StructLayout(
            {
                "line": ceil_log2(max(self.vocabulary_beats, 1)),
                "channel": ceil_log2(self.channels),
            }
        )

    @property
    def address_layout(self) -> data.StructLayout:
        """Address of a line; `space` selects the meaning of `line`."""
        # A union: the widest address determines the width.
        places = (self.cache_line, self.weight_line, self.angle_line)
        widths = [place.size for place in places]
        return data.StructLayout(
            {
                "line": max(*widths, self.vocabulary_line.size - self.layer_bits),
                "layer": self.layer_bits,
                "space": Space,
            }
        )

    @property
    def addresses_layout(self) -> data.ArrayLayout:
        """The address of one line for each channel."""
        return data.ArrayLayout(self.address_layout, self.channels)

    @property
    def beat_layout(self) -> data.ArrayLayout:
        """A line of each channel, which is a row of each array."""
        return data.ArrayLayout(self.array.vector_layout, self.copies)

    @property
    def burst_shape(self) -> range:
        """Shape of the number of lines of a burst."""
        return range(max(self.slots, self.vocabulary_beats, *self.beats.values()) + 1)

    @property
    def length_shape(self) -> range:
        """Shape of a number of cached tokens."""
        return range(self.slots + 1)

    @property
    def leave_bits(self) -> int:
        """Bits of `Leave`; without a vocabulary `PREDICT` does not exist."""
        return 2 if self.vocabulary_size else 1

    @property
    def instruction_layout(self) -> data.StructLayout:
        """An instruction: a block of tokens through one layer."""
        return instruction_layout(
            layer_bits=self.layer_bits,
            token_shape=self.token_shape,
            length_shape=self.length_shape,
            position_bits=ceil_log2(self.context_length),
            leave_bits=self.leave_bits,
        )

    @property
    def instruction_errors_layout(self) -> data.StructLayout:
        """Errors of instructions, see `Scheduler`."""
        return data.StructLayout({"block": 1, "position": 1, "trimmed": 1})

    @property
    def errors_layout(self) -> data.StructLayout:
        """Errors of instructions and of entering hidden states, see `Veda`."""
        return data.StructLayout({**dict(self.instruction_errors_layout.members), "states": 1})

    @property
    def entry_layout(self) -> data.StructLayout:
        """Entry of a layer in the slot table."""
        return data.StructLayout(
            {"length": self.length_shape, "slot": self.slot_bits, "state": SlotState}
        )

    @property
    def task_layout(self) -> data.StructLayout:
        """An instruction whose first token has a slot."""
        return task_layout(self.instruction_layout, slot_bits=self.slot_bits)

    @property
    def cached_token_layout(self) -> data.StructLayout:
        """A token of a task's block, its slot, and the number of cached tokens including it."""
        return data.StructLayout(
            {
                "task": self.task_layout,
                "slot": self.slot_bits,
                "length": self.length_shape,
                "last": 1,
            }
        )

    @property
    def read_layout(self) -> data.StructLayout:
        """A burst: `beats` lines of each channel, starting at the addresses."""
        return data.StructLayout({"addresses": self.addresses_layout, "beats": self.burst_shape})

    @property
    def write_layout(self) -> data.StructLayout:
        """A line for each enabled channel."""
        return data.StructLayout(
            {
                "addresses": self.addresses_layout,
                "enables": self.channels,
                "words": self.beat_layout,
            }
        )

    @property
    def pass_layout(self) -> data.StructLayout:
        """The computation for a burst; `operation` and `leave` select its results' destination.

        `beats` is the number of its lines, independent of the number of tokens that use each of
        them. `final` marks the block's last pass of scores and all passes after its attention.
        """
        return data.StructLayout(
            {
                "kind": PassKind,
                "beats": self.burst_shape,
                "last_token": self.token_shape,
                "final": 1,
                "vote": 1,
                "operation": Operation,
                "leave": self.leave_bits,
            }
        )

    @property
    def decoded_pass_layout(self) -> data.StructLayout:
        """A pass with what it multiplies its lines by, see `SECOND_OPERAND_LAYOUT`."""
        return data.StructLayout({**self.pass_layout.members, "by": SECOND_OPERAND_LAYOUT})

    @property
    def row_layout(self) -> data.StructLayout:
        """A row of sums, its kind, and the last token of its block."""
        return data.StructLayout(
            {"values": self.beat_layout, "kind": RowKind, "last_token": self.token_shape}
        )

    @property
    def slice_layout(self) -> data.StructLayout:
        """Half a vector for the arrays, its place in halves, and whether it is a block's last."""
        return data.StructLayout(
            {
                "item": self.array.vector_layout.size // 2,
                "place": ceil_log2(2 * self.slice_entries),
                "last": 1,
            }
        )

    @property
    def query_layout(self) -> data.StructLayout:
        """A query per lane, its place in its block, and whether it is the block's last."""
        return data.StructLayout(
            {"item": self.beat_layout, "place": ceil_log2(self.query_entries), "last": 1}
        )

    @property
    def angle_layout(self) -> data.ArrayLayout:
        """Cosine and sine of each pair of a head's elements."""
        pair = data.StructLayout({"cosine": BINARY16.layout, "sine": BINARY16.layout})
        return data.ArrayLayout(pair, self.head_size // 2)

    @property
    def angles_layout(self) -> data.StructLayout:
        """A token's angles, and whether it is its block's last."""
        return data.StructLayout({"item": self.angle_layout, "last": 1})

    @property
    def state_layout(self) -> data.StructLayout:
        """An element of a hidden state."""
        return data.StructLayout({"value": BINARY16.layout, "last": 1})

    @property
    def element_layout(self) -> data.StructLayout:
        """An element of a hidden state; `final` with a block's last."""
        return data.StructLayout({"value": BINARY16.layout, "last": 1, "final": 1})

    @property
    def eviction_layout(self) -> data.StructLayout:
        """Layer and slot of a victim."""
        return data.StructLayout({"layer": self.layer_bits, "slot": self.slot_bits})

    @property
    def row_sums_layout(self) -> data.ArrayLayout:
        """The sums of all arrays' rows before they are rounded."""
        return data.ArrayLayout(self.array.sum_format.layout, self.row_elements)

    @property
    def prediction_layout(self) -> data.StructLayout:
        """The argmax of the logits, and its logit before rounding."""
        return data.StructLayout(
            {"token": ceil_log2(self.vocabulary_size), "sum": self.array.sum_format.layout}
        )

    @property
    def argmax(self) -> ArgmaxParameters:
        """Dimensions of the argmax over the logits, which enter it one by one."""
        sum_format = self.array.sum_format
        return ArgmaxParameters(
            lanes=1,
            length=self.vocabulary_size,
            width=sum_format.width,
            number_format=sum_format,
            contexts=self.block,
        )

    @property
    def scalar_layout(self) -> data.StructLayout:
        """One probability for each lane."""
        return self.voting.beat_layout
