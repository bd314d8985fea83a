"""Weight packing (MEADOW, Section 5): from matrices to packets, and back."""
