"""Models of Kelle's eviction."""
