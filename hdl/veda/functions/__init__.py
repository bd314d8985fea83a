"""VEDA's element-serial nonlinear functions."""
