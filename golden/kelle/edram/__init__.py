"""Models of Kelle's eDRAM."""
