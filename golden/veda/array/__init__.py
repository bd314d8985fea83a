"""Golden models of VEDA's array."""
