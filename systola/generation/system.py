"""What a system must do to speak: the one interface between the verb and the accelerators."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm.language_model import LanguageModel
from golden.llm.layers import EPSILON
from golden.llm.model import ModelShape
from hdl.catalog import entry_named
from hdl.errors import UserError
from testbenches.harness import Harness
from testbenches.waves import Samples


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run is asked for.

    Parameters
    ----------
    budget : int
        Tokens that a layer caches while text is generated.
    reserved : int
        The first tokens of a text, which cast no votes.
    check : bool
        Whether the golden model computes the same beside.
    waves : bool
        Whether the waveform is sampled.
    """

    budget: int
    reserved: int
    check: bool = True
    waves: bool = False


@dataclass(frozen=True, kw_only=True)
class Block:
    """Tokens that go through all layers together.

    Parameters
    ----------
    first, count : int
        The position of the first one, and how many they are.
    predict : bool
        Whether the token that follows the last one is wanted.
    plan : Any
        What else the system knows of it.
    """

    first: int
    count: int
    predict: bool
    plan: Any = None


@dataclass(frozen=True, kw_only=True)
class Moving:
    """How far a block is.

    Parameters
    ----------
    layer : int
        The layer that is worked on, from 0 on; as many as there are layers for the vocabulary.
    share : float
        Of the block's work that is done.
    cycles : int
        Since the block's begin.
    seconds : float
        On the wall, of these cycles.
    """

    layer: int
    share: float
    cycles: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a block gave.

    Parameters
    ----------
    token : int or None
        What follows, if the block predicts.
    cycles, bound : int
        Cycles of the simulation, and what the system's own bound says of them.
    octets_read, octets_written : int
        Of the memory outside.
    octets_unpacked : int
        What would cross the memory's ports if packed weights were not packed; 0 without such.
    evictions : list[tuple[int, int]]
        Layer and slot of each victim.
    decided : dict[str, int]
        What else the design's mechanisms decided, in words and how often.
    seconds : float
        Of the simulation, on the wall.
    """

    token: int | None
    cycles: int
    bound: int
    octets_read: int
    octets_written: int
    octets_unpacked: int = 0
    evictions: list[tuple[int, int]] = field(default_factory=list)
    decided: dict[str, int] = field(default_factory=dict)
    seconds: float


class System(ABC):
    """An accelerator with a model's weights in its memory.

    Blocks are taken one behind the other; `state` between two of them is all that a later process
    needs to go on.
    """

    top: str
    """The accelerator's unit, as the catalog has it."""

    name: str
    """The accelerator's, as a sentence has it."""

    bound: str
    """What `Outcome.bound` counts, in a few words."""

    compared: str
    """What is equal when the golden model has computed the same."""

    evicts: bool
    """Whether a budget of cached tokens can be kept."""

    budgets: bool = True
    """Whether `BUDGET` and `RESERVED` choose it; otherwise the parameters do."""

    harness: Harness
    """The compiled program, when it is prepared."""

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
    def require_epsilon(cls, shape: ModelShape) -> None:
        """Refuse a model whose norms add something else than the accelerators' do."""
        if abs(shape.norm_epsilon - EPSILON) > 1e-9:
            raise UserError(
                f"the norms of a model for {cls.name} must add {EPSILON} to the mean square, not "
                f"{shape.norm_epsilon}"
            )

    @staticmethod
    def require_whole_base(shape: ModelShape) -> None:
        """Refuse a model whose angles cannot be generated from an integer."""
        if shape.rope_base != int(shape.rope_base):
            raise UserError(f"the base of a rotary embedding must be whole, not {shape.rope_base}")

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        """Make ready what can be refused; nothing is compiled or written."""
        self.p = parameters
        self.model, self.settings, self.folder = model, settings, folder
        self._pool = ThreadPoolExecutor(1)
        self._open = contextlib.ExitStack()

    @property
    def identity(self) -> dict[str, Any]:
        """What a run's result depends on, beside model, prompt and settings."""
        return {"parameters": repr(self.p), "program": self.harness.name}

    @property
    def samples(self) -> Samples | None:
        """What is sampled of the waveform, if anything."""
        return Samples(self.folder / "waves.vcd") if self.settings.waves else None

    def compile(self, report: Callable[[str], None]) -> None:
        """Compile the Verilog, unless that is done, into `harness`."""
        report(f"compiling {self.name}'s Verilog; the first time takes minutes")
        self.harness = Harness.compiled(entry_named(self.top), self.p, waves=self.samples)

    @abstractmethod
    def prepare(self, report: Callable[[str], None]) -> None:
        """Compile the Verilog and write the model's memory, unless both are there."""

    @abstractmethod
    def begin(self, state: dict[str, NDArray[Any]] | None) -> None:
        """Start the simulation, from an empty cache or from a state."""

    def prompt_blocks(self, tokens: int) -> list[Block]:
        """Return how a prompt of so many tokens is read: one by one, of which the last predicts.

        Raises
        ------
        UserError
            If the accelerator cannot begin with so few.
        """
        return [Block(first=first, count=1, predict=first == tokens - 1) for first in range(tokens)]

    def next_block(self, position: int) -> Block:
        """Return the block of the generated token at a position: a token by itself."""
        return Block(first=position, count=1, predict=True)

    @abstractmethod
    def run(self, block: Block, tokens: list[int], watch: Callable[[Moving], None]) -> Outcome:
        """Take a block's tokens through the model.

        Raises
        ------
        Mismatch
            If the Verilog does not give what the golden model gives.
        """

    @abstractmethod
    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that the next block depends on."""

    def end(self) -> None:
        """End the simulation, and remove its memory."""
        self._open.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


class Mismatch(Exception):
    """The Verilog gives something else than the golden model; its words say what, and where."""


def first_difference(
    expected: NDArray[Any], found: NDArray[Any], names: tuple[str, ...]
) -> tuple[str, tuple[int, ...]] | None:
    """Return the first element that differs, in words and by its place, or None."""
    if expected.shape != found.shape:
        return f"shape {found.shape} instead of {expected.shape}", (0,) * expected.ndim
    places = np.argwhere(expected != found)
    if not len(places):
        return None
    place = tuple(int(number) for number in places[0])
    where = ", ".join(f"{name} {number}" for name, number in zip(names, place, strict=True))
    words = f"{where}: {int(found[place]):#06x} instead of {int(expected[place]):#06x}"
    return f"{words} ({len(places)} of {expected.size} differ)", place
