"""Model of P3-LLM with the AXI shell: its programs."""

from collections.abc import Sequence
from typing import Any

from hdl.shell.p3llm_axi_parameters import P3llmAxiParameters


class P3llmProgram:
    """A program: instructions, and the hidden states that they take.

    Members
    -------
    words : dict[str, list[int]]
        Payloads of each part of the program.
    """

    def __init__(self, p: P3llmAxiParameters) -> None:
        self.p = p
        self.words: dict[str, list[int]] = {name: [] for name in p.program}

    def step(self, *, layer: int, positions: Sequence[int], states: Sequence[int] = ()) -> None:
        """Compute a layer for slices of hidden states, or for the output of the step before.

        The layer after the last one is the LM head.
        """
        self.words["states"] += states
        step: dict[int | str, Any] = {"layer": layer, "position": list(positions)}
        fields: dict[int | str, Any] = {"step": step, "follows": not states}
        instruction = self.p.instruction_layout.const(fields)
        self.words["instructions"].append(instruction.as_value().value)

    def token(self, positions: Sequence[int], states: Sequence[int], *, predict: bool) -> None:
        """Compute all layers for a token of each request, and predict the next ones."""
        p = self.p.p3llm
        for layer in range(p.layers + predict):
            self.step(layer=layer, positions=positions, states=() if layer else states)
