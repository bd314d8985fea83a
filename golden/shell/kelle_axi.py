"""Model of Kelle with the AXI shell: its programs, and its words in memory."""

from collections.abc import Iterable, Sequence
from typing import Any

from golden.kelle.eviction.eviction_controller import EMPTY, KEPT, Placement
from hdl.kelle.eviction.eviction_parameters import placement_layout
from hdl.shell.kelle_axi_parameters import LOADS, Command, KelleAxiParameters


class KelleProgram:
    """A program: instructions, and the words that they take.

    Members
    -------
    words : dict[str, list[int]]
        Payloads of each part of the program.
    """

    def __init__(self, p: KelleAxiParameters) -> None:
        self.p = p
        self.words: dict[str, list[int]] = {name: [] for name in p.program}

    def load(self, part: str, words: Sequence[int], layer: int = 0) -> None:
        """Take words of a part of the program, one of `LOADS`."""
        self.words[part] += words
        self._add(command=LOADS[part], layer=layer, words=len(words))

    def step(self, *, layer: int, position: int, epsilon: int, state: Sequence[int] = ()) -> None:
        """Compute a layer for slices of a hidden state, or for the output of the step before."""
        self.words["states"] += state
        self._add(
            layer=layer,
            position=position,
            epsilon=epsilon,
            follows=not state,
            weights=layer * self.p.layer_words,
        )

    def predict(self, epsilon: int) -> None:
        """Compute the LM head for the output of the step before."""
        first = self.p.kelle.layers * self.p.layer_words
        self._add(epsilon=epsilon, follows=1, predicts=1, weights=first)

    def _add(self, **fields: Any) -> None:
        """Append an instruction; missing fields are 0."""
        step: dict[int | str, Any] = {"command": Command.STEP}
        instruction = self.p.instruction_layout.const({**step, **fields})
        self.words["instructions"].append(instruction.as_value().value)


def input_place(p: KelleAxiParameters, layer: int, position: int) -> int:
    """Return the address of the first slice of the input of a layer's attention block."""
    layout = p.input_layout
    token = position % (1 << layout["token"].width)
    return layer << layout["layer"].offset | token << layout["token"].offset


def placement_words(p: KelleAxiParameters, placements: Iterable[Placement]) -> list[int]:
    """Return placements as words of memory."""
    layout = placement_layout(p.kelle.eviction)
    found = []
    for one in placements:
        evicts, recomputed = one.evicted != EMPTY, one.vector != KEPT
        evicted = {
            "position": one.evicted * evicts,
            "recomputed": recomputed,
            "vector": one.vector * recomputed,
        }
        fields: dict[int | str, Any] = {
            "head": one.head,
            "slot": one.slot,
            "evicts": evicts,
            "evicted": evicted,
        }
        found.append(layout.const(fields).as_value().value)
    return found


def placements_of(p: KelleAxiParameters, words: Iterable[int]) -> list[Placement]:
    """Return the placements of words of memory."""
    layout = placement_layout(p.kelle.eviction)
    found = []
    for one in map(layout.from_bits, words):
        evicted = one.evicted
        found.append(
            Placement(
                one.head,
                one.slot,
                evicted.position if one.evicts else EMPTY,
                evicted.vector if one.evicts and evicted.recomputed else KEPT,
            )
        )
    return found
