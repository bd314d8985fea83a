"""Studies of the papers' claims on a real language model: `make study PAPER=kelle`."""
