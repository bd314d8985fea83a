"""Models of Kelle's array."""
