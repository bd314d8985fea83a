"""Golden models of P3-LLM's units."""
