"""Models of a tile of MEADOW."""
