"""Units of Kelle: eDRAM KV cache, systolic array with evictor, two-dimensional refresh."""
