"""VEDA's flexible array."""
