"""Golden models of VEDA's voting engine."""
