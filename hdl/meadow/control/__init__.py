"""MEADOW's control: sequencer, weight path, activation memory, norm and combiner."""
