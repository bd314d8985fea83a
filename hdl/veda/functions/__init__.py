"""VEDA's element-serial functions."""
