"""Golden model of LAD's mode discrepancy (MD) module."""
