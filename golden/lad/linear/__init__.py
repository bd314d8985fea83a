"""Golden models of LAD's linear layers."""
