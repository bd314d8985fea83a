"""Perplexity of the golden whole models of all systems, on windows of the same text.

``python -m golden.study.generated SYSTEM`` prints a JSON object. `float32` is the model
itself; all other systems are the bit-exact models of the Verilog.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes, values
from golden.kelle.whole_model import WholeModel as KelleModel
from golden.kelle.whole_model import first_states
from golden.kelle.whole_model import integer_model as kelle_integers
from golden.lad.whole_model import HalfModel
from golden.lad.whole_model import WholeModel as LadModel
from golden.llm.language_model import LanguageModel, open_language_model
from golden.llm.layers import rms_norm
from golden.llm.texts import text_named
from golden.meadow.whole_model import WholeModel as MeadowModel
from golden.meadow.whole_model import integer_model, vocabulary_sums
from golden.p3llm.whole_model import WholeModel as P3llmModel
from golden.p3llm.whole_model import quantised_model
from golden.veda.decoder_layer import folded
from golden.veda.whole_model import WholeModel as VedaModel
from golden.veda.whole_model import next_block
from hdl.catalog import entry_named
from hdl.kelle.parameters import KelleParameters
from hdl.lad.parameters import LadParameters
from hdl.model_shape import ModelShape

Logits = NDArray[np.floating[Any]]
Reader = Callable[[list[int]], Logits]
"""Function from the tokens of a window to their logits, shape (tokens, vocabulary_size)."""


def window_loss(logits: Logits, tokens: list[int]) -> float:
    """Return the sum of the negative log-likelihoods of all tokens except the first, in nats."""
    logits = logits[:-1] - logits[:-1].max(axis=1, keepdims=True)
    chances = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return float(-chances[np.arange(len(tokens) - 1), tokens[1:]].sum())


def float_reader(model: LanguageModel, budget: int) -> Reader:
    """Return a reader that uses `transformers`, in float32 with a full cache."""
    import torch

    from golden.llm.model import load_model

    decoder = load_model(model.file)

    def read(tokens: list[int]) -> Logits:
        with torch.inference_mode():
            return decoder(torch.tensor([tokens])).logits[0].double().numpy()

    return read


def meadow_reader(model: LanguageModel, budget: int) -> Reader:
    """Return a reader that uses MEADOW's golden model: a window is one block of a prompt."""
    p = entry_named("meadow").parameters("smollm2")
    integers = integer_model(model, model.calibration(), p)

    def read(tokens: list[int]) -> Logits:
        result = MeadowModel(p, integers).step(integers.embedded(model.embedding[tokens]))
        sums = vocabulary_sums(integers.vocabulary, result.states[-1], p)
        return sums * integers.vocabulary.step

    return read


def veda_reader(model: LanguageModel, budget: int) -> Reader:
    """Return a reader that uses VEDA's golden model, with one eviction per token above `budget`."""
    p = entry_named("veda").parameters("smollm2_vocabulary")
    weights = [folded(model.layer(number)) for number in range(model.shape.layers)]
    vocabulary, embedding = codes(model.projection()), codes(model.embedding)

    def read(tokens: list[int]) -> Logits:
        golden = VedaModel(p, weights, vocabulary, model.shape.rope_base)
        logits, cached = [], 0
        for position, token in enumerate(tokens):
            block = next_block(position, cached=cached, budget=budget, reserved=32)
            result = golden.step(block, embedding[[token]])
            assert result.logits is not None
            logits.append(p.array.sum_format.decode(result.logits))
            cached += 1 - block.evictions
        return np.stack(logits).astype(np.float64)

    return read


def kelle_parameters(s: ModelShape, budget: int) -> KelleParameters:
    """Return SmolLM2's preset with all layers, and with one slot per token of the budget."""
    return replace(
        entry_named("kelle").parameters("smollm2"),
        layers=s.layers,
        # The maximum size of a bank; the golden model does not address the bank.
        words=65536,
        slots=budget,
        window=budget // 2,
        vocabulary_size=s.vocabulary_size,
    )


def kelle_reader(model: LanguageModel, budget: int) -> Reader:
    """Return a reader that uses Kelle's golden model: float64 prefill of one token, then decode."""
    p = kelle_parameters(model.shape, budget)
    integers = kelle_integers(model, model.calibration(), p)
    golden, projection = KelleModel(p, integers), model.projection()

    def read(tokens: list[int]) -> Logits:
        first = first_states(model, tokens[0])
        golden.begin(first)
        logits: list[Logits] = [rms_norm(first[-1]) @ projection]
        for position, token in enumerate(tokens[1:], start=1):
            result = golden.step(position, integers.embedded(model.embedding[token], p))
            assert result.sums is not None
            logits.append(result.sums * integers.vocabulary.step)
        return np.stack(logits)

    return read


def lad_parameters(s: ModelShape) -> LadParameters:
    """Return SmolLM2's preset with the heads of all layers, and one sample."""
    preset = entry_named("lad").parameters("smollm2")
    tile = replace(preset.tile, heads=-(-s.layers * s.heads // preset.tiles))
    return replace(preset, tile=tile, layers=s.layers, batch=1, vocabulary=s.vocabulary_size)


def lad_reader(model: LanguageModel, budget: int) -> Reader:
    """Return a reader that uses LAD's golden model, which decodes all tokens of a window."""
    p = lad_parameters(model.shape)
    golden, embedding = LadModel(p, HalfModel.of(model, p)), codes(model.embedding)

    def read(tokens: list[int]) -> Logits:
        golden.begin()
        logits: list[Logits] = []
        for position, token in enumerate(tokens):
            result = golden.step(position, embedding[[token]])
            assert result.sums is not None
            logits.append(values(result.sums[0]))
        return np.stack(logits)

    return read


def p3llm_reader(model: LanguageModel, budget: int) -> Reader:
    """Return a reader that uses P3-LLM's golden model: a window is a block of decode steps."""
    preset, s = entry_named("p3llm").parameters("smollm2"), model.shape
    p = replace(preset, layers=s.layers, vocabulary_size=s.vocabulary_size)
    golden = P3llmModel(p, quantised_model(model, model.calibration(), p))

    def read(tokens: list[int]) -> Logits:
        golden.begin()
        result = golden.step(model.embedding[tokens])
        assert result.sums is not None
        return result.sums.astype(np.float64)

    return read


READERS = {
    "float32": float_reader,
    "meadow": meadow_reader,
    "veda": veda_reader,
    "kelle": kelle_reader,
    "lad": lad_reader,
    "p3llm": p3llm_reader,
}


def measured(system: str, *, windows: int, context: int, budget: int) -> dict[str, Any]:
    """Measure a system's perplexity on the first windows of the news text, and each loss."""
    model = open_language_model()
    tokens = model.tokens_of(text_named("news"))
    read = READERS[system](model, budget)
    losses: list[float] = []
    for window in range(windows):
        own = tokens[window * context :][:context]
        losses.append(window_loss(read(own), own) / (context - 1))
        print(f"window {window + 1} of {windows}: {losses[-1]:.4f} nats", file=sys.stderr)
    return {
        "system": system,
        "text": "news",
        "windows": windows,
        "context": context,
        "budget": budget if system in ("veda", "kelle") else None,
        "tokens": windows * (context - 1),
        "perplexity": math.exp(sum(losses) / windows),
        "nats/token": losses,
    }


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=READERS)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--budget", type=int, default=512)
    chosen = parser.parse_args()
    found = measured(
        chosen.system, windows=chosen.windows, context=chosen.context, budget=chosen.budget
    )
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
