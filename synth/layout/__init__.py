"""Layout of a small unit: placement, clock tree, routing, extraction and timing with wires."""
