"""MEADOW's tile: hybrid PEs and softmax modules in TPHS pipelines (Figures 2, 3)."""
