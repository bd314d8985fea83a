"""Work for VEDA: tokens of SmolLM2, or random ones, as instructions and vectors."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.llm import Trace, open_trace
from golden.llm.layers import LayerWeights
from golden.nonlinear.argmax import argmax
from golden.veda.decoder_layer import DecoderLayer
from golden.veda.functions.element_serial_softmax import LOG2_E
from golden.veda.veda import Codes, LayerModel, Step, lane_rows
from golden.veda.voting.vote_threshold import PAPER, ThresholdCoefficients
from golden.veda.whole_model import vocabulary_sums
from hdl.veda.instructions import Leave, Operation
from hdl.veda.parameters import VedaParameters
from testbenches.packing import pack, to_integers
from testbenches.veda.layer_weights import angles_of

LAYERS = (0, 14, 29)
TOKENS = 640


@cache
def open_tokens() -> Trace:
    """Return the tensors of the text."""
    return open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


@dataclass(frozen=True, eq=False)
class Tokens:
    """Projections of a text's tokens, as FP16 codes; the queries are scaled.

    Members
    -------
    queries : numpy.ndarray
        Shape (tokens, heads, head_size).
    keys, values : numpy.ndarray
        Shape (tokens, kv_heads, head_size).
    """

    queries: Codes
    keys: Codes
    values: Codes


def real_tokens(p: VedaParameters, layer: int) -> Tokens:
    """Return SmolLM2's tokens, its heads joined or cut to the head size, repeated as needed."""
    trace = open_tokens()
    parts = -(-p.head_size // trace.head_size)
    members = p.heads // p.kv_heads
    theirs = trace.heads // trace.kv_heads

    def joined(name: str, numbers: list[int]) -> NDArray[Any]:
        heads = [getattr(trace.attention_trace(layer, n % trace.heads), name) for n in numbers]
        return np.concatenate(heads, axis=1)[:, : p.head_size]

    def group(kv_head: int) -> list[int]:
        """Return the first heads of the key/value heads that are joined to one."""
        return [(kv_head * parts + part) * theirs for part in range(parts)]

    queries = [
        joined("q", [first + head % members % theirs for first in group(head // members)])
        for head in range(p.heads)
    ]
    keys, values = (
        [joined(name, group(kv_head)) for kv_head in range(p.kv_heads)] for name in ("k", "v")
    )
    scale = LOG2_E / np.sqrt(p.head_size)
    return Tokens(*(codes(np.stack(rows, 1)) for rows in (np.array(queries) * scale, keys, values)))


def random_tokens(rng: np.random.Generator, p: VedaParameters, count: int) -> Tokens:
    """Return normal random numbers."""
    shapes = (p.heads, p.head_size), (p.kv_heads, p.head_size), (p.kv_heads, p.head_size)
    return Tokens(*(codes(rng.normal(size=(count, *shape))) for shape in shapes))


@dataclass(eq=False)
class DecodeWork:
    """Instructions and vectors in order, and their expected results.

    Members
    -------
    models : dict[int, LayerModel]
        The layers' models, after all steps.
    loaded : dict[int, tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]]
        Initial keys, values and vote counts of each layer.
    instructions, vectors : list[int]
        Packed payloads.
    layers : list[int]
        The layer of each token of each instruction.
    steps : list[Step]
        The model's result of each of them.
    alone : list[int]
        Indices of the steps that are attention alone, and so have outputs.
    evictions : list[tuple[int, int]]
        Layer and slot of each victim.
    decoders : dict[int, DecoderLayer]
        Models of the whole layers, whose caches are those of `models`.
    states_in, states_out : list[numpy.ndarray]
        Input and output hidden states, as FP16 codes: one array per block, shape (tokens,
        hidden_size).
    states : numpy.ndarray | None
        The hidden states inside the accelerator.
    vocabulary : numpy.ndarray | None
        The LM head, if the accelerator has one, FP16 codes, shape (hidden_size, vocabulary).
    predictions : list[tuple[int, int]]
        The predicted token of each state that predicts, and the code of its logit.
    positions : set[int]
        Positions whose rotary angles are needed.
    coefficients : ThresholdCoefficients
        Coefficients a and b of the voting threshold.
    ideal_cycles : int
        Minimum number of beats for the arrays: ``2 * length * rounds`` per step, and the lines of a
        layer's matrices for each token.
    ideal_lines : int
        Minimum number of lines from memory: those of matrices once for all tokens of a block.
    """

    p: VedaParameters
    models: dict[int, LayerModel] = field(default_factory=dict)
    loaded: dict[int, tuple[Codes, Codes, NDArray[np.int64]]] = field(default_factory=dict)
    instructions: list[int] = field(default_factory=list)
    vectors: list[int] = field(default_factory=list)
    layers: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    evictions: list[tuple[int, int]] = field(default_factory=list)
    decoders: dict[int, DecoderLayer] = field(default_factory=dict)
    states_in: list[Codes] = field(default_factory=list)
    states_out: list[Codes] = field(default_factory=list)
    states: Codes | None = None
    vocabulary: Codes | None = None
    predictions: list[tuple[int, int]] = field(default_factory=list)
    positions: set[int] = field(default_factory=set)
    coefficients: ThresholdCoefficients = PAPER
    ideal_cycles: int = 0
    ideal_lines: int = 0

    def load(self, layer: int, keys: Codes, values: Codes, counts: NDArray[np.int64]) -> None:
        """Start a layer with the given content of memory.

        Parameters
        ----------
        layer : int
            Index of the layer.
        keys, values : numpy.ndarray
            FP16 codes, shape (kv_heads, tokens, head_size).
        counts : numpy.ndarray
            The vote counts so far, shape (tokens,).
        """
        self.models[layer] = model = LayerModel(self.p, coefficients=self.coefficients)
        model.fill(keys, values, counts)
        self.loaded[layer] = keys, values, counts

    def add(
        self,
        layer: int,
        tokens: Tokens,
        index: int,
        *,
        count: int = 1,
        vote: bool = False,
        evictions: int = 0,
    ) -> None:
        """Add a block's attention in one layer; a layer's first step loads its length."""
        self._instruct(Operation.ATTENTION, layer, count, vote=vote, evictions=evictions)
        block = slice(index, index + count)
        for heads in (tokens.keys, tokens.values, tokens.queries):
            rows = np.stack([lane_rows(own, self.p) for own in heads[block]], axis=1)
            beats = rows.astype("<u2").reshape(-1, self.p.row_elements)
            self.vectors += [int.from_bytes(beat.tobytes(), "little") for beat in beats]
        for number in range(index, index + count):
            own = tokens.queries[number], tokens.keys[number], tokens.values[number]
            final = number == index + count - 1
            step = self.models[layer].attend(*own, vote=vote, evictions=evictions if final else 0)
            self.alone.append(len(self.steps))
            self._expect(layer, step)

    def give(self, layer: int, weights: LayerWeights) -> None:
        """Assign matrices to a loaded layer."""
        self.decoders[layer] = DecoderLayer(self.p, weights)
        self.decoders[layer].cache = self.models[layer]

    def add_layer(
        self,
        layer: int,
        states: Codes,
        position: int,
        *,
        vote: bool = False,
        evictions: int = 0,
        leave: bool = False,
        predict: bool = False,
    ) -> None:
        """Add a whole layer for the states inside, or for `states` if there are none inside.

        The states of a block of tokens have the shape (tokens, hidden_size), and positions from
        `position` on.
        """
        if self.states is None:
            self.states_in.append(states)
            self.states = states
        count = len(self.states)
        options = {"vote": vote, "evictions": evictions}
        mode = Leave.PREDICT if predict else Leave.OUT if leave else Leave.STAY
        self._instruct(Operation.LAYER, layer, count, **options, position=position, leave=mode)
        results = []
        for number, state in enumerate(self.states):
            cosines, sines = angles_of(self.p, position + number)
            self.positions.add(position + number)
            options["evictions"] = evictions if number == count - 1 else 0
            result = self.decoders[layer].step(state, cosines, sines, **options)
            self._expect(layer, result.attention)
            results.append(result.state)
        self.states = np.stack(results)
        if predict:
            self._predict(self.states)
            self.states = None
        elif leave:
            self.states_out.append(self.states)
            self.states = None
        lines = sum(self.p.beats.values())
        self.ideal_cycles += count * lines
        self.ideal_lines += count * self.p.rotary + lines

    def _predict(self, states: Codes) -> None:
        """Add the expected predictions of states."""
        assert self.vocabulary is not None
        for state in states:
            sums = vocabulary_sums(self.p, state, self.vocabulary)
            self.predictions.append(argmax(self.p.array.sum_format, sums))
        self.ideal_cycles += len(states) * self.p.vocabulary_beats
        self.ideal_lines += self.p.vocabulary_beats

    def _instruct(
        self,
        operation: Operation,
        layer: int,
        count: int,
        *,
        vote: bool,
        evictions: int,
        position: int = 0,
        leave: Leave = Leave.STAY,
    ) -> None:
        """Add an instruction; a layer's first one loads its length."""
        model = self.models[layer]
        fields = {
            "operation": operation.value,
            "layer": layer,
            "last_token": count - 1,
            "load": int(not model.stepped),
            "length": model.length,
            "vote": int(vote),
            "evictions": evictions,
            "position": position,
            "leave": leave.value,
        }
        arrays = {name: np.array([number]) for name, number in fields.items()}
        self.instructions += to_integers(pack(self.p.instruction_layout, arrays))

    def _expect(self, layer: int, step: Step) -> None:
        """Add the expected results of a step."""
        self.steps.append(step)
        self.evictions += [(layer, victim) for victim in step.victims]
        self.layers.append(layer)
        self.ideal_cycles += 2 * step.length * self.p.rounds
        self.ideal_lines += 2 * step.length * self.p.rounds
