"""A tile of MEADOW: hybrid processing elements and the pipelined softmax (Figure 2)."""
