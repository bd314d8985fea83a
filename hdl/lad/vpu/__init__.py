"""LAD's vector processing unit."""
