"""Units of P3-LLM: processing in memory at low precision, and the quantisers around it."""
