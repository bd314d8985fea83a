"""Texts of small models through a board's transport, for each accelerator with the AXI shell."""

from collections.abc import Callable
from typing import Any

import numpy as np

from golden.veda.whole_model import WholeModel
from hdl.shell.kelle_axi_parameters import KelleAxiParameters
from hdl.shell.meadow_axi_parameters import MeadowAxiParameters
from hdl.shell.veda_axi_parameters import VedaAxiParameters
from systola.host.transport import Transport
from systola.host.veda import VedaHost
from testbenches.bench import Bench
from tests.board.veda_model import BLOCKS, TOKENS, VedaModel, model_lines
from tests.shell.kelle_texts import KelleTexts
from tests.shell.meadow_texts import MeadowTexts

TIMEOUT = 1e6
"""Seconds after which a job is stopped, of which the simulated line needs many."""


def kelle_text(bench: Bench, p: KelleAxiParameters, transport: Transport) -> None:
    """Decode two tokens after a prefill that fills the caches."""
    texts = KelleTexts(bench, p)
    host = texts.host(transport, TIMEOUT)
    texts.begin(host, p.kelle.slots + p.kelle.window)
    for predict in (False, True):
        texts.decode(host, predict=predict)


def meadow_text(bench: Bench, p: MeadowAxiParameters, transport: Transport) -> None:
    """Generate two tokens after a prompt."""
    texts = MeadowTexts(bench, p)
    texts.generate(texts.host(transport, TIMEOUT), [3, 1, 4], 2)


def veda_text(bench: Bench, p: VedaAxiParameters, transport: Transport) -> None:
    """Process a block without a prediction, then two tokens of which each evicts one."""
    model = VedaModel(p.veda, seed=bench.rng.getrandbits(32))
    golden = WholeModel(p.veda, model.weights, model.vocabulary, model.rope_base)
    lines = model_lines(p.veda, model)
    host = VedaHost(transport, p, model.layers, lines, timeout=TIMEOUT)
    for block, tokens in zip(BLOCKS, TOKENS, strict=True):
        hidden = model.embedding[tokens]
        host.run(block, hidden)
        wanted = golden.step(block, hidden)
        if wanted.token is None:
            bench.compare("hidden states", np.asarray(wanted.states[-1]), host.states_left)
        else:
            assert host.prediction is not None and wanted.logits is not None
            expected = wanted.token, int(wanted.logits[wanted.token])
            bench.compare("token and logit", np.array(expected), np.array(host.prediction))


TEXTS: dict[type, Callable[[Bench, Any, Transport], None]] = {
    KelleAxiParameters: kelle_text,
    MeadowAxiParameters: meadow_text,
    VedaAxiParameters: veda_text,
}
"""A text of each class of dimensions; the bench compares all results with the golden model."""
