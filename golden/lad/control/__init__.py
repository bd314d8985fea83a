"""Models of what leads LAD's layers."""
