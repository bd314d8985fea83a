"""Models of LAD's special function module."""
