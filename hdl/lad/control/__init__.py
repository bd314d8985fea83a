"""Control of LAD: fetching and write-back of the tile's stages, and the decoder layers."""
