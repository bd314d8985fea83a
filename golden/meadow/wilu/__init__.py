"""Golden models of MEADOW's weight unpacking and index look-up (WILU) module."""
