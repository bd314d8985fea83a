"""LAD's mode discrepancy module."""
