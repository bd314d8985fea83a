"""VEDA's flexible-product PE array."""
