"""MEADOW's weight unpacking and index look-up (WILU) module (Section 5.4, Figure 5)."""
