"""Golden models: a bit-exact numpy model of every unit, and the real tensors that drive them."""
