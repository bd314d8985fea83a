"""LAD's active position identification module."""
