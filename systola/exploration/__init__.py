"""Sweeps over parameters, libraries and seeds: many verbs as jobs, on one machine or on many."""
