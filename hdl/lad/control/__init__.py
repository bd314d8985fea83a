"""What links the stages of a LAD tile: fetching, regrouping, writing back."""
