"""LAD's attention computation module."""
