"""Work of VEDA with the AXI shell: `DecodeWork`, cut into jobs, and its results in memory."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from golden.shell.shell_jobs import Bytes
from golden.shell.veda_axi import line_place, result_tokens
from golden.veda.veda import Codes
from golden.veda.voting.vote_threshold import ThresholdCoefficients
from hdl.shell.veda_axi_parameters import (
    KIND_FIRST,
    SPACES,
    TokenKind,
    VedaAxiParameters,
)
from testbenches.packing import code_fields, pack, to_integers
from testbenches.shell.shell_work import Job, Work
from testbenches.veda.decode_texts import past_of, random_vocabulary, text_layers
from testbenches.veda.decode_work import DecodeWork, open_tokens, random_tokens
from testbenches.veda.layer_weights import (
    angle_lines,
    real_states,
    real_weights,
    vocabulary_lines,
    weight_lines,
)
from testbenches.veda.off_chip_memory import Lines

LARGE = 64
"""Width of an array from which whole layers take long to simulate."""


class VedaWork(Work):
    """Work of VEDA, cut into jobs.

    The vote counts of a layer are in two places, of which a step reads one and writes the other.
    """

    written = ("cache", "counts", "outputs", "states_out")

    def __init__(self, p: VedaAxiParameters, work: DecodeWork) -> None:
        super().__init__()
        self.p, self.work = p, work
        self._done: dict[str, int] = {}
        self._lines: dict[bool, dict[str, dict[int, int]]] = {}
        self._copies = dict.fromkeys(range(p.veda.layers), 0)
        # Words of each step's counts, and their place.
        self._counts: list[tuple[int, Any]] = []
        self._results: dict[str, list[list[int]]] = {"outputs": [], "states_out": []}

    @property
    def ideal_cycles(self) -> int:
        """Beats of the arrays."""
        return self.work.ideal_cycles

    def _new(self, name: str, items: Sequence[Any]) -> Sequence[Any]:
        """Return the items of the work since the end of the job before."""
        done, self._done[name] = self._done.get(name, 0), len(items)
        return items[done:]

    def cut(self) -> None:
        """End a job after the work so far."""
        work, p = self.work, self.p
        steps = self._new("steps", list(zip(work.layers, work.steps, strict=True)))
        victims = self._new("victims", work.evictions)
        words = {
            "instructions": list(self._new("instructions", work.instructions)),
            "vote_steps": [self._step(layer, step) for layer, step in steps],
            "vectors": list(self._new("vectors", work.vectors)),
            "states": self._states(self._new("states_in", work.states_in), blocks=True),
        }
        predictions = self._new("predictions", work.predictions)
        self.jobs.append(Job(words, list(result_tokens(p, predictions, victims))))
        alone = self._new("alone", work.alone)
        outputs = b"".join(work.steps[number].outputs.astype("<u2").tobytes() for number in alone)
        size = p.veda.beat_layout.size // 8
        self._results["outputs"].append(
            [
                int.from_bytes(outputs[first : first + size], "little")
                for first in range(0, len(outputs), size)
            ]
        )
        left = self._new("states_out", work.states_out)
        self._results["states_out"].append(self._states(left, blocks=False))

    def _step(self, layer: int, step: Any) -> int:
        """Return the packed places of a step's counts."""
        slots, layers = self.p.veda.slots, self.p.veda.layers
        copy = self._copies[layer]
        places = [(own * layers + layer) * slots for own in (copy, 1 - copy)]
        self._copies[layer] = 1 - copy
        self._counts.append((places[1], step.counts))
        fields = {
            "read_address": places[0],
            "reads": step.length,
            "write_address": places[1],
            "writes": len(step.counts),
        }
        return packed(self.p.step_layout, fields)

    def _states(self, blocks_of: Iterable[Codes], *, blocks: bool) -> list[int]:
        """Return hidden states as payloads; `last` ends a block, or else each state."""
        layout, found = self.p.veda.state_layout, list[int]()
        for states in blocks_of:
            size = states.size if blocks else states.shape[-1]
            ends = np.arange(1, states.size + 1) % size == 0
            fields = {"value": code_fields(states.reshape(-1)), "last": ends.astype(np.int64)}
            found += to_integers(pack(layout, fields))
        return found

    def images(self, p: VedaAxiParameters) -> dict[str, Any]:
        """Return the words of each region at the beginning, up to the last one that is used."""
        found = {}
        for region, size in p.regions.items():
            if region in p.program:
                count = max(len(job.words[region]) for job in self.jobs)
            elif region in self._results:
                count = max(map(len, self._results[region]))
            else:
                count = 0
            found[region] = np.zeros((count, size), np.uint8)
        for region, words in self._line_words().items():
            found[region] = as_rows(words, 1 + max(words), p.regions[region])
        # The model's last keys and values are further on than the first ones.
        rows = 1 + max(self._line_words(final=True)["cache"])
        found["cache"] = grown(found["cache"], rows)
        found["counts"] = self._count_words(p, final=False)
        return found

    def _line_words(self, *, final: bool = False) -> dict[str, dict[int, int]]:
        """Return all lines, by region and address: before the work, or keys and values after it."""
        # A test loads the same work several times.
        if final not in self._lines:
            self._lines[final] = self._new_line_words(final=final)
        return self._lines[final]

    def _new_line_words(self, *, final: bool) -> dict[str, dict[int, int]]:
        work, lines = self.work, Lines(self.p.veda)
        if final:
            for layer, model in work.models.items():
                for value, cache in ((False, model.keys), (True, model.values)):
                    lines.store(cache[:, : model.length], layer=layer, value=value)
        else:
            for layer, (keys, values, _counts) in work.loaded.items():
                lines.store(keys, layer=layer, value=False)
                lines.store(values, layer=layer, value=True)
            for layer, decoder in work.decoders.items():
                lines.store_weights(weight_lines(self.p.veda, decoder.weights), layer=layer)
            if work.vocabulary is not None:
                lines.store_vocabulary(vocabulary_lines(self.p.veda, work.vocabulary))
            for position in work.positions:
                lines.store_angles(angle_lines(self.p.veda, position), position=position)
        found: dict[str, dict[int, int]] = {region: {} for region in SPACES}
        for address, line in lines.lines.items():
            region, place = line_place(self.p, address)
            found[region][place] = line
        return {region: words or {0: 0} for region, words in found.items()}

    def _count_words(self, p: VedaAxiParameters, *, final: bool) -> Bytes:
        """Return the vote counts before or after the work."""
        slots, size = p.veda.slots, p.regions["counts"]
        counts = np.zeros(2 * p.veda.layers * slots, np.int64)
        for layer, (_keys, _values, own) in self.work.loaded.items():
            counts[layer * slots :][: len(own)] = own
        if final:
            for place, own in self._counts:
                counts[place : place + len(own)] = own
        return np.ascontiguousarray(counts.astype("<i8")).view(np.uint8).reshape(-1, 8)[:, :size]

    def results(self, p: VedaAxiParameters, images: Mapping[str, Any]) -> dict[str, Any]:
        """Return the words of the regions that the jobs write, at the end."""
        found = {name: images[name].copy() for name in self.written}
        for place, line in self._line_words(final=True)["cache"].items():
            size = p.regions["cache"]
            found["cache"][place] = np.frombuffer(line.to_bytes(size, "little"), np.uint8)
        found["counts"] = self._count_words(p, final=True)
        for name, jobs in self._results.items():
            for words in jobs:
                rows = as_rows(dict(enumerate(words)), len(words), p.regions[name])
                found[name][: len(rows)] = rows
        return found

    def unread(self, p: VedaAxiParameters, region: str) -> int:
        """Return how many words at the end of a region the last job does not use."""
        if region == "angles" and not p.veda.rotary:
            return p.veda.context_length
        if region == "vocabulary" and not p.veda.vocabulary_size:
            return 1 + max(self._line_words()[region])
        if region != "counts":
            return 0
        layout = p.step_layout
        names = (("read_address", "reads"), ("write_address", "writes"))
        ends = [
            sum(step >> layout[name].offset & (1 << layout[name].width) - 1 for name in pair)
            for step in self.jobs[-1].words["vote_steps"]
            for pair in names
        ]
        return 2 * p.veda.layers * p.veda.slots - max(ends)

    def arranged(self, tokens: Sequence[int]) -> list[int]:
        """Return predictions, then victims: they alternate at random."""
        return sorted(tokens, key=lambda one: one >> KIND_FIRST == TokenKind.VICTIM.value)


def packed(layout: Any, fields: Mapping[str, int]) -> int:
    """Return the packed payload of fields."""
    return sum(value << layout[name].offset for name, value in fields.items())


def as_rows(words: Mapping[int, int], count: int, size: int) -> Bytes:
    """Return words by their addresses as rows of bytes; the others are 0."""
    rows = np.zeros((count, size), np.uint8)
    for place, word in words.items():
        rows[place] = np.frombuffer(word.to_bytes(size, "little"), np.uint8)
    return rows


def grown(rows: Bytes, count: int) -> Bytes:
    """Return rows with rows of zeros appended, up to a number."""
    return np.pad(rows, ((0, max(0, count - len(rows))), (0, 0)))


def coefficients_of(p: VedaAxiParameters) -> ThresholdCoefficients:
    """Return the coefficients of the voting threshold that the accelerator has."""
    return ThresholdCoefficients(p.mean, p.deviation)


def text_work(p: VedaAxiParameters, rng: np.random.Generator, *, jobs: int = 2) -> VedaWork:
    """Return jobs of one structure, each of which uses all ports.

    Each has a step of attention alone, a block whose hidden states leave and, with a vocabulary, a
    token that predicts. The layers are random numbers of all layers.
    """
    v = p.veda
    work = DecodeWork(v, coefficients=coefficients_of(p))
    work.vocabulary = random_vocabulary(rng, v)
    trace, numbers = open_tokens(), text_layers(v, 2)
    tokens = random_tokens(rng, v, 8 + jobs)
    for layer, number in enumerate(numbers):
        work.load(layer, *past_of(tokens, 3))
        work.give(layer, real_weights(v, trace, number))
    states = real_states(v, trace, numbers[0])
    found, position, last = VedaWork(p, work), 3, len(numbers) - 1
    for job in range(jobs):
        work.add(last, tokens, 3 + job, vote=True, evictions=1)
        for count, predict in ((min(2, v.block), False), (1, v.vocabulary_size > 0)):
            for layer in range(len(numbers)):
                work.add_layer(
                    layer,
                    states[position : position + count],
                    position,
                    vote=True,
                    # The cache of the last layer grows: its last slot is new.
                    evictions=int(layer != last),
                    leave=layer == last,
                    predict=predict and layer == last,
                )
            position += count
        found.cut()
    return found


def whole_work(p: VedaAxiParameters, work: DecodeWork) -> VedaWork:
    """Return work as one job."""
    found = VedaWork(p, work)
    found.cut()
    return found
