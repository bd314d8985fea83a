"""LAD's special function module."""
