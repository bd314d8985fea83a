"""Models of LAD's attention score module."""
