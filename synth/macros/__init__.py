"""Lists of memory macros, wrappers made of macros, and the mapping of designs to them."""
