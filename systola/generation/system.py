"""The interface between the verb ``generate`` and the accelerators: one adapter per accelerator."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes, values
from golden.llm.language_model import LanguageModel
from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.sources import code_digest
from systola.generation.model_memory import ModelFile
from testbenches.external_memory import External, ExternalMemory
from testbenches.harness import Harness
from testbenches.waves import Samples

NOT_FOLLOWED = ("hdl.catalog",)
"""Modules outside a code digest: the parameters and the compiled program cover their effect."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of a run.

    Parameters
    ----------
    budget : int
        Tokens that a layer caches during text generation.
    reserved : int
        Number of first tokens that cast no votes.
    check : bool
        Whether the golden model computes the same blocks for comparison.
    waves : bool
        Whether the waveform is sampled.
    retention : str, optional
        One of `System.retentions`, by which the cache's memory loses bits.
    memory : ExternalMemory, optional
        The memory outside the accelerator; without it, all ports are ideal.
    clock : int, optional
        Clock of the accelerator in MHz, by which the times of the memory and of the refresh are
        converted; that of the system if None.
    packed : Path, optional
        File of the packed model; without it, the system packs the model.
    """

    budget: int
    reserved: int
    check: bool = True
    waves: bool = False
    retention: str | None = None
    memory: ExternalMemory | None = None
    clock: int | None = None
    packed: Path | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """The settings as JSON; an option that is absent does not change the identity of a run.

        The file of the packed model is not among them: `System.identity` has its digest.
        """
        given = asdict(self) | {"packed": None}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Block:
    """Tokens that go through all layers together.

    Parameters
    ----------
    first, count : int
        Position of the first token, and number of tokens.
    predict : bool
        Whether the system computes the token that follows the last one.
    plan : Any
        The system's own description of the block.
    """

    first: int
    count: int
    predict: bool
    plan: Any = None


@dataclass(frozen=True, kw_only=True)
class BlockProgress:
    """The progress of a block.

    Parameters
    ----------
    layer : int
        Current layer, from 0; the number of layers during the LM head.
    fraction : float
        Completed fraction of the block's work, 0 to 1.
    cycles : int
        Cycles since the start of the block.
    seconds : float
        Wall-clock time spent simulating these cycles.
    """

    layer: int
    fraction: float
    cycles: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a block.

    Parameters
    ----------
    token : int or None
        The next token, if the block predicts.
    cycles, bound : int
        Simulated cycles, and the system's lower bound for them.
    bytes_read, bytes_written : int
        Off-chip traffic.
    bytes_unpacked : int
        Off-chip traffic if packed weights were not packed; 0 for systems without packed weights.
    evictions : list[tuple[int, int]]
        Layer and slot of each victim.
    decided : dict[str, int]
        Other decisions of the design's mechanisms, with their counts.
    seconds : float
        Wall-clock time of the simulation.
    """

    token: int | None
    cycles: int
    bound: int
    bytes_read: int
    bytes_written: int
    bytes_unpacked: int = 0
    evictions: list[tuple[int, int]] = field(default_factory=list)
    decided: dict[str, int] = field(default_factory=dict)
    seconds: float


class System(ABC):
    """An accelerator with a model's weights in its memory.

    The caller runs blocks sequentially. Between two blocks, `state` returns all that a later
    process needs to continue.
    """

    top: str
    """Name of the accelerator's unit in the catalog."""

    name: str
    """Name of the accelerator in messages."""

    bound: str
    """What `Outcome.bound` counts, in a few words."""

    moved: str = "off-chip bytes/token"
    """What the bytes of `Outcome` count: the row's name."""

    compared: str
    """What the comparison with the golden model covers."""

    evicts: bool
    """Whether the system evicts cached tokens."""

    clock_mhz: int = 1000
    """Clock of the accelerator, if the settings have none."""

    budgets: bool = True
    """Whether `BUDGET` and `RESERVED` set the number of cached tokens, not the parameters."""

    retentions: Sequence[str] = ()
    """Values of `RETENTION`; none if the cache's memory needs no refresh."""

    packs: bool = False
    """Whether the weights in the system's memory are packed, and `Settings.packed` is possible."""

    harness: Harness
    """The compiled program, after `prepare`."""

    kept: ModelFile
    """The file that holds the model in the accelerator's form, after `prepare`."""

    longest: int
    """The longest context, in tokens, of the model in the accelerator."""

    @classmethod
    @abstractmethod
    def fitted(cls, model: LanguageModel, dimensions: Any) -> Any:
        """Return the parameters for a model, from those of a preset.

        Raises
        ------
        UserError or ValueError
            If the accelerator cannot run the model, with the rule and the value.
        """

    @classmethod
    def with_memory(cls, parameters: Any, settings: Settings) -> Any:
        """Return the parameters of an accelerator whose hardware depends on the external memory.

        Raises
        ------
        ValueError
            If the accelerator cannot use the memory or the clock.
        """
        return parameters

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        """Check all that can be refused; compile and write nothing."""
        self.p = parameters
        self.model, self.settings, self.folder = model, settings, folder
        self.external: External | None = None
        if settings.memory is not None:
            self.external = External(settings.memory, self.clock_of(settings))
        self._pool = ThreadPoolExecutor(1)
        self._open = contextlib.ExitStack()

    @classmethod
    def clock_of(cls, settings: Settings) -> int:
        """Return the clock in MHz by which the times of memories are converted."""
        return cls.clock_mhz if settings.clock is None else settings.clock

    def model_file(self, kind: str, **depends: Any) -> ModelFile:
        """Return the place and the key of a file that is computed from the model.

        Parameters
        ----------
        kind
            First part of the file's name.
        depends
            What decides the content besides the model, the parameters, the longest context and the
            code, such as the calibration text.
        """
        key = {
            "model": self.model.digest,
            "shape": asdict(self.model.shape),
            "parameters": repr(self.p),
            "longest": self.longest,
            "code": code_digest(type(self).__module__, without=NOT_FOLLOWED),
            **depends,
        }
        return ModelFile(self.folder / f"{kind}-{self.model.digest[:12]}.memory", key)

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides a run's result, besides prompt and settings."""
        modules = (type(self).__module__, "systola.generation.run")
        return {
            "model": self.model.digest,
            "parameters": repr(self.p),
            "program": self.harness.name,
            "image": self.kept.digest,
            "code": code_digest(*modules, without=NOT_FOLLOWED),
        }

    @property
    def golden_identity(self) -> dict[str, Any]:
        """All that decides the golden model's logits, besides the tokens."""
        without = (*NOT_FOLLOWED, "testbenches")
        return {
            "model": self.model.digest,
            "shape": asdict(self.model.shape),
            "parameters": repr(self.p),
            "budget": self.settings.budget if self.budgets else None,
            "reserved": self.settings.reserved if self.budgets else None,
            "calibration": self.model.calibration(self.longest),
            "code": code_digest(type(self).__module__, without=without),
        }

    @property
    def samples(self) -> Samples | None:
        """The sampled waveform, if the settings ask for one."""
        return Samples(self.folder / "waves.vcd") if self.settings.waves else None

    def compile(self, report: Callable[[str], None]) -> None:
        """Compile the Verilog into `harness`, or take the cached program."""
        report(f"compiling {self.name}'s Verilog; the first time takes minutes")
        self.harness = Harness.compiled(entry_named(self.top), self.p, waves=self.samples)

    def idle_speed(self, cycles: int) -> float:
        """Return the speed of the compiled model in cycles/s with idle inputs."""
        return self.harness.bare(cycles)

    @abstractmethod
    def prepare_golden(self, report: Callable[[str], None]) -> None:
        """Build the golden model, or take its cached file; compile nothing."""

    def prepare(self, report: Callable[[str], None]) -> None:
        """Compile the Verilog and compute the model's memory, or take the cached files."""
        self.compile(report)
        self.prepare_golden(report)

    @abstractmethod
    def logits(self, tokens: list[int]) -> NDArray[np.floating]:
        """Return the golden model's logits after each token of a text, after `prepare_golden`.

        The text starts on empty caches. Shape (tokens, vocabulary_size).
        """

    @abstractmethod
    def begin(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Start the simulation, from an empty cache or from a state."""

    def prompt_blocks(self, tokens: int) -> list[Block]:
        """Return the blocks of a prompt: one token each, of which the last one predicts.

        Raises
        ------
        UserError
            If the accelerator cannot process a prompt of that length.
        """
        return [Block(first=first, count=1, predict=first == tokens - 1) for first in range(tokens)]

    def next_block(self, position: int) -> Block:
        """Return the block of the generated token at a position."""
        return Block(first=position, count=1, predict=True)

    @abstractmethod
    def run(
        self, block: Block, tokens: list[int], watch: Callable[[BlockProgress], None]
    ) -> Outcome:
        """Run a block's tokens through the model.

        Raises
        ------
        Mismatch
            If the Verilog and the golden model differ.
        """

    @abstractmethod
    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that the next block depends on."""

    def cached_state(self, tokens: list[int]) -> dict[str, NDArray[Any]] | None:
        """Return the state after a text by the golden model alone, after `prepare_golden`.

        None if the host cannot write caches into the accelerator.
        """
        return None

    def end(self) -> None:
        """End the simulation, and remove its memory."""
        self._open.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


class Mismatch(Exception):
    """The Verilog differs from the golden model; the message gives the value and its place."""


def require_finite(system: str, states: NDArray[np.floating]) -> None:
    """Refuse a model whose hidden states exceed the range of the system's FP16.

    Parameters
    ----------
    system
        Name of the accelerator.
    states
        Hidden states after each layer, shape (layers, ...).
    """
    for layer, state in enumerate(states):
        if not np.isfinite(state).all():
            raise UserError(
                f"the hidden states of a model for {system} must fit FP16, up to 65504; those "
                f"after layer {layer} do not"
            )


def half_codes(system: str, name: str, matrix: NDArray[np.floating]) -> NDArray[np.uint16]:
    """Return a matrix as FP16 codes.

    Raises
    ------
    UserError
        If an element exceeds the format's range.
    """
    with np.errstate(over="ignore"):
        found = codes(matrix)
    if not np.isfinite(values(found)).all():
        raise UserError(f"the matrices of a model for {system} must fit FP16; {name} does not")
    return found


def first_difference(
    expected: NDArray[Any], found: NDArray[Any], names: tuple[str, ...]
) -> tuple[str, tuple[int, ...]] | None:
    """Return the first element that differs, in words and by its indices, or None."""
    if expected.shape != found.shape:
        return f"shape {found.shape} instead of {expected.shape}", (0,) * expected.ndim
    places = np.argwhere(expected != found)
    if not len(places):
        return None
    place = tuple(int(number) for number in places[0])
    where = ", ".join(f"{name} {number}" for name, number in zip(names, place, strict=True))
    words = f"{where}: {int(found[place]):#06x} instead of {int(expected[place]):#06x}"
    return f"{words} ({len(places)} of {expected.size} differ)", place
