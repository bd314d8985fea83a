"""Text generation with LAD: decoding with intermediate caches, and the LM head."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import values
from golden.lad.lad_tile import Head, Step, equation_7
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
from testbenches.lad.head_rows import HeadRows
from testbenches.lad.host import Host
from testbenches.lad.stored_heads import StoredHeads
from testbenches.lad.weight_bytes import file_items, file_pieces
from testbenches.long_run import Moved

State = dict[str, NDArray[Any]]


@dataclass(kw_only=True)
class Decoded:
    """Result of a token of each sample.

    Members
    -------
    states : array [layers, batch, hidden_size]
        Hidden states after each layer.
    flags : array [layers]
        Whether any denominator up to this layer was not positive.
    when : array [layers, slices] or None
        Cycle of each slice of the states, if known.
    predictions : list of (int, int)
        Predicted token of each sample, and its sum.
    cycles, seconds : int, float
        Cycles and wall-clock time of the token.
    bytes_read, bytes_written : int
        Bytes at the ports.
    """

    states: NDArray[np.uint16]
    flags: NDArray[np.bool_]
    when: NDArray[np.int64] | None = None
    predictions: list[tuple[int, int]]
    cycles: int
    bytes_read: int
    bytes_written: int
    seconds: float


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
        self.p: Any
        self.longest = min(self.lad.context_length, model.shape.context_length)
        self.host: Host | None = None
        self.golden: WholeModel | None = None
        self.rows: StoredHeads | None = None
        self.done = 0

    @property
    def lad(self) -> LadParameters:
        """Dimensions of LAD itself."""
        return self.p

    def prepare_golden(self, report: Callable[[str], None]) -> None:
        """Read the matrices for the golden model."""
        report("reading the model's matrices")
        self.half = HalfModel.of(self.model, self.lad)
        self.embedding = half_codes(self.name, "the embedding", self.model.embedding)
        self.golden = WholeModel(self.lad, self.half)

    def prepare(self, report: Callable[[str], None]) -> None:
        """Compile, build the golden model, and write the weights in the order of fetching."""
        super().prepare(report)

        def pieces() -> Iterable[tuple[int, NDArray[np.uint8]]]:
            return file_pieces(self.half, self.lad)

        self.kept = self.model_file("weights")
        self.weights = model_memory(self.kept, pieces, report)

    def logits(self, tokens: list[int]) -> NDArray[np.floating]:
        """Decode all tokens, in all samples of the batch."""
        assert self.golden is not None
        self.golden.begin()
        found: list[NDArray[np.floating]] = []
        for position, token in enumerate(tokens):
            result = self.golden.step(position, self.embedding[[token] * self.lad.batch])
            assert result.sums is not None
            found.append(values(result.sums[0]))
        return np.stack(found)

    def begin(self, state: State | None) -> None:
        """Start the program with empty heads, or with the rows of a checkpoint."""
        assert self.golden is not None
        self._remove_stale()
        rows = self._new_rows(state)
        self._open.callback(rows.file.unlink, missing_ok=True)
        self.done = 0 if state is None else state["keys"].shape[1]
        # Only the chip holds prefetched rows; they do not change any result.
        self.golden.begin(rows.model_heads(self.done))
        self.rows = rows
        items = file_items(self.weights, self.lad)
        self.host = Host(self.lad, self.half, self.harness, rows, items, external=self.external)
        self._open.callback(self.host.close)

    def _new_rows(self, state: State | None) -> HeadRows:
        """Create a file with empty heads, or with the rows of a checkpoint."""
        rows = HeadRows(self.lad, self.folder / f"rows-{os.getpid()}.memory")
        rows.create()
        if state is not None:
            rows.load(state)
        return rows

    def heads_of(self, state: State) -> list[Head]:
        """Return the rows of a checkpoint as heads of the golden model."""
        rows = self._new_rows(state)
        heads = rows.model_heads(state["keys"].shape[1])
        rows.file.unlink()
        return heads

    def state_of(self, heads: list[Head], length: int) -> State:
        """Return heads of the golden model as the rows of a checkpoint."""
        return HeadRows(self.lad, self.folder).state_of(heads, length)

    def _remove_stale(self) -> None:
        """Remove the row files of killed processes."""
        for file in self.folder.glob("rows-*.memory"):
            if not Path("/proc", file.stem.removeprefix("rows-")).exists():
                file.unlink(missing_ok=True)

    def run(
        self, block: Block, tokens: list[int], watch: Callable[[BlockProgress], None]
    ) -> Outcome:
        """Run a token through the Verilog, and through the golden model at the same time."""
        golden = self.golden
        assert golden is not None
        states = np.repeat(self.embedding[tokens], self.lad.batch, axis=0)
        expected: Future[TokenResult] | None = None
        if self.settings.check:
            expected = self._pool.submit(golden.step, block.first, states, predict=block.predict)
        decoded = self._decoded(block, states, watch)
        self.done = block.first + 1
        bound, decided = float(golden.products(predict=block.predict)), {}
        if expected is not None:
            result = expected.result()
            self._compare(decoded, result)
            steps = [step for own in result.steps for step in own]
            bound += sum(equation_7(self.lad.tile, step) for step in steps)
            decided = _decided(steps)
        return Outcome(
            token=decoded.predictions[0][0] if decoded.predictions else None,
            cycles=decoded.cycles,
            bound=round(bound / self.lad.tiles),
            bytes_read=decoded.bytes_read,
            bytes_written=decoded.bytes_written,
            decided=decided,
            seconds=decoded.seconds,
        )

    def _decoded(
        self, block: Block, states: NDArray[np.uint16], watch: Callable[[BlockProgress], None]
    ) -> Decoded:
        """Run a token of each sample with its embedded state."""
        host = self.host
        assert host is not None
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
        return Decoded(
            states=host.states,
            flags=host.flags,
            when=host.when,
            predictions=host.predictions,
            cycles=host.cycles,
            bytes_read=host.bytes_read,
            bytes_written=host.bytes_written,
            seconds=host.seconds,
        )

    def _compare(self, decoded: Decoded, expected: TokenResult) -> None:
        """Compare the states after the layers, the rows of the heads, and the outputs."""
        golden, rows = self.golden, self.rows
        assert golden is not None and rows is not None
        require_finite(self.name, values(expected.states))
        names = ("layer", "sample", "element")
        if difference := first_difference(expected.states, decoded.states, names):
            words, (layer, sample, element) = difference
            if decoded.when is not None:
                place = element // self.lad.head_size * self.lad.batch + sample
                words += f", in cycle {decoded.when[layer][place]}"
            raise Mismatch(f"state after {words}")
        if not np.array_equal(expected.flags, decoded.flags):
            raise Mismatch(
                f"layers up to which a denominator is not positive: {decoded.flags} "
                f"instead of {expected.flags}"
            )
        if found := rows.difference(golden.lad.tiles.heads, self.done):
            _name, head, words = found
            layer = golden.lad.layer(head)
            raise Mismatch(f"layer {layer}, (batch, head) pair {head}, {words}")
        self._compare_traffic([step for own in expected.steps for step in own])
        if expected.predictions and expected.predictions != decoded.predictions:
            raise Mismatch(
                f"LM head, token and sum: {decoded.predictions} instead of {expected.predictions}"
            )

    def _compare_traffic(self, steps: list[Step]) -> None:
        """Compare the number of payloads on each stream to and from the heads' rows."""
        assert self.host is not None
        columns = len(steps) * self.lad.tile.ac.columns
        groups = sum(step.moved.groups for step in steps)
        active = sum(len(step.active) for step in steps)
        ahead = sum(step.ahead - step.hits for step in steps) if self.lad.tile.prefetched else 0
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
            states = self.embedding[[token] * self.lad.batch]
            self.golden.step(position, states, predict=False)
        return self.state_of(self.golden.lad.tiles.heads, len(tokens))

    def state(self) -> State:
        """Return the rows of all heads."""
        assert isinstance(self.rows, HeadRows)
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
