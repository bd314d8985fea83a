"""Units of LAD: the locality-aware decoding pipeline."""
