"""Host driver of Kelle in text generation: one step per layer, and one for the LM head."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from amaranth.lib import data

from golden.kelle.eviction.eviction_controller import KEPT, Placement
from golden.kelle.eviction.prefill import Prefill
from golden.kelle.kelle import Integers, KelleModel
from golden.kelle.lost_bits import Entry
from golden.kelle.whole_model import IntegerModel
from hdl.errors import UserError
from hdl.kelle.edram.refresh_walker import RefreshSettings
from hdl.kelle.eviction.eviction_parameters import placement_layout
from hdl.kelle.parameters import KelleParameters
from testbenches.external_memory import External
from testbenches.harness import Harness
from testbenches.kelle.cache_words import (
    cache_rows,
    input_rows,
    kept_words,
    state_words,
    stored_rows,
    token_words,
)
from testbenches.kelle.layer_run import LayerRun
from testbenches.kelle.step_cycles import load_beats, words_of
from testbenches.kelle.weight_beats import layer_beats, matrix_beats, scale_words
from testbenches.long_run import LongRun, Moved
from testbenches.packing import Bits, pack, unpack

TIMEOUT = 50_000
"""Timeout: cycles without any transfer."""


class Host:
    """Host driver of an accelerator: sends weights and states, and stores requestable inputs.

    It runs one text; with several sequences, that of the first one.

    Parameters
    ----------
    p : KelleParameters
        Dimensions of the accelerator.
    model : IntegerModel
        Quantised language model.
    harness : Harness
        The compiled accelerator.
    refresh : RefreshSettings
        Refresh intervals.
    seed : int
        Seed of the stalls of every stream; 0 for no stalls.
    external : External, optional
        The memory of weights and states; without it, all ports are ideal.

    Members
    -------
    layers : list[list[LayerRun]]
        For each token of the last block, the results of each layer.
    following : int
        Position of the next token.
    prediction : tuple[int, int] | None
        The predicted token, and its sum.
    cycles, seconds : int, float
        Cycles of the last block, and the wall-clock time of their simulation.
    bytes_read, bytes_written : int
        Bytes read from and written to memory through the ports for the last block.
    """

    def __init__(
        self,
        p: KelleParameters,
        model: IntegerModel,
        harness: Harness,
        refresh: RefreshSettings,
        seed: int = 0,
        external: External | None = None,
    ) -> None:
        self.p, self.model = p, model
        self._beats = [layer_beats(layer, p) for layer in model.layers]
        filled = model.vocabulary.filled(p.head_size)
        self._beats.append(matrix_beats(filled, p).reshape(-1, p.bands * p.rows))
        self._open = contextlib.ExitStack()
        self._places = _Places(external, self) if external else None
        memories = [external] if external else []
        self._session = self._open.enter_context(harness.session(memories, seed=seed))
        self._settings = pack(refresh.parameters.settings_layout, _arrays(refresh.payload))
        self._inputs: list[dict[int, Integers]] = [{} for _ in model.layers]
        self.layers: list[list[LayerRun]] = []
        self.following = 0
        self.prediction: tuple[int, int] | None = None
        self.bytes_read = self.bytes_written = self.cycles = 0
        self.seconds = 0.0

    def close(self) -> None:
        """End the simulation."""
        self._open.close()

    @property
    def beats(self) -> list[int]:
        """Beats of weights of each layer, and of the LM head."""
        return [len(beats) for beats in self._beats]

    def bound(self, tokens: int, *, predict: bool) -> int:
        """Return the cycles of all loads for a block: keys and values included, and the LM head."""
        *layers, head = self.beats
        # `beats` are those of the array, also with a weight memory.
        loads = [load_beats(self.p, words_of(self.p, beats), tokens) for beats in layers]
        return sum(loads) + predict * head

    def begin(self, prefills: Sequence[Prefill], models: Sequence[KelleModel]) -> None:
        """Load the scales, then the kept tokens of each layer's prefill."""
        p = self.p
        self._round({"scales": pack(*scale_words(self.model.layers, p))}, {})
        for number, (prefill, model) in enumerate(zip(prefills, models, strict=True)):
            inputs = {
                "prefill": kept_words(p, prefill.kept),
                "row_writes": cache_rows(p, model, prefill),
            }
            self._round(inputs, {}, layer=number)
            self._inputs[number] = {0: model.layer.quantised[0]}
        self.following = 1

    def run(
        self,
        first: int,
        states: Integers,
        *,
        predict: bool,
        changed: Sequence[Sequence[Entry]] = (),
        watch: Callable[[int, Moved, int], None] = lambda layer, moved, before: None,
    ) -> None:
        """Compute all layers for a block of the text, and the LM head if `predict`.

        Parameters
        ----------
        first : int
            Position of the first token.
        states : numpy.ndarray
            int64 [tokens, width], the embedded states of consecutive tokens.
        predict : bool
            Whether the LM head is computed for the last token.
        changed : Sequence[Sequence[Entry]]
            By layer, the entries of the eDRAM that lose bits after the step; `row_writes` writes
            their new contents.
        watch : Callable
            Receives the layer, the progress of its step, and the start cycle of the block.

        Raises
        ------
        UserError
            If the block has more tokens than a step, or does not continue the text.
        """
        p, began = self.p, self._session.cycle
        count = len(states)
        if not 1 <= count <= p.step_tokens:
            raise UserError(f"a block must have 1 to block = {p.step_tokens} tokens, not {count}")
        if first != self.following:
            raise UserError(
                f"a block must begin at position {self.following}, which continues the text, "
                f"not at {first}"
            )
        self.following += count
        layers: list[list[LayerRun]] = []
        self.prediction, self.seconds = None, 0.0
        self.bytes_read = self.bytes_written = 0
        asked = np.zeros((0, p.row_write.size), np.uint8)

        def watching(number: int) -> Callable[[Moved], None]:
            return lambda moved: watch(number, moved, began)

        for number in range(len(self.model.layers)):
            inputs = self._given(number, first, states)
            if len(asked):
                inputs["row_writes"] = asked
            slices = count * p.hidden_slices
            expected = {"outputs": slices, "normalised": slices}
            run = self._round(inputs, expected, layer=number, watch=watching(number))
            steps, stores = self._steps(run, first, count)
            held = self._inputs[number]
            held |= {first + place: step.normalised for place, step in enumerate(steps)}
            layers.append(steps)
            states = np.stack([step.output for step in steps])
            asked = self._asked(number, stores)
            # The earliest token that may still become popular is a window older than the next one.
            for position in [own for own in held if own < first + count - p.window]:
                del held[position]
            if changed:
                # A stored input vector is written once as it is, then as it is read.
                asked = np.concatenate([asked, *map(self._entry_rows, changed[number])])
        # The last layer's request must be served before any further step.
        if len(asked):
            self._round({"row_writes": asked}, {})
        if predict:
            last = len(self.model.layers)
            inputs = self._given(last, first, states[-1:])
            run = self._round(inputs, {"predictions": 1}, predicts=1, watch=watching(last))
            found = unpack(p.prediction_layout, run.outputs["predictions"])
            self.prediction = int(found["token"][0]), int(found["sum"][0])
        self.layers = [list(own) for own in zip(*layers, strict=True)]
        self.cycles = self._session.cycle - began

    def _given(self, number: int, first: int, states: Integers) -> dict[str, Bits]:
        """Return the tokens, states and weights of a step."""
        if self._places:
            self._places.begin_step(number, first)
        tokens = [(0, first + place) for place in range(len(states))]
        words = self._beats[number].reshape(-1, self.p.channel_layout.size // 8)
        return {
            "positions": token_words(self.p, tokens),
            "hidden": state_words(self.p, states),
            "weights": np.unpackbits(words, axis=1, bitorder="little"),
        }

    def _asked(self, number: int, stores: Sequence[tuple[int, int]]) -> Bits:
        """Return the rows of the input vectors that a layer has requested."""
        rows = [np.zeros((0, self.p.row_write.size), np.uint8)]
        for position, vector in stores:
            # The vectors of all sequences follow each other; the text is that of the first one.
            cache = number * self.p.batch
            rows.append(input_rows(self.p, cache, vector, self._inputs[number][position]))
        return np.concatenate(rows)

    def _entry_rows(self, entry: Entry) -> Bits:
        """Return the rows of an entry."""
        return stored_rows(self.p, entry.number, entry.keys, entry.values)

    def _round(
        self,
        inputs: dict[str, Bits],
        expected: dict[str, int],
        *,
        layer: int = 0,
        predicts: int = 0,
        watch: Callable[[Moved], None] = lambda moved: None,
    ) -> LongRun:
        """Offer inputs with the layer's settings, and wait for the expected outputs."""
        epsilon = self.model.layers[layer].epsilon
        driven = {"settings": self._settings[np.newaxis]}
        for name, width, value in (
            ("layer", self.p.layer_bits, layer),
            ("epsilon", 32, epsilon),
            ("predicts", 1, predicts),
        ):
            driven[name] = pack(width, np.array([value]))
        if self.p.batch > 1:
            driven["sequence_number"] = pack(self.p.sequence_bits, np.array([0]))
        run = self._session.run(
            inputs,
            expected,
            driven=driven,
            record=["placed"],
            timeout=TIMEOUT,
            progress=0.25,
            watch=watch,
        )
        self.seconds += run.seconds
        self.bytes_read += sum(bits.size for bits in inputs.values()) // 8
        self.bytes_written += sum(bits.size for bits in run.outputs.values()) // 8
        self.bytes_written -= run.outputs["placed"].size // 8
        return run

    def _steps(
        self, run: LongRun, first: int, count: int
    ) -> tuple[list[LayerRun], list[tuple[int, int]]]:
        """Return the results of a layer's step by token, and the requested input vectors."""
        p = self.p
        layout = data.StructLayout({"placement": placement_layout(p.eviction), "valid": 1})
        seen = run.outputs["placed"]
        shown = unpack(layout, seen[seen[:, -1] == 1])["placement"]
        placements = []
        for head, slot, evicts, token in zip(
            shown["head"],
            shown["slot"],
            shown["evicts"],
            zip(*(shown["evicted"][n] for n in ("position", "recomputed", "vector")), strict=True),
            strict=True,
        ):
            position, recomputed, vector = map(int, token)
            placements.append(
                Placement(
                    int(head),
                    int(slot),
                    position if evicts else -1,
                    vector if evicts and recomputed else KEPT,
                )
            )
        asked = unpack(p.store_layout, run.outputs["vector_stores"])
        stores = list(zip(asked["position"].tolist(), asked["vector"].tolist(), strict=True))
        # A token may become popular in the step of the token that is a window later.
        stored = {position + p.window: (position, vector) for position, vector in stores}
        outputs, normalised = (
            unpack(p.slice_layout, run.outputs[name]).reshape(count, -1)
            for name in ("outputs", "normalised")
        )
        cycles = run.cycles["outputs"].reshape(count, -1)
        steps = [
            LayerRun(
                output=outputs[place],
                normalised=normalised[place],
                placements=placements[place * p.kv_heads : (place + 1) * p.kv_heads],
                store=stored.get(first + place),
                cycles=cycles[place],
            )
            for place in range(count)
        ]
        return steps, stores


class _Places:
    """Places of the streams in an external memory; `docs/memory.md` has the layout."""

    def __init__(self, external: External, host: Host) -> None:
        p = host.p
        self.external, self.tokens = external, p.window + 1 + p.step_tokens
        # The tokens of a block are contiguous, also those that follow the last place.
        self.places = self.tokens + p.step_tokens - 1
        self.beats = [0, *np.cumsum(host.beats).tolist()]
        self.beat_bytes = p.channel_layout.size // 8
        self.slice_bytes = p.slice_layout.size // 8
        self.vector_bytes = self.slice_bytes * p.hidden_slices
        self.weights = external.reserve(self.beats[-1] * self.beat_bytes)
        self.states = external.reserve(p.step_tokens * self.vector_bytes)
        # The inputs of the latest tokens, which the accelerator may request, and those that arrive.
        self.inputs = external.reserve(len(host.beats) * self.places * self.vector_bytes)
        # A requested input is read in the layout of the eDRAM's rows.
        self.row_bytes = -(-p.row_write.size // 8)
        self.rows = external.reserve(p.memory.edram.entry_words * self.row_bytes)

    def begin_step(self, number: int, position: int) -> None:
        """Place the streams of a layer's step."""
        first = self.weights + self.beats[number] * self.beat_bytes
        self.external.route("weights", first, item_bytes=self.beat_bytes)
        self.external.route("row_writes", self.rows, item_bytes=self.row_bytes)
        # A layer's output replaces its input, which is the next layer's input.
        for stream in ("hidden", "outputs"):
            self.external.route(stream, self.states, item_bytes=self.slice_bytes)
        slot = number * self.places + position % self.tokens
        place = self.inputs + slot * self.vector_bytes
        self.external.route("normalised", place, item_bytes=self.slice_bytes)


def _arrays(value: Any) -> Any:
    """Convert a nested dictionary of integers to one of arrays."""
    if isinstance(value, dict):
        return {name: _arrays(item) for name, item in value.items()}
    return np.array(value)
