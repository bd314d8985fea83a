"""Models of LAD's mode discrepancy module."""
