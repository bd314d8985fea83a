"""Work of P3-LLM with the AXI shell: texts of random layers, cut into jobs, and their results."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from golden.shell.meadow_axi import prediction_tokens
from golden.shell.p3llm_axi import P3llmProgram
from golden.shell.shell_jobs import Bytes, padded
from hdl.p3llm.pim.dot_product import PE_LANES
from hdl.shell.p3llm_axi_parameters import P3llmAxiParameters
from testbenches.p3llm.layer_run import multiplied_columns, state_words
from testbenches.p3llm.system_models import Model
from testbenches.packing import to_integers
from testbenches.shell.shell_work import Job, Work


class P3llmWork(Work):
    """Texts of all requests after random caches; their tokens pass through all layers."""

    written = ("banks", "outputs")

    def __init__(
        self, p: P3llmAxiParameters, cached: Sequence[int], rng: np.random.Generator
    ) -> None:
        super().__init__()
        self.p, self.rng = p, rng
        self.positions = list(cached)
        self.model = Model.random(p.p3llm, cached, rng)
        self._first = self._bank_words()
        self.program = P3llmProgram(p)
        self._tokens: list[int | None] = []
        # The words of each job at the region that begins with its first word.
        self._outputs: list[list[Bytes]] = [[]]
        self._ideal = 0
        self._accessed = 0

    @property
    def ideal_cycles(self) -> int:
        """Cycles of the columns that all units multiply, or of their beats at the port."""
        return self._ideal

    def _bank_words(self) -> Bytes:
        """Return the positions of the banks as words of memory."""
        image = self.model.image
        return padded(image.reshape(len(image), -1), self.p.regions["banks"])

    def add_token(self, *, predict: bool = False) -> None:
        """Decode the next token of each request."""
        p = self.p.p3llm
        states = self.rng.normal(size=(p.batch, p.hidden_size)).astype(np.float32)
        words = to_integers(state_words(p, states))
        self.program.token(self.positions, words, predict=predict)
        for layer in range(p.layers):
            states = self.model.step(layer, states, self.positions)
            own = np.packbits(state_words(p, states), axis=-1, bitorder="little")
            self._outputs[-1].append(padded(own, self.p.regions["outputs"]))
        if predict:
            assert self.model.vocabulary is not None
            found = [self.model.vocabulary.predicted(state, p) for state in states]
            self._tokens += prediction_tokens([(int(token), int(code)) for token, code in found])
        columns = multiplied_columns(p, p.layers, max(self.positions))
        beats = self.p.regions["banks"] // self.p.data_bytes
        # Requests that share the weights read them once.
        reads = -(-p.batch // p.in_flight) * sum(columns if predict else columns[:-1])
        self._ideal += max(p.channel.column_cycles, beats) * reads
        self._accessed = self._last_position(predict=predict)
        self.positions = [position + 1 for position in self.positions]

    def _last_position(self, *, predict: bool) -> int:
        """Return the last position that a token accesses: of the LM head, or of a value."""
        p = self.p.p3llm
        if predict:
            return self.p.positions - 1
        sets, token = divmod(self.positions[-1], PE_LANES * p.elements)
        base = (p.layers - 1) * p.layer_positions + p.value_base(p.kv_heads - 1, p.batch - 1)
        return base + sets * p.value_set + 1 + token // PE_LANES

    def cut(self) -> None:
        """End a job after the tokens so far."""
        self.jobs.append(Job(self.program.words, self._tokens))
        self.program, self._tokens = P3llmProgram(self.p), []
        self._outputs.append([])

    def _output_words(self) -> list[Bytes]:
        """Return the outputs of each job."""
        return [np.concatenate(own) for own in self._outputs if own]

    def images(self, p: P3llmAxiParameters) -> dict[str, Any]:
        """Return the words of each region at the beginning, up to the last one that is used."""
        counts = {region: max(len(job.words[region]) for job in self.jobs) for region in p.program}
        counts["outputs"] = max(map(len, self._output_words()))
        empty = {
            name: np.zeros((count, p.regions[name]), np.uint8) for name, count in counts.items()
        }
        return {name: self._first if name == "banks" else empty[name] for name in p.regions}

    def results(self, p: P3llmAxiParameters, images: Mapping[str, Any]) -> dict[str, Any]:
        """Return the words of the regions that the jobs write, at the end."""
        outputs = images["outputs"].copy()
        for words in self._output_words():
            outputs[: len(words)] = words
        return {"banks": self._bank_words(), "outputs": outputs}

    def unread(self, p: P3llmAxiParameters, region: str) -> int:
        """Return how many words at the end of a region the last job does not access."""
        if region == "banks":
            return p.positions - 1 - self._accessed
        words = self._output_words()
        return max(map(len, words)) - len(words[-1])


def cached_tokens(p: P3llmAxiParameters, rng: np.random.Generator, tokens: int) -> list[int]:
    """Return numbers of cached tokens of each request, before so many tokens."""
    most = p.p3llm.slots - tokens
    return [int(rng.integers(1, most + 1)) for _ in range(p.p3llm.batch)]


def text_work(p: P3llmAxiParameters, rng: np.random.Generator, *, jobs: int = 2) -> P3llmWork:
    """Return jobs of one token, with predictions if there is an LM head."""
    work = P3llmWork(p, cached_tokens(p, rng, jobs), rng)
    for _ in range(jobs):
        work.add_token(predict=p.p3llm.vocabulary_size > 0)
        work.cut()
    return work
