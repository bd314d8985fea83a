"""Models of P3-LLM's memory side."""
