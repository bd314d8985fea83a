"""LAD's linear layers."""
