"""Dimensions of P3-LLM's system, and the positions of its data in the banks."""

from typing import Annotated

from amaranth.lib import data
from amaranth.utils import bits_for, ceil_log2

from hdl.arith.float_format import BINARY32
from hdl.model_shape import ModelDimensions
from hdl.nonlinear.activation_functions import ActivationFunctionsParameters
from hdl.nonlinear.argmax import ArgmaxParameters
from hdl.nonlinear.rms_norm import RmsNormParameters
from hdl.nonlinear.rotary_embedding import RotaryEmbeddingParameters
from hdl.nonlinear.softmax import SoftmaxParameters
from hdl.p3llm.matrix_place import WEIGHT_BITS, MatrixPlace
from hdl.p3llm.pim.dot_product import PE_LANES
from hdl.p3llm.pim.pim_channel import COLUMN_BITS, ROW_BITS, PimChannelParameters
from hdl.p3llm.quantisers.e4m3_quantiser import E4m3QuantiserParameters
from hdl.p3llm.quantisers.int4_quantiser import Int4QuantiserParameters
from hdl.p3llm.quantisers.key_smoothing import KeySmoothingParameters
from hdl.p3llm.quantisers.probability_quantiser import ProbabilityQuantiserParameters
from hdl.p3llm.quantisers.value_scaling import ValueScalingParameters
from hdl.parameters import Parameters, PowerOfTwo, Range, option, parameter_object, require

POSITION_BITS = 1 + ROW_BITS + COLUMN_BITS
"""Bits of a position, one column address of all units: parity of the bank, row and column."""

KEY_SET = 4
"""Rounds of keys that share one column of metadata."""

MOST_PIECES = 256
"""Maximum number of pieces of the LM head; each adds instructions to the program."""


@parameter_object
class P3llmParameters(ModelDimensions, Parameters):
    """Dimensions of the pseudo-channels, of the NPU and of the model.

    Parameters
    ----------
    channel : PimChannelParameters
        Compute units and banks of one pseudo-channel.
    pseudo_channels : int
        Number of pseudo-channels; all execute the same commands.
    hidden_size, intermediate_size : int
        Elements of a hidden state, and between the feed-forward matrices: multiples of a word of
        inputs, ``2 * elements``.
    heads, kv_heads, head_size : int
        Query heads; key/value heads; elements of a head, at most as many as all units output.
    rope_base : int
        Base of the frequencies of the rotary embedding.
    group_weights : int
        Weights per quantisation group; halved until it divides the inputs of a matrix.
    slots : int
        Tokens that the cache of a key/value head holds; also the `context_length`.
    layers : int
        Number of layers in the banks.
    vocabulary_size : int
        Tokens of the vocabulary, stored after the layers; 0 for a system without LM head.
    vocabulary_bits : int
        Bits per weight of the LM head: 4 as in the layers, or 8, two 4-bit weights that are added.
        Without an LM head it changes nothing.
    batch : int
        Requests whose tokens a step processes; each has its own keys and values.
    lanes : int
        Elements per cycle of the NPU: ``elements`` of a unit, or half of them.
    pre_rope : bool
        Keys are quantised before the rotary embedding: the NPU rotates them, and computes Q K^T.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    channel: PimChannelParameters = PimChannelParameters()
    pseudo_channels: Annotated[int, PowerOfTwo(1, 16, "pseudo-channels")] = 1
    hidden_size: Annotated[int, Range(16, 8192, "elements")] = 576
    intermediate_size: Annotated[int, Range(16, 16384, "elements")] = 1536
    heads: Annotated[int, Range(1, 64, "heads")] = 9
    kv_heads: Annotated[int, Range(1, 32, "heads")] = 3
    head_size: Annotated[int, Range(8, 128, "elements")] = 64
    rope_base: Annotated[int, Range(2, 10_000_000, "ratio")] = 100_000
    group_weights: Annotated[int, PowerOfTwo(8, 256, "weights")] = 128
    slots: Annotated[int, PowerOfTwo(64, 4096, "tokens")] = 1024
    layers: Annotated[int, Range(1, 64, "layers")] = 2
    vocabulary_size: Annotated[int, Range(0, 262_144, "tokens")] = 0
    vocabulary_bits: Annotated[int, PowerOfTwo(4, 8, "bits")] = option(default=4)
    batch: Annotated[int, Range(1, 8, "requests")] = 1
    lanes: Annotated[int, PowerOfTwo(1, 64, "elements")] = 16
    pre_rope: bool = option(default=False)

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        word = self.word
        require(self.channel.unit.pumps == 2, "unit.pumps must be 2", self.channel.unit.pumps)
        for name in ("hidden_size", "intermediate_size", "head_size"):
            value = getattr(self, name)
            require(value % word == 0, f"{name} must be a multiple of {word}", value)
        self.require_groups()
        half = self.elements // 2
        require(
            self.lanes in (half, self.elements),
            f"lanes must be {half} or {self.elements}",
            self.lanes,
        )
        most = min(self.block, PE_LANES * self.channel.unit.steps)
        require(self.head_size <= most, f"head_size must be at most {most}", self.head_size)
        most = PE_LANES * self.channel.unit.steps
        rule = f"group_weights must be from {word} to {most}"
        require(word <= self.group_weights <= most, rule, self.group_weights)
        require(
            self.slots >= 2 * self.block,
            f"slots must be at least {2 * self.block}",
            self.slots,
        )
        timing = self.channel.timing
        # A refresh of all banks, or of both parities, bank by bank.
        longest = max(timing.rfc, timing.banks * timing.rrefd)
        least = 2 * (longest + timing.rp + timing.rcd + timing.ras)
        rule = f"timing.refi_ps must be at least {least} cycles at {timing.clock_mhz} MHz"
        require(timing.refi >= least, rule, timing.refi_ps)
        # Each part of the NPU checks its own rules.
        for part in ("norm", "rotary", "softmax", "e4m3", "int4", "smoothing", "scaling"):
            getattr(self, part)
        room = 1 << POSITION_BITS
        most = MOST_PIECES * self.longest_rounds * self.round_outputs
        rule = f"vocabulary_size must be at most {most}"
        require(self.vocabulary_size <= most, rule, self.vocabulary_size)
        used = self.layers * self.layer_positions + self.vocabulary_positions
        require(used <= room, f"layers must fit in {room} columns of each unit", self.layers)

    @property
    def elements(self) -> int:
        """Outputs per column of weights; also the FP16 numbers that a column holds."""
        return self.channel.unit.elements

    @property
    def units(self) -> int:
        """Compute units of a pseudo-channel."""
        return self.channel.units

    @property
    def result(self) -> int:
        """Sums that one command reads: half of those of a unit."""
        return self.elements // 2

    @property
    def word(self) -> int:
        """Inputs per word of the units' input registers."""
        return 2 * self.elements

    @property
    def block(self) -> int:
        """Outputs per round of one pseudo-channel; also its FP16 numbers per position."""
        return self.units * self.elements

    @property
    def round_outputs(self) -> int:
        """Outputs per round of all pseudo-channels; also their factors (FP16) per position."""
        return self.pseudo_channels * self.block

    @property
    def channel_bits(self) -> int:
        """Bits of the index of a pseudo-channel."""
        return ceil_log2(self.pseudo_channels)

    @property
    def head_rounds(self) -> int:
        """Key/value heads per pseudo-channel; heads are distributed round-robin."""
        return -(-self.kv_heads // self.pseudo_channels)

    @property
    def context_length(self) -> int:
        """Tokens of the longest text; no token is evicted."""
        return self.slots

    @property
    def in_flight(self) -> int:
        """Requests in flight at once: as many as share the weights of a column."""
        return min(self.batch, self.channel.unit.pumps)

    @property
    def scale_count(self) -> int:
        """Query heads in flight, two pairs per pseudo-channel, minus one for groups of 1 or 3."""
        return 4 * self.pseudo_channels - (self.group_size in (1, 3))

    @property
    def chunk(self) -> int:
        """Probabilities that an input register holds at once."""
        return PE_LANES * self.channel.unit.steps

    @property
    def qkv(self) -> int:
        """Outputs of the combined matrix of keys, values and queries."""
        return (self.heads + 2 * self.kv_heads) * self.head_size

    # The parts of the NPU.
    @property
    def norm(self) -> RmsNormParameters:
        """Parameters of the RMS norm."""
        return RmsNormParameters(lanes=self.lanes, width=self.hidden_size, rows=1)

    @property
    def rotary(self) -> RotaryEmbeddingParameters:
        """Parameters of the rotary embedding."""
        return RotaryEmbeddingParameters(
            lanes=self.lanes, head_size=self.head_size, base=self.rope_base
        )

    @property
    def softmax(self) -> SoftmaxParameters:
        """Parameters of the softmax."""
        return SoftmaxParameters(lanes=self.lanes, scores=self.slots, rows=1)

    @property
    def activation(self) -> ActivationFunctionsParameters:
        """Parameters of the SiLU activation."""
        return ActivationFunctionsParameters(lanes=self.lanes)

    @property
    def e4m3(self) -> E4m3QuantiserParameters:
        """Parameters of the quantiser of activations and queries."""
        widest = max(self.hidden_size, self.intermediate_size, self.query_size)
        return E4m3QuantiserParameters(lanes=self.lanes, width=widest, vectors=1)

    @property
    def int4(self) -> Int4QuantiserParameters:
        """Parameters of the quantiser of keys and values."""
        return Int4QuantiserParameters(lanes=self.lanes, width=self.head_size, vectors=1)

    @property
    def smoothing(self) -> KeySmoothingParameters:
        """Parameters of the key smoothing."""
        return KeySmoothingParameters(
            lanes=self.lanes, head_size=self.head_size, heads=self.kv_heads
        )

    @property
    def scaling(self) -> ValueScalingParameters:
        """Parameters of the second-level scaling."""
        return ValueScalingParameters(lanes=self.lanes, tokens=self.slots, rows=1)

    @property
    def probabilities(self) -> ProbabilityQuantiserParameters:
        """Parameters of the quantiser of attention probabilities."""
        return ProbabilityQuantiserParameters(lanes=self.lanes)

    @property
    def argmax(self) -> ArgmaxParameters:
        """Parameters of the argmax of logits, with a vocabulary."""
        length = self.vocabulary_size
        return ArgmaxParameters(
            lanes=self.lanes,
            length=length,
            number_format=BINARY32,
            contexts=self.in_flight,
        )

    # Positions of a layer's data in the banks, relative to the layer.

    def positions(self, numbers: int) -> int:
        """Return the number of positions of a vector of FP16 numbers."""
        return -(-numbers // self.round_outputs)

    def group_of(self, inputs: int) -> int:
        """Return the weights per group of a matrix with these inputs."""
        group = self.group_weights
        # The last group must be full: SmolLM2's 576 inputs have nine groups of 64.
        while inputs % group:
            group //= 2
        return group

    @property
    def matrices(self) -> dict[str, MatrixPlace]:
        """Places of the four matrices, by name."""
        base, places = self.smoothing_base(self.batch), {}
        for name, inputs, outputs in (
            ("qkv", self.hidden_size, self.qkv),
            ("output", self.query_size, self.hidden_size),
            ("gate_up", self.hidden_size, 2 * self.intermediate_size),
            ("down", self.intermediate_size, self.hidden_size),
        ):
            places[name] = MatrixPlace(
                inputs=inputs,
                outputs=outputs,
                group=self.group_of(inputs),
                base=base,
                rounds=self.positions(outputs),
                shared=self._shared(outputs),
            )
            base += places[name].positions
        return places

    def _shared(self, outputs: int) -> bool:
        """Return whether two units compute each tile of a matrix's last round."""
        return 0 < outputs % self.round_outputs <= self.round_outputs // 2

    @property
    def norm_bases(self) -> tuple[int, int]:
        """First positions of the weights of both norms."""
        return 0, self.positions(self.hidden_size)

    @property
    def smoothing_positions(self) -> int:
        """Number of positions of a request's smoothing factors."""
        return self.positions(self.kv_size)

    def smoothing_base(self, request: int) -> int:
        """Return the first position of a request's smoothing factors."""
        return 2 * self.positions(self.hidden_size) + request * self.smoothing_positions

    @property
    def key_set(self) -> int:
        """Number of positions of a set of keys: zero points, scales of keys and values, keys."""
        return 1 + 2 * KEY_SET + KEY_SET * self.head_size // PE_LANES

    @property
    def value_set(self) -> int:
        """Number of positions of a set of values: zero points, values."""
        return 1 + self.elements

    @property
    def head_keys(self) -> int:
        """Number of positions of a head's keys."""
        return -(-self.slots // (KEY_SET * self.block)) * self.key_set

    @property
    def head_values(self) -> int:
        """Number of positions of a head's values."""
        return -(-self.slots // (PE_LANES * self.elements)) * self.value_set

    def key_base(self, head: int, request: int = 0) -> int:
        """Return the first position of the keys of a head; a request's values follow all its keys.

        Consecutive heads have the same positions in different pseudo-channels.
        """
        down = self.matrices["down"]
        requests = request * self.head_rounds * (self.head_keys + self.head_values)
        here = head // self.pseudo_channels * self.head_keys
        return down.base + down.positions + requests + here

    def value_base(self, head: int, request: int = 0) -> int:
        """Return the first position of the values of a head."""
        keys = self.key_base(0, request) + self.head_rounds * self.head_keys
        return keys + head // self.pseudo_channels * self.head_values

    @property
    def layer_positions(self) -> int:
        """Number of positions of a layer."""
        return self.key_base(0, self.batch)

    @property
    def longest_rounds(self) -> int:
        """Rounds of the longest matrix of a layer."""
        return max(matrix.rounds for matrix in self.matrices.values())

    # The LM head in the banks, after the layers.
    @property
    def projection(self) -> list[MatrixPlace]:
        """Places of the pieces of the LM head.

        No piece has more rounds than a layer's longest matrix, whose memories in the NPU it uses.
        """
        most = self.longest_rounds * self.round_outputs
        base, places = self.positions(self.hidden_size), []
        for first in range(0, self.filled_vocabulary, most):
            outputs = min(most, self.filled_vocabulary - first)
            places.append(
                MatrixPlace(
                    inputs=self.hidden_size,
                    outputs=outputs,
                    group=self.group_of(self.hidden_size),
                    base=base,
                    rounds=self.positions(outputs),
                    passes=self.vocabulary_passes,
                    # The second weights of a shared round would have inputs of their own.
                    shared=self.vocabulary_passes == 1 and self._shared(outputs),
                )
            )
            base += places[-1].positions
        return places

    @property
    def vocabulary_passes(self) -> int:
        """4-bit weights whose sum is a weight of the LM head; 1 without an LM head."""
        return self.vocabulary_bits // WEIGHT_BITS if self.vocabulary_size else 1

    @property
    def filled_vocabulary(self) -> int:
        """Outputs of the LM head, rounded up to whole slices of the NPU."""
        return -(-self.vocabulary_size // self.lanes) * self.lanes

    @property
    def vocabulary_positions(self) -> int:
        """Number of positions of the final norm's weights and the LM head."""
        pieces = self.projection
        return pieces[-1].base + pieces[-1].positions if pieces else 0

    # Streams of the system.

    @property
    def instruction_layout(self) -> data.StructLayout:
        """A step: `layer`, and for each request the `position` of its token."""
        # The layer after the last one selects the LM head, which ignores the position.
        steps = self.layers + (self.vocabulary_size > 0)
        positions = data.ArrayLayout(range(self.slots), self.batch)
        return data.StructLayout({"layer": range(max(steps, 2)), "position": positions})

    @property
    def codes_layout(self) -> data.StructLayout:
        """A slice of INT4 codes of a `value` or a key, with its pseudo-channel.

        ``complete``: all pseudo-channels have their head's key and value.
        """
        codes = {name: field.shape for name, field in self.int4.result_layout}
        own = {"value": 1, "channel": self.channel_bits, "complete": 1}
        return data.StructLayout({**codes, **own})

    @property
    def prediction_layout(self) -> data.StructLayout:
        """The token with the largest logit, and this logit in binary32."""
        return data.StructLayout({"token": bits_for(max(self.vocabulary_size - 1, 1)), "sum": 32})

    @property
    def state_layout(self) -> data.StructLayout:
        """A slice of a hidden state in binary32."""
        return data.StructLayout({"values": data.ArrayLayout(32, self.lanes), "last": 1})
