"""Golden models of LAD's control: argmax, addresses, slices and shared reads."""
