"""Golden models of the units of MEADOW's tile."""
