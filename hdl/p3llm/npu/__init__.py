"""The NPU: what P3-LLM computes outside of the memory."""
