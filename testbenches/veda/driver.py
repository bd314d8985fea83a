"""The program of VEDA for a whole model: instructions of each block, and the state of a text."""

from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.veda.veda import Codes, lane_rows
from golden.veda.whole_model import Block
from hdl.veda.instructions import Leave, Operation
from hdl.veda.parameters import VedaParameters
from testbenches.long_run import LongRun, Moved
from testbenches.packing import Bits, code_fields, pack
from testbenches.veda.model_lines import CacheLines

Counts = MutableMapping[int, NDArray[Any]]
"""Vote counts of each layer."""


@dataclass(frozen=True, eq=False)
class Round:
    """Results of some instructions.

    Members
    -------
    cycles : int
        Cycles of the accelerator.
    seconds : float
        Wall-clock time spent simulating them.
    evictions : list[tuple[int, int]]
        Layer and slot of each victim.
    prediction : tuple[int, int] | None
        The predicted token, and the code of its logit.
    states : numpy.ndarray
        Hidden states that left the accelerator, shape (tokens, hidden_size).
    run : LongRun | None
        Times of outputs and writes, if the simulation records them.
    """

    cycles: int
    seconds: float
    evictions: list[tuple[int, int]]
    prediction: tuple[int, int] | None
    states: Codes
    run: LongRun | None = None

    def time_of(self, output: str, number: int) -> str:
        """Return the cycle of an output as text, if it is recorded."""
        return f", in cycle {self.run.cycles[output][number]}" if self.run else ""


class Driver(ABC):
    """The state of a text: the length of each layer, its victim, and the next instructions.

    A subclass has the accelerator and its memory.

    Parameters
    ----------
    p : VedaParameters
        Dimensions of the accelerator.
    layers : int
        Layers of the model.
    cache : CacheLines
        Keys and values.
    counts : Counts
        Vote counts of each layer.

    Members
    -------
    length : int
        Slots that each layer uses.
    victims : list[int]
        For each layer, the slot that its next token takes, or -1.
    evictions : list[tuple[int, int]]
        Layer and slot of the victims of the last block.
    states_left : numpy.ndarray
        The hidden states after the last block, if it did not predict.
    prediction : tuple[int, int] | None
        The token that the last block predicts, and the code of its logit.
    bound : int
        Lines that the arrays used in the last block, once per token.
    lines_of_layers : list[int]
        Lines that the block's layers fetch, then those of the LM head.
    """

    def __init__(self, p: VedaParameters, layers: int, cache: CacheLines, counts: Counts) -> None:
        self.p, self.layers, self.cache, self.counts = p, layers, cache, counts
        self.length = 0
        self.victims = [-1] * layers
        # Layers whose next instruction loads the number of cached tokens.
        self._loads: dict[int, int] = dict.fromkeys(range(layers), 0)
        self.evictions: list[tuple[int, int]] = []
        self.states_left = np.zeros((0, p.hidden_size), np.uint16)
        self.prediction: tuple[int, int] | None = None
        self.lines_of_layers: list[int] = []
        self.bound = 0

    @abstractmethod
    def round(
        self,
        inputs: dict[str, Bits],
        expected: dict[str, int],
        steps: list[tuple[int, int, int]],
        watch: Callable[[Moved], None] | None,
    ) -> Round:
        """Execute instructions.

        Parameters
        ----------
        inputs : dict[str, Bits]
            Payloads of the streams `instructions`, `states_in` and `vectors`.
        expected : dict[str, int]
            Transfers of the streams of outputs.
        steps : list[tuple[int, int, int]]
            For each token of each instruction: its layer, and the numbers of vote counts that it
            reads and writes.
        watch : Callable, optional
            Called as the simulation proceeds.
        """

    def written_at(self, done: Round, layer: int, place: tuple[int, ...], *, value: bool) -> str:
        """Return the time of the last write to a line of the cache as text, if it is recorded."""
        return ""

    @property
    def cached(self) -> int:
        """Tokens that each layer caches, excluding victims."""
        return self.length - (self.victims[0] >= 0)

    def run(
        self, block: Block, states: Codes, watch: Callable[[Moved], None] | None = None
    ) -> Round:
        """Execute all layers for a block's states."""
        p = self.p
        lengths = self.cached + 1 + np.arange(block.count)
        self._expect_lines(block, lengths)
        options = {"vote": int(block.vote), "evictions": block.evictions}
        end = Leave.PREDICT if block.predict else Leave.OUT
        instructions = [
            self._instruction(
                Operation.LAYER,
                layer,
                **options,
                last_token=block.count - 1,
                position=block.first,
                leave=(end if layer == self.layers - 1 else Leave.STAY).value,
            )
            for layer in range(self.layers)
        ]
        steps = []
        for layer in range(self.layers):
            for number, length in enumerate(lengths.tolist()):
                evicts = block.evictions if number == block.count - 1 else 0
                steps.append((layer, length, length - (evicts if evicts > 1 else 0)))
        ends = np.arange(states.size) == states.size - 1
        elements = {"value": code_fields(states.reshape(-1)), "last": ends.astype(np.int64)}
        done = self.round(
            {
                "instructions": np.concatenate(instructions),
                "states_in": pack(p.state_layout, elements),
            },
            {
                "states_out": 0 if block.predict else states.size,
                "predictions": int(block.predict),
                "evictions": block.evictions * self.layers,
            },
            steps,
            watch,
        )
        self.states_left, self.prediction = done.states, done.prediction
        self._move_on(block, done, int(lengths[-1]))
        return done

    def _move_on(self, block: Block, done: Round, length: int) -> None:
        """Update the host's state after a block; compact a trimmed cache."""
        self.evictions = done.evictions
        self.length, self.victims, self._loads = length, [-1] * self.layers, {}
        if block.evictions == 1:
            for layer, slot in self.evictions:
                self.victims[layer] = slot
        if block.evictions > 1:
            self.length = length - block.evictions
            self._loads = dict.fromkeys(range(self.layers), self.length)
            for layer in range(self.layers):
                victims = [slot for own, slot in self.evictions if own == layer]
                for value in (False, True):
                    heads = self.cache.heads(layer, value=value, length=length)
                    self.cache.store(np.delete(heads, victims, axis=1), layer, value=value)

    def _instruction(self, operation: Operation, layer: int, **fields: int) -> Bits:
        """Pack an instruction; the first one of a layer loads its length."""
        load = self._loads.get(layer)
        fields |= {"operation": operation.value, "layer": layer}
        fields |= {"load": int(load is not None), "length": load or 0}
        named = {name: np.array([fields.get(name, 0)]) for name, _ in self.p.instruction_layout}
        return pack(self.p.instruction_layout, named)

    def _expect_lines(self, block: Block, lengths: NDArray[np.int64]) -> None:
        """Count the lines of keys, values and matrices: those fetched, and those used."""
        p = self.p
        attended = 2 * p.rounds * int(lengths.sum())
        matrices = sum(p.beats.values())
        # The one line of angles per token is not used by the arrays.
        vocabulary = p.vocabulary_beats if block.predict else 0
        self.lines_of_layers = [matrices + attended + block.count] * self.layers + [vocabulary]
        self.bound = (block.count * matrices + attended) * self.layers + block.count * vocabulary

    def state(self) -> dict[str, NDArray[Any]]:
        """Return caches, vote counts and victims."""
        layers = range(self.layers)
        keys, values = (
            np.stack([self.cache.heads(n, value=value, length=self.length) for n in layers])
            for value in (False, True)
        )
        counts = np.stack([self.counts[n][: self.length] for n in layers])
        return {"keys": keys, "values": values, "counts": counts, "victims": np.array(self.victims)}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Resume from a state: restore caches and vote counts, and search for each victim again."""
        self.length = state["keys"].shape[2]
        self.victims = state["victims"].tolist()
        for layer in range(self.layers):
            self.cache.store(state["keys"][layer], layer, value=False)
            self.cache.store(state["values"][layer], layer, value=True)
            self.counts[layer] = state["counts"][layer].astype(np.uint64)
        self.search_victims()

    def search_victims(self) -> None:
        """Restore the accelerator's slot table after a reset, from the memory and the victims.

        Only the accelerator stores a victim's slot, so it must search again: the token in the last
        slot attends once more, with vote counts of zero except for the victim's.
        """
        p, length = self.p, self.length
        # A victim in the last slot needs no search: appending a token uses that slot.
        self._loads = {layer: length - (victim >= 0) for layer, victim in enumerate(self.victims)}
        hidden = [layer for layer, victim in enumerate(self.victims) if 0 <= victim < length - 1]
        if not hidden:
            return
        vectors, instructions, counts = [], [], {}
        for layer in hidden:
            instructions.append(self._instruction(Operation.ATTENTION, layer, evictions=1))
            last = [
                self.cache.heads(layer, value=value, length=length)[:, -1]
                for value in (False, True)
            ]
            for heads in (*last, np.zeros((p.heads, p.head_size), np.uint16)):
                vectors.append(lane_rows(heads, p))
            counts[layer] = self.counts[layer]
            self.counts[layer] = (np.arange(length) == self.victims[layer]).astype(np.uint64)
        rows = np.concatenate(vectors).astype("<u2")
        bits = np.unpackbits(rows.view(np.uint8), axis=-1, bitorder="little")
        try:
            self.round(
                {"instructions": np.concatenate(instructions), "vectors": bits},
                {"outputs": p.rounds * len(hidden), "evictions": len(hidden)},
                [(layer, length, length) for layer in hidden],
                None,
            )
        finally:
            for layer in hidden:
                self.counts[layer] = counts[layer]
        for layer in hidden:
            del self._loads[layer]
