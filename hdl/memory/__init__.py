"""What holds words: the memory itself, FIFOs, replay, row and ping-pong buffers, burst ports."""
