"""Environment of the accelerator: off-chip memory, and a host that sends tokens."""

from functools import cached_property
from typing import Any

import numpy as np
from amaranth.lib import data
from numpy.typing import NDArray

from golden.kelle.decoder_layer import DecoderLayer
from golden.kelle.edram.kv_edram import rows_of, vector_rows
from golden.kelle.eviction.eviction_controller import KEPT
from golden.kelle.eviction.prefill import Prefill
from golden.kelle.eviction.prefill_selector import Kept
from golden.kelle.kelle import KelleModel
from hdl.kelle.edram.refresh_walker import RefreshSettings
from hdl.kelle.eviction.eviction_parameters import placement_layout, prefill_layout, vector_layout
from hdl.kelle.instructions import Operation
from hdl.kelle.parameters import KelleParameters
from testbenches.bench import Bench
from testbenches.kelle.cache_words import token_words
from testbenches.kelle.eviction.prefill_slices import pack_slices
from testbenches.kelle.overflow_memory import OverflowMemory
from testbenches.kelle.script import Script, Steps
from testbenches.kelle.step_cycles import load_beats, roofline, words_of
from testbenches.kelle.weight_beats import (
    after_attention,
    layer_beats,
    matrix_beats,
    scale_words,
)
from testbenches.packing import from_integers, pack, to_integer, to_integers, unpack
from testbenches.streams import read, until_offered

Integers = NDArray[np.int64]
Tokens = list[tuple[int, int]]
"""Sequence and position of each token of a step."""

TIMEOUT = 20_000
"""Cycles without any transfer, more than the longest operation has."""

WAITING = 100
"""Cycles for which a step waits for an input vector from a slow memory."""


def arrays(value: Any) -> Any:
    """Turn a nested dictionary of integers into one of arrays."""
    if isinstance(value, dict):
        return {name: arrays(item) for name, item in value.items()}
    return np.array(value)


class Accelerator:
    """A bench that drives and monitors every port.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        As in `Bench`.
    p : KelleParameters
        Dimensions of the design.
    layers : list[DecoderLayer]
        Weights and scales of each layer, and hidden states of the text.
    source, sink : str
        Pause patterns of all inputs and of all outputs.
    """

    def __init__(
        self,
        dut: Any,
        salt: str,
        p: KelleParameters,
        layers: list[DecoderLayer],
        source: str = "none",
        sink: str = "none",
    ) -> None:
        self.dut, self.p, self.layers = dut, p, layers
        self.bench = bench = Bench(dut, f"{salt} {source} {sink}", timeout=TIMEOUT)
        self.script = Script(bench)
        names = (
            "scales",
            "prefill_scores",
            "prefill",
            "row_writes",
            "positions",
            "hidden",
            "weights",
            "lookup_request",
            "vector_request",
        )
        if p.overflow:
            names += ("overflow_rows",)
        self.sources = {name: bench.source(name, source) for name in names}
        # The end of a text has no pauses, since it must not be offered later than the next token.
        self.sources["clears"] = bench.source("clears")
        sinks = ["outputs", "normalised", "vector_stores"]
        if p.vocabulary_size:
            sinks.append("predictions")
        if p.overflow:
            sinks += ["overflow_reads", "overflow_writes"]
        self.sinks = {name: bench.sink(name, sink) for name in sinks}
        self.overflow: OverflowMemory | None = None
        if p.overflow:
            reads, writes = (self.sinks[f"overflow_{name}"] for name in ("reads", "writes"))
            self.overflow = OverflowMemory(p, self.sources["overflow_rows"], reads, writes)
            bench.add(self.overflow)
        word_bytes = p.channel_layout.size // 8
        # Layers of a test may be the same object.
        programs = {
            number: [
                int.from_bytes(word.tobytes(), "little")
                for word in layer_beats(layer, p).reshape(-1, word_bytes)
            ]
            for number, layer in {id(layer): layer for layer in layers}.items()
        }
        self.programs = [programs[id(layer)] for layer in layers]
        self.offers_weights = True
        # A test may offer illegal tokens instead.
        self.token_words = token_words
        # Cycle in which the first tick begins; and whether the next offer is to the LM head.
        self.begun = 0
        self.predicting = False
        # A host that pauses is also slow: it accepts a request when the scores of the next sequence
        # may be complete, and sends an input vector when the next step has waited for it.
        self.answer_after = WAITING if source != "none" else 0
        if sink != "none":
            stores = self.sinks["vector_stores"]
            stores.pauses = until_offered(stores, self.load_beats)
        # Tokens that the next layer's prefill keeps, offered as soon as a step's tokens are taken.
        self.next_prefill: list[Kept] = []
        self.placed: list[int] = []
        self.decoded: list[tuple[int, int]] = []
        # Number of tokens up to the end of each step.
        self.ends: list[int] = []
        self.begun_tokens = self.followed_tokens = self.waited = 0
        self.asking: list[int] = []
        self.answered = 0
        self.words = 0
        self.weight_cycles: dict[int, int] = {}
        bench.add(self)

    @property
    def step_words(self) -> int:
        """Words of weights per step."""
        return len(self.programs[0])

    @property
    def load_beats(self) -> int:
        """Beats of all loads of a step with a token of each sequence."""
        return load_beats(self.p, self.step_words, self.p.batch)

    @property
    def roofline(self) -> int:
        """Lower bound of such a step in cycles."""
        return self.bound(self.p.batch)

    def bound(self, tokens: int) -> int:
        """Return the lower bound of a step of some tokens in cycles."""
        return roofline(self.p, self.step_words, tokens)

    def clear(self) -> None:
        """Discard all recorded values."""
        self.placed = []
        self.decoded = []
        self.ends = []
        self.begun_tokens = self.followed_tokens = self.waited = 0
        self.asking = []
        self.answered = 0
        self.words = 0
        self.weight_cycles = {}
        for sink in self.sinks.values():
            sink.received.clear()

    def drive(self) -> None:
        """Answer requests for input vectors; select another layer as soon as a token is taken."""
        whole = max((end for end in self.ends if end <= self.begun_tokens), default=0)
        if self.followed_tokens != whole:
            self.followed_tokens = whole
            layer = self.decoded[whole - 1][0] // self.p.batch
            self.dut.layer.value = (layer + 1) % self.p.layers
            while self.next_prefill:
                self.send_kept(self.next_prefill.pop(0))
            if self.p.vocabulary_size:
                self.dut.predicts.value = not self.predicting
        for _cycle, request in self.sinks["vector_stores"].received[self.answered :]:
            if self.waited < self.answer_after:
                break
            asked = self._unpack(self.p.store_layout, [request])
            vector, position = int(asked["vector"][0]), int(asked["position"][0])
            cache = self.asking[self.answered]
            if self.p.batch > 1:
                cache += int(asked["sequence"][0])
            self.send_vector(cache, vector, self.input_of(cache, position))
            self.answered += 1

    def input_of(self, cache: int, position: int) -> Integers:
        """Return a token's input: the output of its decode step, or the state of its prefill."""
        if (cache, position) not in self.decoded:
            return self.layers[cache // self.p.batch].quantised[position]
        # A later text has the same positions.
        latest = len(self.decoded) - 1 - self.decoded[::-1].index((cache, position))
        return self._states("normalised")[latest]

    def sample(self) -> None:
        """Record placements, words of weights, and the step of each request for an input vector."""
        tokens = self.sources["positions"]
        self.begun_tokens += tokens.accepted
        self.waited = 0 if tokens.idle or tokens.accepted else self.waited + 1
        if self.sources["weights"].accepted:
            self.weight_cycles[self.words % self.step_words] = self.bench.cycle
            self.words += 1
        while len(self.asking) < len(self.sinks["vector_stores"].received):
            layer = self.decoded[self.begun_tokens - 1][0] // self.p.batch
            self.asking.append(layer * self.p.batch)
        placed = read(self.dut.placed)
        if placed >> self.placed_valid:
            self.placed.append(placed)

    @cached_property
    def placed_layout(self) -> data.StructLayout:
        """Layout of the port with placements."""
        return data.StructLayout({"placement": placement_layout(self.p.eviction), "valid": 1})

    @cached_property
    def placed_valid(self) -> int:
        """Bit of `valid`; cached, because a layout computes its size at each access."""
        return self.placed_layout.size - 1

    def begin(self, settings: RefreshSettings) -> Steps:
        """Set the refresh after a reset, and load the scales."""
        layout = self.p.memory.refresh.settings_layout
        self.dut.settings.value = to_integer(pack(layout, arrays(settings.payload)))
        self.choose(0)
        # The refresh controllers clear all entries before the first tick begins.
        self.begun = self.bench.cycle + self.p.memory.refresh.entries
        self.sources["scales"].send(to_integers(pack(*scale_words(self.layers, self.p))))
        yield from self.idle("scales")

    def choose(self, layer: int, sequence: int = 0, *, predicts: bool = False) -> None:
        """Set the layer of the next offer, and the sequence of a prefill; or select the LM head."""
        self.dut.layer.value = layer
        if self.p.batch > 1:
            self.dut.sequence_number.value = sequence
        self.predicting = predicts
        if self.p.vocabulary_size:
            self.dut.predicts.value = predicts
        self.dut.epsilon.value = self.layers[layer].epsilon

    def end_text(self, layer: int, sequence: int) -> None:
        """Offer the end of a sequence's text in a layer, before the next step."""
        self.choose(layer)
        self.sources["clears"].send([sequence])

    def fill(self, model: KelleModel, prefill: Prefill, select: bool) -> Steps:
        """Load the tokens that a prefill keeps, or let the unit select them.

        Rows of recomputed tokens contain noise. `Decode.check` compares the selected tokens slot by
        slot with the golden model.
        """
        cache = model.eviction.layer
        self.choose(*divmod(cache, self.p.batch))
        if select:
            # Rows are sent afterwards: rows of slots that are not in use are not refreshed.
            self.send_scores(prefill)
            yield from self.idle("prefill_scores")
            yield lambda: self.filled()[cache].sum() >= len(prefill.kept)
        else:
            for token in prefill.kept:
                self.send_kept(token)
        self.send_cache(model, prefill)
        yield from self.idle("prefill", "row_writes")

    def send_cache(self, model: KelleModel, prefill: Prefill) -> None:
        """Offer the rows of the tokens that a prefill keeps."""
        taken = [0] * self.p.kv_heads
        for token in prefill.kept:
            slot = taken[token.head]
            taken[token.head] += 1
            head = model.eviction.layer * self.p.kv_heads + token.head
            if token.vector != KEPT:
                self.send_noise(head, slot)
                continue
            sides = (memory[token.head, slot] for memory in (model.keys, model.values))
            self.send_slot(head, slot, *sides)
        for vector, values in model.inputs.items():
            self.send_vector(model.eviction.layer, vector, values)

    def send_scores(self, prefill: Prefill) -> None:
        """Offer a prefill's scores."""
        for scores in prefill.scores:
            slices = pack_slices(self.p.selector, scores, "tiles", self.bench.numpy_rng)
            self.sources["prefill_scores"].send(slices)

    def send_kept(self, token: Kept) -> None:
        """Offer a token that has been selected already."""
        values = {
            "head": [token.head],
            "token": {
                "position": [token.position],
                "recomputed": [int(token.vector != KEPT)],
                "vector": [max(token.vector, 0)],
            },
            "importance": [token.importance],
        }
        self.send("prefill", prefill_layout(self.p.eviction), arrays(values))

    def decode(self, tokens: Tokens, states: Integers, layer: int = 0) -> Steps:
        """Decode the tokens of a step, until their outputs are complete."""
        done = len(self.sinks["outputs"].received) + len(tokens) * self.p.hidden_slices
        self.offer(tokens, states, layer)
        yield lambda: len(self.sinks["outputs"].received) >= done

    def begin_step(self, tokens: Tokens, states: Integers, layer: int = 0) -> Steps:
        """Offer a step, until another one may be offered while this one is computed."""
        self.offer(tokens, states, layer)
        yield lambda: self.followed_tokens == len(self.decoded)

    def offer(self, tokens: Tokens, states: Integers, layer: int = 0) -> None:
        """Offer the tokens of a step, their hidden states [tokens, width], and its weights."""
        self.choose(layer)
        first = layer * self.p.batch
        self.decoded += [(first + sequence, now) for sequence, now in tokens]
        self.ends.append(len(self.decoded))
        self.sources["positions"].send(to_integers(self.token_words(self.p, tokens)))
        self.send("hidden", self.p.slice_layout, states.reshape(-1, self.p.rows))
        if self.offers_weights:
            self.offer_weights(layer)

    def offer_weights(self, layer: int = 0) -> None:
        """Offer a step's weights."""
        self.sources["weights"].send(self.programs[layer])

    async def predict(self, state: Integers, matrix: NDArray[Any], layer: int = 0) -> None:
        """Offer a state to the LM head, and wait for the prediction."""
        self.choose(layer, predicts=True)
        self.decoded.append((layer * self.p.batch, -1))
        self.ends.append(len(self.decoded))
        self.sources["positions"].send(to_integers(token_words(self.p, [(0, 0)])))
        self.send("hidden", self.p.slice_layout, state.reshape(-1, self.p.rows))
        words = matrix_beats(matrix, self.p).reshape(-1, self.p.channel_layout.size // 8)
        self.sources["weights"].send(to_integers(np.unpackbits(words, 1, bitorder="little")))
        done = len(self.sinks["predictions"].received) + 1
        await self.bench.run(until=lambda: len(self.sinks["predictions"].received) >= done)

    def predictions(self) -> Integers:
        """Return the predicted tokens and their logits."""
        payloads = [payload for _cycle, payload in self.sinks["predictions"].received]
        found = self._unpack(self.p.prediction_layout, payloads)
        return np.stack([found["token"], found["sum"]], axis=-1)

    def idle(self, *names: str) -> Steps:
        """Wait until the named streams have transferred everything."""
        yield lambda: all(self.sources[name].idle for name in names)

    async def run(self, *names: str) -> None:
        """Simulate until the named streams have transferred everything."""
        await self.script.run(self.idle(*names))

    def send(self, name: str, layout: Any, values: Any) -> None:
        """Offer values to a stream."""
        self.sources[name].send(to_integers(pack(layout, values)))

    def send_vector(self, cache: int, vector: int, values: Integers) -> None:
        """Offer the rows of an input vector."""
        edram = self.p.memory.edram
        entry = edram.vector_entry(cache * self.p.vectors + vector)
        self.send_rows(entry, *vector_rows(values, edram))

    def send_noise(self, head: int, slot: int) -> None:
        """Offer random rows to a slot of a head, counted over all layers."""
        noise = self.bench.numpy_rng.integers(-(1 << 15), 1 << 15, (2, self.p.head_size))
        self.send_slot(head, slot, *noise)

    def send_slot(self, head: int, slot: int, keys: Integers, values: Integers) -> None:
        """Offer the rows of a slot of a head, counted over all layers, or store them off-chip."""
        edram = self.p.memory.edram
        if self.overflow and head >= self.p.resident_heads:
            self.overflow.store(head, slot, keys, values)
        else:
            sides = np.stack([keys, values])
            self.send_rows(edram.entry(head, slot), *rows_of(sides, edram))

    def send_rows(self, entry: int, keys: Any, values: Any) -> None:
        """Offer rows from an entry on."""
        first = entry * self.p.memory.edram.entry_words
        rows = {"address": first + np.arange(len(keys)), "keys": keys, "values": values}
        self.send("row_writes", self.p.row_write, rows)

    def outputs(self) -> tuple[Integers, list[int]]:
        """Return the outputs [steps, width], and the cycle of each one's last slice."""
        cycles = [cycle for cycle, _payload in self.sinks["outputs"].received]
        return self._states("outputs"), cycles[self.p.hidden_slices - 1 :: self.p.hidden_slices]

    def weight_utilisation(self, ended: int) -> float:
        """Return the utilisation of the multipliers in a step's weight passes after the attention.

        The interval begins with the first beat of W_O and ends with the last output of the step; it
        includes the norm and the latency of the array. Each beat is `bands` rows of weights, by
        which the vector of every sequence is multiplied. A word that the unit holds before the
        interval counts from its arrival.
        """
        operations = [which for group in after_attention(self.p) for which in group]
        tiles = sum(
            self.p.operations(which) * self.p.head_slices * self._inputs(which)
            for which in operations
        )
        words = words_of(self.p, self.p.array.array.load_cycles)
        first = self.step_words - tiles * words
        return tiles * self.p.batch / (ended - self.weight_cycles[first] + 1)

    def _inputs(self, which: Operation) -> int:
        """Return the number of slices of a projection's vectors."""
        return self.p.intermediate_slices if which is Operation.DOWN else self.p.hidden_slices

    def normalised(self) -> Integers:
        """Return the inputs of attention blocks, [steps, width]."""
        return self._states("normalised")

    def _states(self, name: str) -> Integers:
        """Return the vectors that a sink has received, [steps, width]."""
        received = self.sinks[name].received
        whole = len(received) - len(received) % self.p.hidden_slices
        payloads = [payload for _cycle, payload in received[:whole]]
        return self._unpack(self.p.slice_layout, payloads).reshape(-1, self.p.hidden_size)

    def placements(self) -> Integers:
        """Return head, slot, evicted position or -1, and its vector or -1."""
        shown = self._unpack(self.placed_layout, self.placed)["placement"]
        evicted = shown["evicted"]
        evicts = shown["evicts"] == 1
        recomputed = evicts & (evicted["recomputed"] == 1)
        columns = (
            shown["head"],
            shown["slot"],
            np.where(evicts, evicted["position"], -1),
            np.where(recomputed, evicted["vector"], KEPT),
        )
        return np.stack(columns, axis=-1)

    def stores(self) -> Integers:
        """Return position and vector of all requests for input vectors."""
        payloads = [payload for _cycle, payload in self.sinks["vector_stores"].received]
        asked = self._unpack(self.p.store_layout, payloads)
        return np.stack([asked["position"], asked["vector"]], axis=-1)

    async def slots(self, caches: int) -> tuple[Integers, Integers]:
        """Return the position, and the vector or -1, of every slot, [cache, head, slot]."""
        layout = data.ArrayLayout(self.p.eviction.token_layout, self.p.rows)
        seen = []
        for address in range(caches * self.p.kv_heads * self.p.cache_tiles):
            self.sources["lookup_request"].send([address])
            await self.run("lookup_request")
            seen.append(read(self.dut.lookup_response))
        shown = self._unpack(layout, seen)
        vectors = np.where(shown["recomputed"] == 1, shown["vector"], KEPT)
        shape = (caches, self.p.kv_heads, self.p.slots)
        return shown["position"].reshape(shape), vectors.reshape(shape)

    def filled(self) -> Integers:
        """Return the slots in use, [cache, head]."""
        counts = data.ArrayLayout(self.p.slots.bit_length(), self.p.eviction.cached_heads)
        return self._unpack(counts, [int(self.dut.filled.value)]).reshape(self.p.caches, -1)

    async def vectors(self, caches: int) -> Integers:
        """Return the position of each stored vector, or -1, in the order of the caches."""
        layout = data.ArrayLayout(vector_layout(self.p.eviction), self.p.vectors)
        seen = []
        for cache in range(caches):
            self.sources["vector_request"].send([cache])
            await self.run("vector_request")
            seen.append(read(self.dut.vector_response))
        shown = self._unpack(layout, seen)
        return np.where(shown["valid"] == 1, shown["position"], -1).reshape(-1)

    def counts(self) -> Integers:
        """Return the number of refreshed words, [MSB, LSB] [HST, LST]."""
        layout = self.p.memory.refresh.counts_layout
        return self._unpack(layout, [int(self.dut.counts.value)])[0]

    def _unpack(self, layout: Any, payloads: list[int]) -> Any:
        return unpack(layout, from_integers(payloads, layout.size))
