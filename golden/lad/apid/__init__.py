"""Golden model of LAD's active position identification (APID) module."""
