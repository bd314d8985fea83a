"""Texts of a random model by MEADOW's host library, compared with the golden model."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from golden.meadow.whole_model import IntegerModel, WholeModel
from hdl.shell.meadow_axi_parameters import MeadowAxiParameters
from hdl.shell.shell_parameters import TOKEN_BITS
from systola.host.meadow import MeadowHost
from systola.host.transport import Transport
from testbenches.bench import Bench
from testbenches.meadow.packed_model import packed_model
from testbenches.meadow.random_layers import STATE_STEP, random_layers, random_vocabulary


class MeadowTexts:
    """A random model of two layers in an accelerator, and its golden model.

    Parameters
    ----------
    bench : Bench
        The bench that compares.
    p : MeadowAxiParameters
        Dimensions of the accelerator.
    """

    def __init__(self, bench: Bench, p: MeadowAxiParameters) -> None:
        self.bench, self.p = bench, p
        rng, own = bench.numpy_rng, p.meadow
        layers, _states = random_layers(own, rng, 2)
        self.model = IntegerModel(layers, random_vocabulary(own, rng), STATE_STEP)
        self.packed = packed_model(self.model, own)
        self.table = rng.integers(-(1 << 12), 1 << 12, (own.vocabulary_size, own.hidden_size))

    def host(self, transport: Transport, timeout: float = 60) -> MeadowHost:
        """Return a host that has loaded the model."""
        return MeadowHost(transport, self.p, self.packed, timeout=timeout)

    def embed(self, tokens: Any) -> Any:
        """Return the hidden states of tokens."""
        return self.table[list(tokens)]

    def generate(self, host: MeadowHost, prompt: Sequence[int], tokens: int) -> None:
        """Generate a new text in both; compare each token, and the low bits of its sum."""
        host.length = 0
        found, expected = list[tuple[int, int]](), list[tuple[int, int]]()
        for token in host.generate(prompt, tokens, self.embed):
            assert host.last is not None
            found.append((token, host.last.tokens[1]))
        golden, most = WholeModel(self.p.meadow, self.model), self.p.meadow.most_tokens
        blocks = [prompt[first : first + most] for first in range(0, len(prompt), most)]
        for block in blocks[:-1]:
            golden.step(self.embed(block))
        block = blocks[-1]
        for _ in range(tokens):
            result = golden.step(self.embed(block))
            expected.append((result.token, int(result.sums[result.token]) % (1 << TOKEN_BITS)))
            block = [result.token]
        self.bench.compare("tokens and sums", np.array(expected), np.array(found))
