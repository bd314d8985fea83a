"""Golden models of MEADOW's control folder."""
