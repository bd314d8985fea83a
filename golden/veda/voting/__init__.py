"""Models of VEDA's voting engine."""
