"""LAD's host driver for a whole model: one round per layer, and one for the LM head."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from amaranth.hdl import Shape
from numpy.typing import NDArray

from golden.lad.whole_model import HalfModel, angles
from hdl.lad.parameters import LadParameters
from testbenches.external_memory import External
from testbenches.harness import Harness
from testbenches.harness_memory import FileItems
from testbenches.lad.head_rows import HeadRows
from testbenches.lad.outside import CARRIED
from testbenches.long_run import LongRun, Moved
from testbenches.packing import Bits, pack, unpack

Codes = NDArray[np.uint16]

TIMEOUT = 50_000
"""Cycles without any transfer after which a round fails."""

SETTLES = 1000
"""Maximum number of short rounds in which the last rows of a token are written."""


class Host:
    """The host of an accelerator: it sends weights and states, and stores the rows of the heads.

    Parameters
    ----------
    p : LadParameters
        Dimensions of the accelerator.
    model : HalfModel
        The model.
    harness : Harness
        The compiled accelerator.
    rows : HeadRows
        Rows of all heads outside the accelerator; the text continues after their positions.
    weights : Sequence[FileItems]
        Weights of each layer, and of the LM head.
    seed : int
        Seed of the pauses of every stream; 0 for no pauses.
    external : External, optional
        The memory of rows, weights and states; without it, all ports are ideal.

    Members
    -------
    states : array [layers, batch, hidden_size]
        Output states of each layer for the last token.
    flags : array [layers]
        Whether any denominator up to this layer was not positive.
    when : array [layers, slices]
        Cycle of each slice of the states.
    predictions : list of (int, int)
        Predicted token of each sample, and its logit.
    carried : dict[str, int]
        Payloads of each stream to and from the rows of the heads, for the last token.
    cycles, seconds : int, float
        Cycles and wall-clock time of the last token.
    bytes_read, bytes_written : int
        Bytes at the ports for the last token.
    """

    def __init__(
        self,
        p: LadParameters,
        model: HalfModel,
        harness: Harness,
        rows: HeadRows,
        weights: Sequence[FileItems],
        seed: int = 0,
        external: External | None = None,
    ) -> None:
        self.p, self.model, self.rows, self.weights = p, model, rows, weights
        self._memory = rows.memory()
        self._open = contextlib.ExitStack()
        self._places = _Places(external, self) if external else None
        memories = [*([external] if external else []), self._memory]
        self._session = self._open.enter_context(harness.session(memories, seed=seed))
        # Payloads to and from the rows since the program began: now, and before the token.
        self._moved: dict[str, int] = {}
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
        self.cycles = self.bytes_read = self.bytes_written = 0
        self.seconds = 0.0

    def close(self) -> None:
        """End the program."""
        self._open.close()

    @property
    def transfers(self) -> list[int]:
        """Number of transfers of weights of each layer, and of the LM head."""
        transfer_bytes = 4 * -(-self.p.tile.linear.weights_layout.size // 32)
        return [items.size // transfer_bytes for items in self.weights]

    def run(
        self,
        position: int,
        states: Codes,
        *,
        predict: bool,
        watch: Callable[[int, Moved, int], None] = lambda layer, moved, before: None,
    ) -> None:
        """Run a token of each sample through all layers, and the LM head if it predicts.

        Parameters
        ----------
        position : int
            Position of the tokens of all samples.
        states : array [batch, hidden_size]
            Rows of the embedding.
        predict : bool
            Whether the LM head follows.
        watch : Callable
            Called with the layer, the progress of the round, and the first cycle of the token.
        """
        p, began = self.p, self._session.cycle
        self.seconds, self.predictions = 0.0, []
        self.bytes_read = self.bytes_written = 0
        found, flags, when = [], [], []
        for number, layer in enumerate(self.model.layers):
            slices = self._slices(np.concatenate([layer.input_norm, layer.post_norm]))
            if number == 0:
                slices = np.concatenate([self._arrival(position, states, predict), slices])
            run = self._round(number, slices, {"states": p.hidden_slices * p.batch}, watch, began)
            got = unpack(p.state_layout, run.outputs["states"])
            # For each slice index, all samples are adjacent.
            values = got["values"].astype(np.uint16).reshape(p.hidden_slices, p.batch, p.head_size)
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
        """Return the angles and the hidden states of a token."""
        p = self.p
        waves = np.stack(angles(position, p.head_size, self.model.rope_base))
        rotations = np.repeat(waves, p.batch, 0)
        rows = states.reshape(p.batch, -1, p.head_size).swapaxes(0, 1)
        return np.concatenate(
            [
                self._slices(rotations, position + 1, predict),
                self._slices(np.ascontiguousarray(rows)),
            ]
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
        """Offer the slices and weights of a layer, and wait for the expected outputs."""
        weights = self.weights[number]
        if self._places:
            self._places.begin_round(weights)
        run = self._session.run(
            {"slices": slices, "weights": weights},
            expected,
            timeout=TIMEOUT,
            trail=0,
            progress=0.25,
            watch=lambda moved: watch(number, moved, began),
        )
        self.bytes_read += slices.size // 8 + weights.size
        self.bytes_written += sum(bits.size for bits in run.outputs.values()) // 8
        self._count(run)
        return run

    def _count(self, run: LongRun) -> None:
        """Record the number of payloads to and from the rows since the program began."""
        self.seconds += run.seconds
        self._moved = {name: run.counts[name] for name in CARRIED}

    def _settle(self, length: int) -> None:
        """Wait until the caches and marks of every head are written, after its output."""
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
        self.bytes_read += bits[True] // 8
        self.bytes_written += bits[False] // 8


class _Places:
    """Places of the streams in an external memory; `docs/memory.md` has the layout."""

    def __init__(self, external: External, host: Host) -> None:
        p = host.p
        self.external = external
        self.transfer_bytes = 4 * -(-p.tile.linear.weights_layout.size // 32)
        self.weights = external.reserve(sum(items.size for items in host.weights))
        # States, norms and angles are as many bytes as their elements.
        slice_bytes = 2 * p.head_size
        first = external.reserve(slice_bytes * (2 * p.hidden_slices + 2) * (p.batch + 1))
        for stream in ("slices", "states"):
            external.route(stream, first, item_bytes=slice_bytes)

    def begin_round(self, weights: FileItems) -> None:
        """Place the weights of a layer, which are in the order of the file."""
        place = self.weights + weights.first
        self.external.route("weights", place, item_bytes=self.transfer_bytes)
