"""Models of LAD's attention computation module."""
