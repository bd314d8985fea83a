"""Units of MEADOW: packed weights and the token-parallel head-sequential dataflow."""
