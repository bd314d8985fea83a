"""Two candidate causes of what 4-bit weights lose, each removed: the file's own grid, the groups.

The GGUF file stores the decoder's weights in Q4_1: each block of 32 weights is a step times a 4-bit
code, plus a minimum. BitMoD rounds from that grid to another. `dithered` spreads each weight evenly
over its step, which removes the grid and keeps the distribution.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from golden.p3llm.scheme import Scheme, linear_layers, weight_format
from golden.study.comparisons import compared
from golden.study.losses import perplexity_of
from golden.study.outcome import Table
from golden.study.p3llm_passes import Losses, SchemePasses

BLOCK, TOP = 32, 15
"""Weights of a Q4_1 block, and its largest code."""
SEED = 1
GROUPS = (64, 128, 192)
"""Weights in a group. 64 and 192 divide 576 and 1,536; 128 divides 1,536 only, so that its row has
groups of 64 in all matrices with 576 inputs."""
LAYERS = (0, 14, 29)
"""Layers whose matrices the relative error is of; the losses are those of the whole decoder."""
AS_STORED, DITHERED = "as stored", "dithered"


def q4_1_steps(weight: Tensor) -> Tensor:
    """Return the step of each block of 32 weights [rows, blocks, 1], from its extremes."""
    blocks = weight.unflatten(-1, (-1, BLOCK))
    return (blocks.amax(-1, keepdim=True) - blocks.amin(-1, keepdim=True)) / TOP


def dithered(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Return a matrix [rows, inputs] with noise of up to half a step added to each weight."""
    blocks = weight.unflatten(-1, (-1, BLOCK))
    noise = torch.rand(blocks.shape, generator=generator, dtype=weight.dtype) - 0.5
    return (blocks + noise * q4_1_steps(weight)).flatten(-2)


@contextmanager
def dithered_weights(model: Any) -> Iterator[None]:
    """Replace the decoder's weights by dithered ones inside the context."""
    generator = torch.Generator().manual_seed(SEED)
    original = {name: layer.weight.data for name, layer in linear_layers(model).items()}
    try:
        for layer in linear_layers(model).values():
            layer.weight.data = dithered(layer.weight.data, generator)
        yield
    finally:
        for name, layer in linear_layers(model).items():
            layer.weight.data = original[name]


def relative_error(weight: Tensor, group: int) -> float:
    """Return the RMS error of BitMoD over the RMS of the weights."""
    rounded = weight_format("BitMoD", group)(weight)
    return float((rounded - weight).norm() / weight.norm())


@dataclass(frozen=True, kw_only=True)
class GridResults:
    """What was measured.

    Members
    -------
    errors : dict[tuple[str, int], float]
        By weights and group: the relative error of BitMoD, mean over the matrices of `LAYERS`.
    losses : dict[str, Losses]
        By weights: losses [windows, tokens - 1] of the float model and of each group.
    """

    errors: dict[tuple[str, int], float]
    losses: dict[str, Losses]


def schemes(groups: tuple[int, ...] = GROUPS) -> dict[str, Scheme]:
    """Return the schemes that quantise weights alone, by name."""
    rounded = {f"groups of {n}": Scheme(weights="BitMoD", group=n) for n in groups}
    return {"float": Scheme(), **rounded}


def grid_results(
    passes: SchemePasses, windows: np.ndarray, groups: tuple[int, ...] = GROUPS
) -> GridResults:
    """Measure errors and losses with the weights as stored and dithered."""
    model, errors, losses = passes.model, {}, {}

    def measure(kind: str, own: SchemePasses) -> None:
        weights = [
            layer.weight.data
            for name, layer in linear_layers(model).items()
            if int(name.split(".")[1]) in LAYERS
        ]
        for group in groups:
            each = [relative_error(weight, group) for weight in weights]
            errors[kind, group] = sum(each) / len(each)
        losses[kind] = own.losses(f"weights {kind}", schemes(groups), windows)

    measure(AS_STORED, passes)
    # This file decides the noise, so that its bytes are part of the key of a kept pass.
    changed = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    with dithered_weights(model):
        measure(DITHERED, SchemePasses(model, passes.progress, passes.store, changed=changed))
    return GridResults(errors=errors, losses=losses)


def table(results: GridResults) -> Table:
    """Return the table."""
    rows = []
    for (kind, group), error in results.errors.items():
        lost = results.losses[kind]
        name = f"groups of {group}"
        base, own = lost["float"], lost[name]
        rows.append(
            (
                kind,
                str(group),
                f"{error:.2%}",
                f"{perplexity_of(base):.3f}",
                f"{perplexity_of(own):.3f}",
                compared(name, base, own).shown(),
            )
        )
    return Table(
        title="Weights alone in BitMoD: the file's grid, and the groups",
        columns=(
            "weights",
            "group",
            "relative error",
            "perplexity, float",
            "perplexity, BitMoD",
            "change",
        ),
        rows=rows,
        note=(
            "Dithered: uniform noise of up to half a Q4_1 step on each weight. The relative error "
            "is an RMS, mean over the matrices of layers 0, 14 and 29; losses are those of the "
            "whole decoder. 128 means 64 where 128 does not divide the inputs."
        ),
    )
