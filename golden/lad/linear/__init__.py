"""Models of LAD's linear layers."""
