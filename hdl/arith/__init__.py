"""Number formats and the arithmetic operators that all accelerators share."""
