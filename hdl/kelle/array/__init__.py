"""Kelle's systolic array and what finishes its sums."""
