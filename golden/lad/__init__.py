"""Golden models of LAD's units."""
