"""Models of LAD's vector processing unit."""
