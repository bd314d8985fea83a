"""Models of what stands between MEADOW's matrices."""
