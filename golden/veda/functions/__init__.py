"""Models of VEDA's element-serial functions."""
