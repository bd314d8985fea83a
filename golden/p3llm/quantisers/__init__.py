"""Models of the quantisers of P3-LLM."""
