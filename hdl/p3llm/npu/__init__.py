"""The vector unit of P3-LLM's NPU (Figure 6 a): all work outside the PIM."""
