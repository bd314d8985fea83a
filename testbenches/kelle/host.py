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
)
from testbenches.kelle.layer_run import LayerRun
from testbenches.kelle.weight_beats import layer_beats, matrix_beats, scale_words
from testbenches.long_run import LongRun, Moved
from testbenches.packing import Bits, pack, unpack

TIMEOUT = 50_000
"""Timeout: cycles without any transfer."""


class Host:
    """Host driver of an accelerator: sends weights and states, and stores requestable inputs.

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
    layers : list[LayerRun]
        Results of each layer for the last token.
    prediction : tuple[int, int] | None
        The predicted token, and its sum.
    cycles, seconds : int, float
        Cycles of the last token, and the wall-clock time of their simulation.
    bytes_read, bytes_written : int
        Bytes read from and written to memory through the ports for the last token.
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
        self.layers: list[LayerRun] = []
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

    @property
    def bound(self) -> list[int]:
        """Cycles of each layer's loads, keys and values included, and of the LM head's."""
        p = self.p
        blocks = p.kv_heads * (2 * p.cache_tiles + 2) * p.block_cycles
        return [beats + blocks for beats in self.beats[:-1]] + self.beats[-1:]

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

    def run(
        self,
        position: int,
        state: Integers,
        *,
        predict: bool,
        changed: Sequence[Sequence[Entry]] = (),
        watch: Callable[[int, Moved, int], None] = lambda layer, moved, before: None,
    ) -> None:
        """Compute all layers for a token's embedded state, and the LM head if `predict`.

        Parameters
        ----------
        position : int
            Position of the token.
        state : numpy.ndarray
            int64 [width], its embedded state.
        predict : bool
            Whether the LM head is computed.
        changed : Sequence[Sequence[Entry]]
            By layer, the entries of the eDRAM that lose bits after the step; `row_writes` writes
            their new contents.
        watch : Callable
            Receives the layer, the progress of its step, and the start cycle of the token.
        """
        p, began = self.p, self._session.cycle
        self.layers, self.prediction, self.seconds = [], None, 0.0
        self.bytes_read = self.bytes_written = 0
        asked = np.zeros((0, p.row_write.size), np.uint8)

        def watching(number: int) -> Callable[[Moved], None]:
            return lambda moved: watch(number, moved, began)

        for number in range(len(self.model.layers)):
            inputs = self._given(number, position, state)
            if len(asked):
                inputs["row_writes"] = asked
            expected = {"outputs": p.hidden_slices, "normalised": p.hidden_slices}
            run = self._round(inputs, expected, layer=number, watch=watching(number))
            step = self._step(run)
            self._inputs[number][position] = step.normalised
            self._inputs[number].pop(position - p.window - 1, None)
            self.layers.append(step)
            state, asked = step.output, self._asked(number, step.store)
            if changed:
                # A stored input vector is written once as it is, then as it is read.
                asked = np.concatenate([asked, *map(self._entry_rows, changed[number])])
        # The last layer's request must be served before any further step.
        if len(asked):
            self._round({"row_writes": asked}, {})
        if predict:
            last = len(self.model.layers)
            inputs = self._given(last, position, state)
            run = self._round(inputs, {"predictions": 1}, predicts=1, watch=watching(last))
            found = unpack(p.prediction_layout, run.outputs["predictions"])
            self.prediction = int(found["token"][0]), int(found["sum"][0])
        self.cycles = self._session.cycle - began

    def _given(self, number: int, position: int, state: Integers) -> dict[str, Bits]:
        """Return a step's token, state and weights."""
        if self._places:
            self._places.begin_step(number, position)
        words = self._beats[number].reshape(-1, self.p.channel_layout.size // 8)
        return {
            "positions": pack(self.p.position_bits, np.array([position])),
            "hidden": state_words(self.p, state),
            "weights": np.unpackbits(words, axis=1, bitorder="little"),
        }

    def _asked(self, number: int, store: tuple[int, int] | None) -> Bits:
        """Return the rows of an input vector that a layer has requested, or no rows."""
        if store is None:
            return np.zeros((0, self.p.row_write.size), np.uint8)
        position, vector = store
        return input_rows(self.p, number, vector, self._inputs[number][position])

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

    def _step(self, run: LongRun) -> LayerRun:
        """Return the results of a layer's step."""
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
        states = [
            unpack(p.slice_layout, run.outputs[name]).reshape(-1)
            for name in ("outputs", "normalised")
        ]
        return LayerRun(
            output=states[0],
            normalised=states[1],
            placements=placements,
            store=stores[0] if stores else None,
            cycles=run.cycles["outputs"],
        )


class _Places:
    """Places of the streams in an external memory; `docs/memory.md` has the layout."""

    def __init__(self, external: External, host: Host) -> None:
        p = host.p
        self.external, self.tokens = external, p.window + 2
        self.beats = [0, *np.cumsum(host.beats).tolist()]
        self.beat_bytes = p.channel_layout.size // 8
        self.slice_bytes = p.slice_layout.size // 8
        self.vector_bytes = self.slice_bytes * p.hidden_slices
        self.weights = external.reserve(self.beats[-1] * self.beat_bytes)
        self.states = external.reserve(self.vector_bytes)
        # The inputs of the latest tokens, which the accelerator may request, and one that arrives.
        self.inputs = external.reserve(len(host.beats) * self.tokens * self.vector_bytes)
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
        slot = number * self.tokens + position % self.tokens
        place = self.inputs + slot * self.vector_bytes
        self.external.route("normalised", place, item_bytes=self.slice_bytes)


def _arrays(value: Any) -> Any:
    """Convert a nested dictionary of integers to one of arrays."""
    if isinstance(value, dict):
        return {name: _arrays(item) for name, item in value.items()}
    return np.array(value)
