"""MEADOW's weight unpacking and index look-up."""
