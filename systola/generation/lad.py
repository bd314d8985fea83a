"""Text generation with LAD: decoding with intermediate caches, and the LM head."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import values
from golden.lad.lad_tile import Step, equation_7
from golden.lad.whole_model import HalfModel, TokenResult, WholeModel
from golden.llm.language_model import LanguageModel
from hdl.lad.parameters import LadParameters, LadTileParameters
from hdl.model_shape import ModelShape, fitted
from systola.generation.model_memory import model_memory
from systola.generation.system import (
    Block,
    BlockProgress,
    Mismatch,
    Outcome,
    Settings,
    System,
    first_difference,
    half_codes,
    require_finite,
)
from testbenches.harness import Moved
from testbenches.lad.head_rows import HeadRows
from testbenches.lad.host import Host
from testbenches.lad.weight_bytes import file_items, file_pieces

State = dict[str, NDArray[Any]]


class LadSystem(System):
    """LAD with all layers of a model; off-chip memory holds the rows of all heads.

    The accelerator decodes all tokens of a text, including the prompt. All samples of a batch
    process the same text.
    """

    top, name = "lad", "LAD"
    bound = "products of matrices, and Equation 7"
    compared = "tokens, their sums, states after all layers, and the rows of all heads"
    evicts = False
    budgets = False

    @classmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> LadParameters:
        """Return the preset with the model's dimensions; on-chip memories grow if necessary."""
        p: LadParameters = dimensions
        s = model.shape
        return fitted(p, s, multiple=s.head_size, tile=cls._fitted_tile(s, p))

    @staticmethod
    def _fitted_tile(s: ModelShape, p: LadParameters) -> LadTileParameters:
        """Return the tile with the model's head size, and room for all heads and matrices."""
        tile = p.tile
        vector = replace(tile.vector, head_size=s.head_size)
        sfm = replace(tile.sfm, vector=vector, hidden_size=s.hidden_size)
        intermediate_slices = -(-s.intermediate_size // s.head_size)
        projected = (s.heads + 2 * s.kv_heads) // p.periods
        sums = max(sfm.slices, projected, 2 * intermediate_slices) * s.head_size
        groups = -(-sums // (tile.linear.units * p.tiles))
        # The heads of a group share one tile.
        shared = s.group_size if tile.prefetched else 1
        least = -(-s.layers * s.heads * p.batch // shared // p.tiles) * shared
        stored_heads = -(-max(tile.stored_heads, least) // shared) * shared
        linear = replace(
            tile.linear,
            vector=vector,
            slices=max(tile.linear.slices, sfm.slices, s.heads, intermediate_slices),
            groups=max(tile.linear.groups, groups),
        )
        return replace(
            tile,
            stored_heads=stored_heads,
            shared=shared,
            kept=(tile.kept or tile.slots) if shared > 1 else 0,
            eas=replace(tile.eas, vector=vector),
            md=replace(tile.md, vector=vector),
            ac=replace(tile.ac, vector=vector),
            sfm=sfm,
            linear=linear,
        )

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        self.p: LadParameters
        self.longest = min(self.p.context_length, model.shape.context_length)
        self.host: Host | None = None
        self.golden: WholeModel | None = None
        self.done = 0

    def prepare_golden(self, report: Callable[[str], None]) -> None:
        """Read the matrices for the golden model."""
        report("reading the model's matrices")
        self.half = HalfModel.of(self.model, self.p)
        self.embedding = half_codes(self.name, "the embedding", self.model.embedding)
        self.golden = WholeModel(self.p, self.half)

    def prepare(self, report: Callable[[str], None]) -> None:
        """Compile, build the golden model, and write the weights in the order of fetching."""
        super().prepare(report)

        def pieces() -> Iterable[tuple[int, NDArray[np.uint8]]]:
            return file_pieces(self.half, self.p)

        self.kept = self.model_file("weights")
        self.weights = model_memory(self.kept, pieces, report)

    def logits(self, tokens: list[int]) -> NDArray[np.floating]:
        """Decode all tokens, in all samples of the batch."""
        assert self.golden is not None
        self.golden.begin()
        found: list[NDArray[np.floating]] = []
        for position, token in enumerate(tokens):
            result = self.golden.step(position, self.embedding[[token] * self.p.batch])
            assert result.sums is not None
            found.append(values(result.sums[0]))
        return np.stack(found)

    def begin(self, state: State | None) -> None:
        """Start the program with empty heads, or with the rows of a checkpoint."""
        assert self.golden is not None
        self._remove_stale()
        rows = HeadRows(self.p, self.folder / f"rows-{os.getpid()}.memory")
        self._open.callback(rows.file.unlink, missing_ok=True)
        rows.create()
        self.done = 0
        if state is not None:
            rows.load(state)
            self.done = state["keys"].shape[1]
        # Only the chip holds prefetched rows; they do not change any result.
        self.golden.begin(rows.model_heads(self.done))
        self.rows = rows
        items = file_items(self.weights, self.p)
        self.host = Host(self.p, self.half, self.harness, rows, items, external=self.external)
        self._open.callback(self.host.close)

    def _remove_stale(self) -> None:
        """Remove the row files of killed processes."""
        for file in self.folder.glob("rows-*.memory"):
            if not Path("/proc", file.stem.removeprefix("rows-")).exists():
                file.unlink(missing_ok=True)

    def run(
        self, block: Block, tokens: list[int], watch: Callable[[BlockProgress], None]
    ) -> Outcome:
        """Run a token through the Verilog, and through the golden model at the same time."""
        host, golden = self.host, self.golden
        assert host is not None and golden is not None
        states = np.repeat(self.embedding[tokens], self.p.batch, axis=0)
        expected: Future[TokenResult] | None = None
        if self.settings.check:
            expected = self._pool.submit(golden.step, block.first, states, predict=block.predict)
        transfers = host.transfers
        ends = list(accumulate(transfers if block.predict else transfers[:-1]))

        def moved(layer: int, progress: Moved, began: int) -> None:
            done = progress.counts["weights"] + (ends[layer - 1] if layer else 0)
            watch(
                BlockProgress(
                    layer=layer,
                    fraction=min(1.0, done / ends[-1]),
                    cycles=progress.cycle - began,
                    seconds=progress.seconds,
                )
            )

        host.run(block.first, states, predict=block.predict, watch=moved)
        self.done = block.first + 1
        bound, decided = float(golden.products(predict=block.predict)), {}
        if expected is not None:
            result = expected.result()
            self._compare(result)
            steps = [step for own in result.steps for step in own]
            bound += sum(equation_7(self.p.tile, step) for step in steps)
            decided = _decided(steps)
        return Outcome(
            token=host.predictions[0][0] if host.predictions else None,
            cycles=host.cycles,
            bound=round(bound / self.p.tiles),
            bytes_read=host.bytes_read,
            bytes_written=host.bytes_written,
            decided=decided,
            seconds=host.seconds,
        )

    def _compare(self, expected: TokenResult) -> None:
        """Compare the states after the layers, the rows of the heads, and the outputs."""
        host, golden = self.host, self.golden
        assert host is not None and golden is not None
        require_finite(self.name, values(expected.states))
        difference = first_difference(expected.states, host.states, ("layer", "sample", "element"))
        if difference:
            words, (layer, sample, element) = difference
            place = element // self.p.head_size * self.p.batch + sample
            raise Mismatch(f"state after {words}, in cycle {host.when[layer][place]}")
        if not np.array_equal(expected.flags, host.flags):
            raise Mismatch(
                f"layers up to which a denominator is not positive: {host.flags} "
                f"instead of {expected.flags}"
            )
        if found := self.rows.difference(golden.lad.tiles.heads, self.done):
            _name, head, words = found
            layer = golden.lad.layer(head)
            raise Mismatch(f"layer {layer}, (batch, head) pair {head}, {words}")
        self._compare_traffic([step for own in expected.steps for step in own])
        if expected.predictions and expected.predictions != host.predictions:
            raise Mismatch(
                f"LM head, token and sum: {host.predictions} instead of {expected.predictions}"
            )

    def _compare_traffic(self, steps: list[Step]) -> None:
        """Compare the number of payloads on each stream to and from the heads' rows."""
        assert self.host is not None
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
        if self.host.carried != expected:
            raise Mismatch(f"payloads of streams: {self.host.carried} instead of {expected}")

    def cached_state(self, tokens: list[int]) -> State:
        """Return the rows of all heads after a text."""
        assert self.golden is not None
        self.golden.begin()
        for position, token in enumerate(tokens):
            states = self.embedding[[token] * self.p.batch]
            self.golden.step(position, states, predict=False)
        rows = HeadRows(self.p, self.folder / f"rows-{os.getpid()}.memory")
        return rows.state_of(self.golden.lad.tiles.heads, len(tokens))

    def state(self) -> State:
        """Return the rows of all heads."""
        return self.rows.state(self.done)


def _decided(steps: list[Step]) -> dict[str, int]:
    """Count the decisions of the attention's mechanisms for one token."""
    return {
        "positions": sum(int(step.active[-1]) + 1 for step in steps),
        "keys of centres and large modes": sum(len(step.fetched) for step in steps),
        "active positions": sum(len(step.active) for step in steps),
        "updated modes": sum(len(step.changed) for step in steps),
        "prefetched active positions": sum(step.hits for step in steps),
        "denominators not positive": sum(step.not_positive for step in steps),
        "steps": len(steps),
    }
