"""LAD under way with a whole model: a round a layer, and one for the vocabulary."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from amaranth.hdl import Shape
from numpy.typing import NDArray

from golden.lad.whole_model import HalfModel, angles
from hdl.lad.lad_parameters import LadParameters
from testbenches.harness import Harness, LongRun, Moved
from testbenches.harness_memory import FileItems
from testbenches.lad.head_rows import HeadRows
from testbenches.lad.outside import CARRIED
from testbenches.packing import Bits, pack, unpack

Codes = NDArray[np.uint16]

PATIENCE = 50_000
"""Cycles without any transfer after which the accelerator is stuck."""

SETTLES = 1000
"""Rounds of some cycles in which a token's last rows are written."""


class Host:
    """The host of an accelerator: it gives weights and states, and keeps the heads' rows.

    Parameters
    ----------
    p : LadParameters
        Dimensions.
    model : HalfModel
        The model.
    harness : Harness
        The compiled accelerator.
    rows : HeadRows
        What stands outside; the text goes on where they are.
    weights : Sequence[FileItems]
        Of each layer, and of the vocabulary.
    seed : int
        Of the pauses of every stream; 0 for none.

    Members
    -------
    states : array [layers, batch, width]
        Behind each layer, of the last token.
    flags : array [layers]
        Whether any denominator until there was not positive.
    when : array [layers, slices]
        In which cycle each slice of the states came.
    predictions : list of (int, int)
        Of each sample the token that follows, and its sum.
    carried : dict[str, int]
        Payloads of each stream to and from the heads' rows, of the last token.
    cycles, seconds : int, float
        Of the last token.
    octets_read, octets_written : int
        That crossed the ports with the last token.
    """

    def __init__(
        self,
        p: LadParameters,
        model: HalfModel,
        harness: Harness,
        rows: HeadRows,
        weights: Sequence[FileItems],
        seed: int = 0,
    ) -> None:
        self.p, self.model, self.rows, self.weights = p, model, rows, weights
        self._memory = rows.memory()
        self._open = contextlib.ExitStack()
        self._session = self._open.enter_context(harness.session([self._memory], seed=seed))
        self._before: dict[str, int] = {}
        self._layouts: dict[str, Any] = {
            name: layout
            for port in self._memory.ports
            for name, layout in ((port.stream, port.layout), (port.answers, port.answer_layout))
            if name
        }
        self.states: Codes = np.zeros((0, p.batch, 0), np.uint16)
        self.flags: Any = np.zeros(0, np.bool_)
        self.when: Any = np.zeros((0, 0), np.int64)
        self.predictions: list[tuple[int, int]] = []
        self.carried: dict[str, int] = {}
        self.cycles = self.octets_read = self.octets_written = 0
        self.seconds = 0.0

    def close(self) -> None:
        """End the program."""
        self._open.close()

    @property
    def transfers(self) -> list[int]:
        """Transfers of weights of each layer, and of the vocabulary."""
        octets = 4 * -(-self.p.tile.linear.weights_layout.size // 32)
        return [items.size // octets for items in self.weights]

    def run(
        self,
        position: int,
        states: Codes,
        *,
        predict: bool,
        watch: Callable[[int, Moved, int], None] = lambda layer, moved, before: None,
    ) -> None:
        """Take a token of each sample through all layers, and the vocabulary if it predicts.

        `watch` is told the layer, how far the round is, and in which cycle the token began.

        Parameters
        ----------
        position : int
            Of all samples' tokens.
        states : array [batch, width]
            Rows of the embedding.
        predict : bool
            Whether the vocabulary follows.
        """
        p, began = self.p, self._session.cycle
        self.seconds, self.predictions = 0.0, []
        self.octets_read = self.octets_written = 0
        found, flags, when = [], [], []
        for number, layer in enumerate(self.model.layers):
            slices = self._slices(np.concatenate([layer.input_norm, layer.post_norm]))
            if number == 0:
                slices = np.concatenate([self._arrival(position, states, predict), slices])
            run = self._round(number, slices, {"states": p.width * p.batch}, watch, began)
            got = unpack(p.state_layout, run.outputs["states"])
            # Slice by slice of all samples.
            values = got["values"].astype(np.uint16).reshape(p.width, p.batch, p.head_size)
            found.append(values.swapaxes(0, 1).reshape(p.batch, -1))
            flags.append(bool(got["not_positive"].any()))
            when.append(run.cycles["states"])
        if predict:
            slices = self._slices(self.model.final_norm)
            run = self._round(p.layers, slices, {"predictions": p.batch}, watch, began)
            pairs = unpack(p.prediction_layout, run.outputs["predictions"])
            self.predictions = list(
                zip(pairs["token"].tolist(), pairs["sum"].tolist(), strict=True)
            )
        self._settle(position + 1)
        self.states, self.flags, self.when = np.stack(found), np.array(flags), np.stack(when)
        self.cycles = self._session.cycle - began

    def _arrival(self, position: int, states: Codes, predict: bool) -> Bits:
        """Return a token's angles and its hidden states."""
        p = self.p
        turns = np.repeat(np.stack(angles(position, p.head_size, self.model.rope_base)), p.batch, 0)
        rows = states.reshape(p.batch, -1, p.head_size).swapaxes(0, 1)
        return np.concatenate(
            [self._slices(turns, position + 1, predict), self._slices(np.ascontiguousarray(rows))]
        )

    def _slices(self, values: Codes, length: int = 0, predict: bool = False) -> Bits:
        rows = values.reshape(-1, self.p.head_size)
        ones = np.ones(len(rows), np.int64)
        fields = {"values": rows, "length": length * ones, "predicts": int(predict) * ones}
        return pack(self.p.slice_layout, fields)

    def _round(
        self,
        number: int,
        slices: Bits,
        expected: dict[str, int],
        watch: Callable[[int, Moved, int], None],
        began: int,
    ) -> LongRun:
        """Offer a layer's slices and weights, and wait for what is expected."""
        weights = self.weights[number]
        run = self._session.run(
            {"slices": slices, "weights": weights},
            expected,
            timeout=PATIENCE,
            trail=0,
            progress=0.25,
            watch=lambda moved: watch(number, moved, began),
        )
        self.octets_read += slices.size // 8 + weights.size
        self.octets_written += sum(bits.size for bits in run.outputs.values()) // 8
        self._count(run)
        return run

    def _count(self, run: LongRun) -> None:
        """Keep what has crossed the ports to the rows since the program began."""
        self.seconds += run.seconds
        self._moved = {name: run.counts[name] for name in CARRIED}

    def _settle(self, length: int) -> None:
        """Wait until every head's caches and marks are written, which come behind its output."""
        p = self.p
        steps = p.layers * p.heads * p.batch
        groups = -(-length // p.tile.apid.lanes)
        last = {"columns": steps * p.tile.ac.columns, "marks": steps * groups}
        for _ in range(SETTLES):
            self.carried = {
                name: count - self._before.get(name, 0) for name, count in self._moved.items()
            }
            if all(self.carried[name] >= count for name, count in last.items()):
                break
            self._count(self._session.run({}, {}, trail=20))
        self._before = dict(self._moved)
        reads = {port.answers for port in self._memory.ports}
        bits = {True: 0, False: 0}
        for name, classes in CARRIED.items():
            fields = self._layouts[name].members
            width = sum(Shape.cast(fields[one]).width for own in classes.values() for one in own)
            bits[name in reads] += self.carried[name] * width
        self.octets_read += bits[True] // 8
        self.octets_written += bits[False] // 8
