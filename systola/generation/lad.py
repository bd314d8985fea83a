"""LAD speaks: whole layers token by token, attention by intermediate caches, and the vocabulary."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.lad.lad_tile import Step, equation_7
from golden.lad.whole_model import HalfModel, TokenResult, WholeModel
from golden.llm.language_model import LanguageModel
from golden.llm.model import ModelShape
from hdl.errors import UserError
from hdl.lad.lad_parameters import LadParameters
from hdl.lad.lad_tile_parameters import LadTileParameters
from systola.generation.model_memory import model_memory
from systola.generation.system import (
    Block,
    Mismatch,
    Moving,
    Outcome,
    Settings,
    System,
    first_difference,
)
from testbenches.harness import Moved
from testbenches.lad.head_rows import HeadRows
from testbenches.lad.speech import Speech
from testbenches.lad.weight_octets import file_items, file_pieces

State = dict[str, NDArray[Any]]


class LadSystem(System):
    """LAD with all layers of a model, whose heads' rows stand outside.

    All tokens of a text are decoded, those of the prompt too. Each sample of a batch has the text.
    """

    top, name = "lad", "LAD"
    bound = "products of matrices, and Equation 7"
    compared = "tokens, their sums, states behind all layers, and all that stands outside of heads"
    evicts = False
    budgets = False

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> LadParameters:
        """Return the preset with the model's dimensions; memories on chip grow if they must."""
        p: LadParameters = dimensions
        s = model.shape
        cls.require_epsilon(s)
        if s.width % s.head_size:
            raise UserError(
                f"the hidden state of a model for LAD must be a multiple of its head size, "
                f"{s.head_size}, not {s.width}"
            )
        feed_forward = -(-s.feed_forward // s.head_size) * s.head_size
        return replace(
            p,
            tile=cls._fitted_tile(s, p, feed_forward),
            layers=s.layers,
            heads=s.heads,
            kv_heads=s.kv_heads,
            feed_forward=feed_forward,
            vocabulary=s.vocabulary,
        )

    @staticmethod
    def _fitted_tile(s: ModelShape, p: LadParameters, feed_forward: int) -> LadTileParameters:
        """Return the tile with vectors of a head, and places for all heads and matrices."""
        tile = p.tile
        vector = replace(tile.vector, head_size=s.head_size)
        gated, width = feed_forward // s.head_size, s.width // s.head_size
        sums = max(width, (s.heads + 2 * s.kv_heads) // p.periods, 2 * gated) * s.head_size
        groups = -(-sums // (tile.linear.units * p.tiles))
        # A group's heads are in one tile.
        shared = s.heads // s.kv_heads if tile.prefetched else 1
        least = -(-s.layers * s.heads * p.batch // shared // p.tiles) * shared
        heads = -(-max(tile.heads, least) // shared) * shared
        linear = replace(
            tile.linear,
            vector=vector,
            slices=max(tile.linear.slices, width, s.heads, gated),
            groups=max(tile.linear.groups, groups),
        )
        return replace(
            tile,
            heads=heads,
            shared=shared,
            kept=(tile.kept or tile.capacity) if shared > 1 else 0,
            eas=replace(tile.eas, vector=vector),
            md=replace(tile.md, vector=vector),
            ac=replace(tile.ac, vector=vector),
            sfm=replace(tile.sfm, vector=vector, width=s.width),
            linear=linear,
        )

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        self.p: LadParameters
        self.longest = min(self.p.tile.capacity, model.shape.longest_context)
        self.speech: Speech | None = None
        self.golden: WholeModel | None = None
        self.done = 0

    def prepare(self, report: Callable[[str], None]) -> None:
        """Compile, write the weights as they are fetched, and lay them out for the golden model."""
        self.compile(report)
        report("reading the model's matrices")
        self.half = HalfModel.of(self.model, self.p)
        self.embedding = codes(self.model.embedding)
        self.golden = WholeModel(self.p, self.half)
        self.weights = self.folder / f"weights-{self.model.digest[:12]}.memory"

        def pieces() -> Iterable[tuple[int, NDArray[np.uint8]]]:
            return file_pieces(self.half, self.p)

        description = {"model": self.model.digest, "parameters": repr(self.p)}
        model_memory(self.weights, description, pieces, report)

    def begin(self, state: State | None) -> None:
        """Start the program, with heads that have no positions, or those of a checkpoint."""
        assert self.golden is not None
        self._remove_stale()
        rows = HeadRows(self.p, self.folder / f"rows-{os.getpid()}.memory")
        self._open.callback(rows.file.unlink, missing_ok=True)
        rows.create()
        self.done = 0
        if state is not None:
            rows.load(state)
            self.done = state["keys"].shape[1]
        # What was fetched ahead is on the chip alone, and changes no number.
        self.golden.begin(rows.model_heads(self.done))
        self.rows = rows
        self.speech = Speech(
            self.p, self.half, self.harness, rows, file_items(self.weights, self.p)
        )
        self._open.callback(self.speech.close)

    def _remove_stale(self) -> None:
        """Remove the rows of processes that were killed."""
        for file in self.folder.glob("rows-*.memory"):
            if not Path("/proc", file.stem.removeprefix("rows-")).exists():
                file.unlink(missing_ok=True)

    def run(self, block: Block, tokens: list[int], watch: Callable[[Moving], None]) -> Outcome:
        """Take a token through the Verilog, and through the golden model at the same time."""
        speech, golden = self.speech, self.golden
        assert speech is not None and golden is not None
        states = np.repeat(self.embedding[tokens], self.p.batch, axis=0)
        expected: Future[TokenResult] | None = None
        if self.settings.check:
            expected = self._pool.submit(golden.step, block.first, states, predict=block.predict)
        transfers = speech.transfers
        ends = list(accumulate(transfers if block.predict else transfers[:-1]))

        def moved(layer: int, progress: Moved, began: int) -> None:
            done = progress.counts["weights"] + (ends[layer - 1] if layer else 0)
            share, cycles = min(1.0, done / ends[-1]), progress.cycle - began
            watch(Moving(layer=layer, share=share, cycles=cycles, seconds=progress.seconds))

        speech.run(block.first, states, predict=block.predict, watch=moved)
        self.done = block.first + 1
        bound, decided = float(golden.products(predict=block.predict)), {}
        if expected is not None:
            result = expected.result()
            self._compare(result)
            steps = [step for own in result.steps for step in own]
            bound += sum(equation_7(self.p.tile, step) for step in steps)
            decided = _decided(steps)
        return Outcome(
            token=speech.predictions[0][0] if speech.predictions else None,
            cycles=speech.cycles,
            bound=round(bound / self.p.tiles),
            octets_read=speech.octets_read,
            octets_written=speech.octets_written,
            decided=decided,
            seconds=speech.seconds,
        )

    def _compare(self, expected: TokenResult) -> None:
        """Compare the states behind the layers, what the heads have, and what left."""
        speech, golden = self.speech, self.golden
        assert speech is not None and golden is not None
        difference = first_difference(
            expected.states, speech.states, ("layer", "sample", "element")
        )
        if difference:
            words, (layer, sample, element) = difference
            place = element // self.p.head_size * self.p.batch + sample
            raise Mismatch(f"state behind {words}, in cycle {speech.when[layer][place]}")
        if not np.array_equal(expected.flags, speech.flags):
            raise Mismatch(
                f"layers with a denominator that is not positive until there: {speech.flags} "
                f"instead of {expected.flags}"
            )
        if found := self.rows.difference(golden.lad.tile.heads, self.done):
            _name, head, words = found
            layer = golden.lad.layer(head)
            raise Mismatch(f"layer {layer}, head-sample {head}, {words}")
        self._compare_traffic([step for own in expected.steps for step in own])
        if expected.predictions and expected.predictions != speech.predictions:
            raise Mismatch(
                f"vocabulary, token and sum: {speech.predictions} instead of {expected.predictions}"
            )

    def _compare_traffic(self, steps: list[Step]) -> None:
        """Compare how many payloads each stream to and from the heads' rows has carried."""
        assert self.speech is not None
        columns = len(steps) * self.p.tile.ac.columns
        groups = sum(step.moved.groups for step in steps)
        active = sum(len(step.active) for step in steps)
        ahead = sum(step.ahead - step.hits for step in steps) if self.p.tile.prefetched else 0
        expected = {
            "groups": groups,
            "keys": sum(len(step.fetched) for step in steps),
            "active": active + ahead,
            "tallies": active,
            "caches": columns,
            "appends": len(steps),
            "centres": len(steps),
            "marks": groups,
            "counters": active,
            "columns": columns,
        }
        if self.speech.carried != expected:
            raise Mismatch(f"payloads of streams: {self.speech.carried} instead of {expected}")

    def state(self) -> State:
        """Return what stands outside of all heads."""
        return self.rows.state(self.done)


def _decided(steps: list[Step]) -> dict[str, int]:
    """Return what the attention's mechanisms decided in a token."""
    return {
        "positions": sum(int(step.active[-1]) + 1 for step in steps),
        "keys of centres and large modes": sum(len(step.fetched) for step in steps),
        "active positions": sum(len(step.active) for step in steps),
        "updated modes": sum(len(step.changed) for step in steps),
        "active positions fetched ahead": sum(step.hits for step in steps),
        "denominators not positive": sum(step.not_positive for step in steps),
        "steps": len(steps),
    }
