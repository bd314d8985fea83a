"""The quantisers of P3-LLM's NPU (Sections IV and V-B, Figure 6 b)."""
