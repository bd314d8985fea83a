"""Golden models of VEDA's units and policies."""
