"""Testbench of LAD: hidden states through all layers, token by token."""

from dataclasses import asdict, dataclass
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.lad.lad import Lad
from golden.lad.lad_tile import Step, equation_7, schedule_bound
from golden.nonlinear.argmax import argmax
from hdl.arith.float_format import BINARY16
from hdl.lad.parameters import LadParameters
from testbenches.applicable import only_if
from testbenches.bench import TIMEOUT, Bench, catalog_parameters, record_fact
from testbenches.lad.layer_driver import (
    LayerDriver,
    begun_model,
    random_vocabulary,
    real_states,
    real_vocabulary,
    real_weights,
)
from testbenches.lad.outside import Outside
from testbenches.lad.schedule import Schedule
from testbenches.lad.sfm.tb_special_function_module import angles
from testbenches.lad.vectors import LAYERS
from testbenches.lad.vectors import prepare as prepare
from testbenches.packing import from_integers, unpack
from testbenches.shared_tests import reset_test, stall_test
from testbenches.streams import four_states

Codes = NDArray[np.uint16]

SLICE_CYCLES = 100
"""Upper bound of the special function module's cycles per slice."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Expected results for a token of each sample.

    Members
    -------
    states : array [layers, batch, hidden_size]
        Hidden states after each layer.
    steps : list of Step
        Sample by sample, layer by layer, head by head.
    predictions : list of (int, int)
        For each sample the token and its sum, if the token predicts.
    """

    states: Codes
    steps: list[Step]
    predictions: list[tuple[int, int]]


@dataclass(frozen=True)
class Cycles:
    """Duration of a run, and lower bounds: products of matrices, and attention.

    Members
    -------
    cycles : int
        Cycles from the first slice to the last result.
    ideal_cycles : int
        With the paper's Equation 7.
    schedule_bound : int
        With the hardware's own schedule of attention, see `schedule_bound`.
    """

    cycles: int
    ideal_cycles: int
    schedule_bound: int


class LadBench:
    """The accelerator, all data outside, and the model."""

    def __init__(self, dut: Any, salt: str, source: str = "none", sink: str = "none") -> None:
        self.p: LadParameters = catalog_parameters()
        p = self.p
        # Rotated or activated slices pass the special function module one by one, all of them
        # before the next matrix.
        alone = p.batch * max(p.heads + p.kv_heads, p.intermediate_size // p.head_size)
        self.bench = Bench(dut, salt, timeout=TIMEOUT + SLICE_CYCLES * alone)
        self.slices, self.weights = (
            self.bench.source(name, source) for name in ("slices", "weights")
        )
        self.states = self.bench.sink("states", sink)
        self.predictions = self.bench.sink("predictions", sink) if self.p.vocabulary_size else None
        self.driver = LayerDriver(self, self.p)
        self.outside = Outside(self.bench, self.p.tile, source, sink, shared=self.p.shared_tiles)
        self.rng = self.bench.numpy_rng
        self.layers = [
            real_weights(self.p, LAYERS[layer % len(LAYERS)]) for layer in range(self.p.layers)
        ]
        self.vocabulary = real_vocabulary(self.p) if self.p.vocabulary_size else None
        # Each token has its own LM head, whose argmax is difficult.
        self.draws = False

    def begin(self) -> Lad:
        """Return a model with begun texts, each longer than the previous one; load its rows."""
        model = begun_model(self.p, self.rng, self.begun)
        self.outside.load(model.tiles.heads)
        return model

    def begun(self, sample: int) -> int:
        """Return the number of a sample's positions before its first token."""
        return min(3 * sample, max(self.p.tile.slots - 3, 0))

    @property
    def room(self) -> int:
        """Number of tokens for which every sample has slots."""
        return self.p.tile.slots - self.begun(self.p.batch - 1)

    def offer(self, tokens: int) -> tuple[Lad, list[Answer]]:
        """Queue tokens of each sample, at most as many as there is room for.

        Returns the model after these tokens, and the expected results of each.
        """
        model = self.begin()
        tokens = min(tokens, self.room)
        return model, [self._offer_token(model, token) for token in range(tokens)]

    def _offer_token(self, model: Lad, token: int) -> Answer:
        """Queue a token of each sample; return the expected results."""
        p = self.p
        first = 1 + token * p.batch
        states = real_states(p, LAYERS[0], range(first, first + p.batch))
        lengths = [model.tiles.heads[model.numbers(0, one)[0]].length + 1 for one in range(p.batch)]
        turns = [angles(p.tile.sfm, length - 1) for length in lengths]
        cosines, sines = (np.stack([turn[part] for turn in turns]) for part in range(2))
        # Tokens of a prompt do not predict.
        vocabulary = self.vocabulary if token % 3 != 1 or self.draws else None
        if vocabulary and self.draws:
            vocabulary = random_vocabulary(p, self.rng)
        self.driver.send(self.layers, states, cosines, sines, lengths, vocabulary)
        behind, steps = model.token(self.layers, states, cosines, sines)
        sums = model.sums(*vocabulary, behind[-1]) if vocabulary else []
        return Answer(
            states=behind, steps=steps, predictions=[argmax(BINARY16, one) for one in sums]
        )

    async def run(self, tokens: int) -> Cycles:
        """Reset, run tokens through all layers; compare the states, and all data outside."""
        p = self.p
        await self.bench.reset()
        start = self.bench.cycle
        model, answers = self.offer(tokens)
        tokens = len(answers)
        slices = p.hidden_slices * p.batch
        times = p.layers if p.vocabulary_size else 1
        predicted = [pair for answer in answers for pair in answer.predictions]
        await self.bench.run(
            until=lambda: (
                len(self.states.received) == tokens * times * slices
                and (not self.predictions or len(self.predictions.received) == len(predicted))
            )
        )
        for _ in range(20):
            await self.bench.step()
        cycles, payloads = zip(*self.states.received, strict=True)
        got, flags = self.driver.received(list(payloads))
        self.bench.compare(
            "states",
            np.concatenate([answer.states[-times:] for answer in answers]).astype(np.int64),
            got.astype(np.int64),
            cycles=list(cycles[::slices]),
            show=hex,
        )
        flagged = np.concatenate([self._flags(answer)[-times:] for answer in answers])
        shown = np.repeat(flagged.astype(np.int64)[:, np.newaxis], slices, axis=1)
        self.bench.compare("not_positive", shown, flags)
        end = cycles[-1]
        if self.predictions:
            end = self._check_predictions(predicted)
        steps = [step for answer in answers for step in answer.steps]
        self.outside.check(model.tiles.heads, steps)
        products = tokens * sum(model.products(weights) for weights in self.layers)
        products += len(predicted) // p.batch * model.vocabulary_products()
        return Cycles(
            cycles=end - start,
            ideal_cycles=round(
                (products + sum(equation_7(p.tile, step) for step in steps)) / p.tiles
            ),
            schedule_bound=round(
                (products + sum(schedule_bound(p.tile, step) for step in steps)) / p.tiles
            ),
        )

    def _flags(self, answer: Answer) -> NDArray[np.bool_]:
        """Return whether any denominator up to each layer was not positive."""
        flags = np.array([step.not_positive for step in answer.steps])
        layers = flags.reshape(self.p.batch, self.p.layers, -1).any(axis=(0, 2))
        return np.logical_or.accumulate(layers)

    def _check_predictions(self, expected: list[tuple[int, int]]) -> int:
        """Compare tokens and sums; return the last one's cycle."""
        assert self.predictions is not None
        cycles, payloads = zip(*self.predictions.received, strict=True)
        layout = self.p.prediction_layout
        got = unpack(layout, from_integers(list(payloads), layout.size))
        tokens, sums = np.array(expected).T
        self.bench.compare("token", tokens, got["token"], cycles=list(cycles))
        self.bench.compare("sum", sums, got["sum"], cycles=list(cycles), show=hex)
        return cycles[-1]


TOKENS = 20
"""Enough tokens for positions to graduate."""


PAIRS = [("random", "bursty"), ("adversarial", "random"), ("bursty", "adversarial")]
"""Stall patterns of all input and all output streams."""


@cocotb.test()
async def tokens(dut: Any) -> None:
    """Run token after token of all samples through all layers."""
    bench = LadBench(dut, "tokens")
    p = bench.p
    number = min(TOKENS if p.tile.sfm.hidden_size < 100 else 1, bench.room)
    schedule = Schedule(bench, p)
    cycles = await bench.run(number)
    if p.periods > 1 and number > 2:
        # The second last token, which has a token before and after it.
        for name, value in schedule.token(number - 2).items():
            record_fact("schedule", name, value)
    bench.bench.record(
        **asdict(cycles),
        tensors=f"SmolLM2 layers {LAYERS[: p.layers]}, up to {number} tokens of {p.batch} samples",
    )


@cocotb.test()
@only_if(
    lambda run: run.parameters.vocabulary_size > 0 and run.parameters.tile.sfm.hidden_size < 100,
    "there is no vocabulary, or weights take the model minutes",
)
async def choices(dut: Any) -> None:
    """Predict from equal sums, neighbours, zeros, infinities and NaNs."""
    bench = LadBench(dut, "choices", sink="random")
    bench.draws = True
    for _ in range(1 if four_states() else 2):
        await bench.run(TOKENS)


small_weights = only_if(
    lambda run: run.parameters.tile.sfm.hidden_size < 100, "weights take the model minutes"
)
stalls = stall_test(LadBench, lambda _bench: 3, pairs=PAIRS, condition=small_weights)
resets = reset_test(
    LadBench,
    lambda _bench: 1 if four_states() else 2,
    begun=lambda _bench: 1,
    longest=lambda _bench: 800 if four_states() else 4000,
    times=lambda _bench: 1 if four_states() else 4,
    condition=small_weights,
)
