"""What orders Kelle's work: steps, passes, loads, and the way of results."""
