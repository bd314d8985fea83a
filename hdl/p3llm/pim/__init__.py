"""The PIM of P3-LLM (Figure 6 c): operand decoders, PEs, PCUs, and a channel with its banks."""
