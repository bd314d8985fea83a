"""The memory side of P3-LLM: decoders, processing elements, compute units, a channel."""
