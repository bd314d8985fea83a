"""The quantisers of P3-LLM, on the side of the NPU."""
