"""What keeps words: the memory itself, FIFOs, and buffers that give words again."""
