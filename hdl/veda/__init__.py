"""VEDA: voting-based eviction and a flexible-product array."""
