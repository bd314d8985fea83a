"""Texts of a small model by Kelle's host library, compared with the golden models."""

from golden.kelle.eviction.prefill import prefill
from golden.kelle.kelle import KelleModel
from golden.kelle.whole_model import IntegerModel, vocabulary_sums
from hdl.shell.kelle_axi_parameters import KelleAxiParameters
from hdl.shell.shell_parameters import TOKEN_BITS
from systola.host.kelle import KelleHost
from systola.host.transport import Transport
from testbenches.bench import Bench
from testbenches.shell.kelle_axi_work import kelle_text


class KelleTexts:
    """Layers of SmolLM2 with a random LM head in an accelerator, and their golden models.

    Parameters
    ----------
    bench : Bench
        The bench that compares.
    p : KelleAxiParameters
        Dimensions of the accelerator, which has an LM head.

    Members
    -------
    states : numpy.ndarray
        int64 [tokens, width]: the states of a text.
    stores : int
        Input vectors that the golden models have requested.
    """

    def __init__(self, bench: Bench, p: KelleAxiParameters) -> None:
        self.bench, self.p = bench, p
        text, self.states = kelle_text(p, bench.numpy_rng)
        assert text.vocabulary is not None
        self.model = IntegerModel(list(text.layers), text.vocabulary, 1.0)
        self.stores = 0

    def host(self, transport: Transport, timeout: float = 60) -> KelleHost:
        """Return a host that has loaded the model."""
        return KelleHost(transport, self.p, self.model, timeout=timeout)

    def begin(self, host: KelleHost, tokens: int) -> None:
        """Begin a text in both."""
        layers = enumerate(self.model.layers)
        self.models = [KelleModel(self.p.kelle, layer, number) for number, layer in layers]
        self.inputs = [layer.quantised.copy() for layer in self.model.layers]
        host.begin([prefill(own, tokens) for own in self.models], self.models, tokens)
        assert host.length == tokens

    def decode(self, host: KelleHost, *, predict: bool) -> None:
        """Decode the next token in both, and compare all results."""
        compare, position = self.bench.compare, host.length
        state = self.states[position]
        host.run(state, predict=predict)
        assert host.length == position + 1
        for own, inputs, found in zip(self.models, self.inputs, host.layers, strict=True):
            step = own.step(position, state)
            inputs[position] = step.normalised
            if step.store:
                self.stores += 1
                own.inputs[step.store[1]] = inputs[step.store[0]]
            compare("outputs", step.output, found.output)
            compare("inputs", step.normalised, found.normalised)
            assert found.placements == step.placements
            state = step.output
        if predict:
            sums = vocabulary_sums(self.model.vocabulary, state, self.p.kelle)
            assert host.prediction == (sums.argmax(), sums.max() % (1 << TOKEN_BITS))
