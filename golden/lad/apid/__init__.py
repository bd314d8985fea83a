"""Models of LAD's active position identification module."""
