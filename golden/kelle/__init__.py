"""Golden models of Kelle's units and policies."""
