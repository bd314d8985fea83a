"""Host driver of VEDA for a whole model: instructions for each block, and the host's state."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.veda.veda import Codes, lane_rows
from golden.veda.voting.vote_threshold import PAPER
from golden.veda.whole_model import Block
from hdl.veda.instructions import Leave, Operation, Space
from hdl.veda.parameters import VedaParameters
from testbenches.external_memory import External
from testbenches.harness import Harness, LongRun, Moved
from testbenches.harness_memory import BurstMemory, Store
from testbenches.packing import Bits, pack, to_integer, unpack
from testbenches.veda.functions.serial_bench import code_fields
from testbenches.veda.model_lines import CacheFile, address, bytes_of_line

TIMEOUT = 20_000
"""Timeout in cycles without any transfer."""


class Host:
    """The host of an accelerator: it holds memory, vote counts, and the length of each layer.

    Parameters
    ----------
    p : VedaParameters
        Dimensions of the accelerator.
    layers : int
        Layers of the model.
    cache : CacheFile
        File of keys and values.
    fixed : Sequence[tuple[Path, int]]
        Files of read-only lines, and their addresses.
    harness : Harness
        The compiled accelerator.
    seed : int
        Seed of the stalls of every stream; 0 for none.
    external : External, optional
        The memory of lines and vote counts; without it, all ports are ideal.

    Members
    -------
    length : int
        Slots that each layer uses.
    victims : list[int]
        For each layer, the slot that its next token takes, or -1.
    counts : dict[int, numpy.ndarray]
        Vote counts of each layer.
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
    lines_read, lines_before, cycle_before : int
        Beats that the last block fetched, and beats and cycles before it.
    """

    def __init__(
        self,
        p: VedaParameters,
        layers: int,
        cache: CacheFile,
        fixed: Sequence[tuple[Path, int]],
        harness: Harness,
        seed: int = 0,
        external: External | None = None,
    ) -> None:
        self.p, self.layers, self.cache = p, layers, cache
        memory = BurstMemory(
            file=cache.file,
            fixed=fixed,
            reads="reads",
            words="words",
            writes="writes",
            read_layout=p.read_layout,
            write_layout=p.write_layout,
            channels=p.channels,
            line_width=8 * bytes_of_line(p),
            address_width=p.address_layout.size,
            spread=_spread(p),
        )
        memories = [external, memory] if external else [memory]
        if external:
            # The counts of a layer's slots are adjacent.
            count_bytes = -(-p.voting.count_bits // 8)
            stride = count_bytes * p.slots
            first = external.reserve(stride * layers)
            external.route("counts_in", first, item_bytes=count_bytes, stride=stride)
        self._open = contextlib.ExitStack()
        self._session = self._open.enter_context(harness.session(memories, seed))
        self.length = 0
        self.victims = [-1] * layers
        self.counts: dict[int, NDArray[Any]] = {n: np.zeros(0, np.uint64) for n in range(layers)}
        # Layers whose next instruction loads the number of cached tokens.
        self._loads: dict[int, int] = dict.fromkeys(range(layers), 0)
        self.evictions: list[tuple[int, int]] = []
        self.states_left = np.zeros((0, p.hidden_size), np.uint16)
        self.prediction: tuple[int, int] | None = None
        self.lines_of_layers: list[int] = []
        self.bound = self.lines_read = self.lines_before = self.cycle_before = 0

    @property
    def cached(self) -> int:
        """Tokens that each layer caches, excluding victims."""
        return self.length - (self.victims[0] >= 0)

    def close(self) -> None:
        """Terminate the simulation."""
        self._open.close()

    def run(
        self, block: Block, states: Codes, watch: Callable[[Moved], None] | None = None
    ) -> LongRun:
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
        run = self._round(
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
        left = unpack(16, run.outputs["states_out"][:, :16]).astype(np.uint16)
        self.states_left = left.reshape(-1, p.hidden_size)
        self.prediction = self._predicted(run.outputs["predictions"])
        self._move_on(block, run, int(lengths[-1]))
        return run

    def _predicted(self, bits: Bits) -> tuple[int, int] | None:
        """Return the predicted token and the code of its logit."""
        if not len(bits):
            return None
        layout = self.p.prediction_layout
        token, code = (
            bits[0, layout[name].offset :][: layout[name].width] for name in ("token", "sum")
        )
        return to_integer(token), to_integer(code)

    def _round(
        self,
        inputs: dict[str, Bits],
        expected: dict[str, int],
        steps: list[tuple[int, int, int]],
        watch: Callable[[Moved], None] | None,
    ) -> LongRun:
        """Run the accelerator with the host's store of vote counts."""
        store = Store(given="counts_in", taken="counts_out", steps=steps, kept=self.counts)
        self.cycle_before = self._session.cycle
        coefficients = {name: np.array([number]) for name, number in vars(PAPER).items()}
        run = self._session.run(
            inputs,
            expected,
            driven={
                "threshold_coefficients": pack(
                    self.p.voting.threshold.coefficients_layout, coefficients
                ),
                "clear_flags": np.zeros((1, 1), np.uint8),
            },
            store=store,
            timeout=TIMEOUT,
            progress=0.25,
            watch=watch,
        )
        self.lines_read = run.counts["beats"] - self.lines_before
        self.lines_before = run.counts["beats"]
        return run

    def _move_on(self, block: Block, run: LongRun, length: int) -> None:
        """Update the host's state after a block; compact a trimmed cache."""
        p = self.p
        found = unpack(p.eviction_layout, run.outputs["evictions"])
        self.evictions = list(zip(found["layer"].tolist(), found["slot"].tolist(), strict=True))
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
        """Resume from a state: restore caches and vote counts, and search for each victim again.

        Only the accelerator stores a victim's slot, so it must search again: the token in the last
        slot attends once more, with vote counts of zero except for the victim's.
        """
        p = self.p
        self.length = length = state["keys"].shape[2]
        self.victims = state["victims"].tolist()
        for layer in range(self.layers):
            self.cache.store(state["keys"][layer], layer, value=False)
            self.cache.store(state["values"][layer], layer, value=True)
        # A victim in the last slot needs no search: appending a token uses that slot.
        self._loads = {layer: length - (victim >= 0) for layer, victim in enumerate(self.victims)}
        hidden = [layer for layer, victim in enumerate(self.victims) if 0 <= victim < length - 1]
        if hidden:
            vectors, instructions = [], []
            for layer in hidden:
                instructions.append(self._instruction(Operation.ATTENTION, layer, evictions=1))
                last = (state[name][layer, :, -1] for name in ("keys", "values"))
                for heads in (*last, np.zeros((p.heads, p.head_size), np.uint16)):
                    vectors.append(lane_rows(heads, p))
                self.counts[layer] = (np.arange(length) == self.victims[layer]).astype(np.uint64)
            rows = np.concatenate(vectors).astype("<u2")
            bits = np.unpackbits(rows.view(np.uint8), axis=-1, bitorder="little")
            self._round(
                {"instructions": np.concatenate(instructions), "vectors": bits},
                {"outputs": p.rounds * len(hidden), "evictions": len(hidden)},
                [(layer, length, length) for layer in hidden],
                None,
            )
            for layer in hidden:
                del self._loads[layer]
        for layer in range(self.layers):
            self.counts[layer] = state["counts"][layer].astype(np.uint64)

    def written_at(self, run: LongRun, layer: int, place: tuple[int, ...], *, value: bool) -> str:
        """Return the time of the last write to a line of the cache in a run, as text."""
        p, layout = self.p, self.p.cache_line
        kv_head, slot, element = place
        line = (
            (slot << layout["slot"].offset)
            + (element // p.array.plane_width << layout["part"].offset)
            + (int(value) << layout["value"].offset)
            + (kv_head << layout["kv_head"].offset)
        )
        here = address(p, Space.CACHE, layer=layer, line=line)
        cycles = run.writes[run.writes[:, 0] == here, 1]
        return f", written in cycle {cycles[-1]}" if len(cycles) else ", written before"


def _spread(p: VedaParameters) -> dict[int, tuple[int, int]]:
    """Return the field of each space that is lowest in memory: offset and width in bits.

    The lines of one beat are then adjacent: those of all channels, or those of all heads.
    """
    fields = {
        Space.CACHE: (p.cache_line, "kv_head"),
        Space.WEIGHTS: (p.weight_line, "channel"),
        Space.VOCABULARY: (p.vocabulary_line, "channel"),
        Space.ANGLES: (p.angle_line, "part"),
    }
    return {
        space.value: (layout[name].offset, layout[name].width)
        for space, (layout, name) in fields.items()
    }
