"""Kelle's eDRAM for keys and values, and its refresh."""
