"""Testbenches of LAD's vector processing unit."""
