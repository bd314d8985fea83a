"""Golden model of LAD's vector processing unit (VPU)."""
