"""Golden model of LAD's attention score (EAS) module."""
