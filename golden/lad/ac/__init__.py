"""Golden model of LAD's attention computation (AC) module."""
