"""What orders VEDA's work: layers, passes, operands, and results."""
