"""MEADOW's tile: token lanes of hybrid processing elements and pipelined softmax (Figure 2)."""
