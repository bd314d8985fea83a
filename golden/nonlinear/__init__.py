"""Models of the lane-parallel functions."""
