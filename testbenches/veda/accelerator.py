"""Bench of VEDA's accelerator: streams, memories, and comparison of results with the model."""

from typing import Any

import numpy as np

from hdl.veda.voting.threshold_parameters import COEFFICIENT_BITS
from testbenches.bench import Bench, catalog_parameters
from testbenches.packing import code_fields, from_integers, pack, to_integers, unpack
from testbenches.veda.decode_work import DecodeWork
from testbenches.veda.hbm_timing import HbmTiming
from testbenches.veda.layer_weights import angle_lines, vocabulary_lines, weight_lines
from testbenches.veda.off_chip_memory import CountMemory, OffChipMemory

TIMEOUT = 3_000
"""Timeout in cycles without an instruction, vector, output or victim, apart from layers."""


class Accelerator:
    """A bench with the accelerator's streams and an off-chip memory."""

    def __init__(
        self,
        dut: Any,
        salt: str,
        source: str = "none",
        sink: str = "none",
        *,
        timing: HbmTiming | None = None,
    ) -> None:
        self.dut = dut
        self.p = p = catalog_parameters()
        # Whole layers may run back to back without an output, each stalled at every beat.
        timeout = TIMEOUT + 8 * p.block * (sum(p.beats.values()) + 1000)
        self.bench = bench = Bench(dut, salt, timeout=timeout)
        self.memory = bench.add(
            OffChipMemory(
                dut,
                self.p,
                (bench.pauses(sink), bench.pauses(sink), bench.pauses(source)),
                timing,
            )
        )
        self.counts = bench.add(CountMemory(dut, (bench.pauses(source), bench.pauses(sink))))
        self.instructions = bench.source("instructions", source)
        self.vectors = bench.source("vectors", source)
        self.states_in = bench.source("states_in", source)
        self.outputs = bench.sink("outputs", sink)
        self.states_out = bench.sink("states_out", sink)
        self.evictions = bench.sink("evictions", sink)
        self.predictions = bench.sink("predictions", sink) if p.vocabulary_size else None
        dut.clear_flags.value = 0

    def offer(self, work: DecodeWork) -> None:
        """Fill the memory, and offer all instructions, vectors and states."""
        for layer, (keys, values, counts) in work.loaded.items():
            self.memory.store(keys, layer=layer, value=False)
            self.memory.store(values, layer=layer, value=True)
            self.counts.kept[layer] = counts.tolist()
        for layer, decoder in work.decoders.items():
            self.memory.store_weights(weight_lines(self.p, decoder.weights), layer=layer)
        if work.vocabulary is not None:
            self.memory.store_vocabulary(vocabulary_lines(self.p, work.vocabulary))
        for position in work.positions:
            self.memory.store_angles(angle_lines(self.p, position), position=position)
        self.outputs.received.clear()
        self.states_out.received.clear()
        self.evictions.received.clear()
        if self.predictions is not None:
            self.predictions.received.clear()
        self.counts.expect(
            [
                (layer, step.length, len(step.counts))
                for layer, step in zip(work.layers, work.steps, strict=True)
            ]
        )
        self.dut.threshold_coefficients.value = (
            work.coefficients.mean | work.coefficients.deviation << COEFFICIENT_BITS
        )
        self.instructions.send(work.instructions)
        self.vectors.send(work.vectors)
        for states in work.states_in:
            ends = np.arange(states.size) == states.size - 1
            elements = {"value": code_fields(states.reshape(-1)), "last": ends.astype(np.int64)}
            self.states_in.send(to_integers(pack(self.p.state_layout, elements)))

    async def run(self, work: DecodeWork) -> int:
        """Reset, run all work and compare its results; return the cycles to the last output."""
        await self.bench.reset()
        self.offer(work)
        rows = len(work.alone) * self.p.rounds
        elements = sum(states.size for states in work.states_out)
        cycles = await self.bench.run(
            until=lambda: (
                len(self.outputs.received) == rows and len(self.states_out.received) == elements
            )
        )
        await self.bench.run(
            until=lambda: (
                len(self.evictions.received) == len(work.evictions)
                and len(self.counts.received) > len(work.steps)
                and len(self.predicted) == len(work.predictions)
            )
        )
        await self.bench.step(20)
        self._check(work)
        return cycles

    @property
    def predicted(self) -> list[tuple[int, int]]:
        """Cycle and payload of each prediction so far."""
        return [] if self.predictions is None else self.predictions.received

    def _check(self, work: DecodeWork) -> None:
        """Compare every output, vote count and victim, and the final content of the memory."""
        p, compare = self.p, self.bench.compare
        cycles = [cycle for cycle, _payload in self.outputs.received]
        size = p.beat_layout.size // 8
        got = b"".join(row.to_bytes(size, "little") for _cycle, row in self.outputs.received)
        none = np.zeros((0, p.lanes, p.head_size), np.uint16)
        compare(
            "outputs",
            np.concatenate([none, *(work.steps[number].outputs for number in work.alone)]),
            np.frombuffer(got, "<u2").reshape(-1, p.lanes, p.head_size),
            cycles=cycles,
            show=lambda code: f"{int(code):#06x}",
        )
        self._check_states(work)
        if p.vocabulary_size:
            self._check_predictions(work)
        layout = p.eviction_layout
        packed = from_integers(
            [payload for _cycle, payload in self.evictions.received], layout.size
        )
        evicted = unpack(layout, packed)
        compare(
            "victims (layer, slot)",
            np.array(work.evictions).reshape(-1, 2),
            np.stack([evicted["layer"], evicted["slot"]], axis=-1),
            cycles=[cycle for cycle, _payload in self.evictions.received],
        )
        sent = [np.array(counts, np.int64) for counts in self.counts.received]
        for number, step in enumerate(work.steps):
            compare(f"votes after step {number}", step.counts, sent[number])
        for layer, model in work.models.items():
            for value, cache in ((False, model.keys), (True, model.values)):
                compare(
                    f"layer {layer}: {'values' if value else 'keys'} in memory",
                    cache[:, : model.length],
                    self.memory.cached(layer=layer, value=value, length=model.length),
                )

    def _check_predictions(self, work: DecodeWork) -> None:
        """Compare the predicted tokens and their logits."""
        layout = self.p.prediction_layout
        packed = from_integers([payload for _cycle, payload in self.predicted], layout.size)
        sums = from_integers(
            [payload >> layout["sum"].offset for _c, payload in self.predicted], layout["sum"].width
        )
        tokens = unpack(layout["token"].shape, packed[:, : layout["token"].width])
        codes = unpack(layout["sum"].width, sums)
        self.bench.compare(
            "predictions (token, sum)",
            np.array(work.predictions, np.int64).reshape(-1, 2),
            np.stack([tokens, codes], axis=-1),
            cycles=[cycle for cycle, _payload in self.predicted],
        )

    def _check_states(self, work: DecodeWork) -> None:
        """Compare the output hidden states, and the `last` marks."""
        layout = self.p.state_layout
        cycles = [cycle for cycle, _payload in self.states_out.received]
        packed = [payload for _cycle, payload in self.states_out.received]
        left = from_integers(packed, layout.size).astype(np.int64) @ (1 << np.arange(layout.size))
        none = np.zeros((0, self.p.hidden_size), np.int64)
        states = np.concatenate([none, *work.states_out])
        ends = np.arange(self.p.hidden_size) == self.p.hidden_size - 1
        self.bench.compare(
            "hidden states",
            (states | ends << 16).reshape(-1),
            left,
            cycles=cycles,
            show=lambda code: f"{int(code):#07x}",
        )
