"""Golden models of VEDA's element-serial functions."""
