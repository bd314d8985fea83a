"""LAD's attention score module."""
