"""Golden models of MEADOW's units."""
