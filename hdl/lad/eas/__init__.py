"""LAD's efficient attention score module."""
