"""Golden model of LAD's special function module (SFM)."""
