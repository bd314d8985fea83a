"""Sequencing: the program of both sides, and the sequencers of the memory side."""
