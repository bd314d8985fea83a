"""VEDA's voting engine."""
