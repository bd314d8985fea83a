"""Models of VEDA's array."""
