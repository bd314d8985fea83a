"""Real tensors: the weights, activations and attention of SmolLM2-135M over real English text."""

from golden.llm.cache import open_trace
from golden.llm.model import DataFileError
from golden.llm.texts import text_named
from golden.llm.trace import AttentionTrace, Linear, Trace

__all__ = ["AttentionTrace", "DataFileError", "Linear", "Trace", "open_trace", "text_named"]
